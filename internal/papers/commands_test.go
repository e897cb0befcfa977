package papers

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/couch/couchtest"
)

// block is a fenced block of a document.
type block struct {
	line          int    // of its fence
	kind          string // the info string
	notRun, shows string // what the comment before it says
	couchDBs      bool   // it needs two CouchDBs
	text          string
}

// kinds are the info strings that blocks may have, and whether they are run.
var kinds = map[string]bool{
	"sh": true, "console": true, "go": false, "ini": false, "json": false, "text": false,
}

var (
	notRun = regexp.MustCompile(`^<!-- not run: (.+) -->$`)
	shows  = regexp.MustCompile(`^<!-- file: (.+) -->$`)
)

// blocks returns the fenced blocks of a document.
func blocks(t *testing.T, path string) []block {
	t.Helper()
	var all []block
	var open *block
	before := ""
	for i, line := range strings.Split(read(t, path), "\n") {
		switch {
		case strings.HasPrefix(line, "```") && open == nil:
			open = &block{line: i + 1, kind: strings.TrimPrefix(line, "```")}
			if m := notRun.FindStringSubmatch(before); m != nil {
				open.notRun = m[1]
			}
			open.couchDBs = before == "<!-- run with two CouchDBs -->"
			if m := shows.FindStringSubmatch(before); m != nil {
				open.shows = m[1]
			}
		case line == "```":
			all = append(all, *open)
			open = nil
		case open != nil:
			open.text += line + "\n"
		default:
			assert.False(t, before == "" && strings.HasPrefix(line, "    "),
				"%s:%d: a block is fenced and has an info string, so that it is known whether it is run", path, i+1)
		}
		before = line
	}
	require.Nil(t, open, "%s: a block has no end", path)
	return all
}

// command is one of a block.
type command struct {
	line   int
	text   string
	prints string
}

// commands returns those of a block.
func (b block) commands() []command {
	if b.kind == "sh" {
		return []command{{line: b.line + 1, text: b.text}}
	}
	var all []command
	for i, line := range strings.Split(strings.TrimSuffix(b.text, "\n"), "\n") {
		if text, ok := strings.CutPrefix(line, "$ "); ok {
			all = append(all, command{line: b.line + 1 + i, text: text + "\n"})
			continue
		}
		last := &all[len(all)-1]
		if text, ok := strings.CutPrefix(line, "> "); ok && last.prints == "" {
			last.text += text + "\n"
			continue
		}
		last.prints += line + "\n"
	}
	return all
}

func TestCommands(t *testing.T) {
	t.Parallel()
	for _, path := range documents(t) {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			var run []block
			for _, b := range blocks(t, path) {
				runs, known := kinds[b.kind]
				assert.True(t, known, "%s:%d: the info string of a block is one of %v", path, b.line, kinds)
				if runs && b.notRun == "" && !b.couchDBs {
					run = append(run, b)
				}
			}
			if len(run) == 0 {
				return
			}
			startShell(t).checkAll(t, path, run)
		})
	}
}

// TestCommandsWithCouchDBs runs the blocks that need two CouchDBs.
func TestCommandsWithCouchDBs(t *testing.T) {
	t.Parallel()
	for _, path := range documents(t) {
		run := slices.DeleteFunc(blocks(t, path), func(b block) bool { return !b.couchDBs })
		if len(run) == 0 {
			continue
		}
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			const admin, password = "mirror", "relax"
			names := []string{"https://", "http://"}
			for i, name := range []string{"a.example", "b.example"} {
				server := couchtest.StartCouchDB(t, map[string]map[string]string{"admins": {admin: password}})
				names = append(names, name, strings.TrimPrefix(server.URL, "http://"))
				if i == 0 {
					for _, database := range []string{"films", "series"} {
						server.Do(t, http.MethodPut, "/"+database, nil, http.StatusCreated)
						server.Do(t, http.MethodPut, "/"+database+"/first", []byte(`{"year":1895}`), http.StatusCreated)
					}
				}
			}
			s := startShell(t, names...)
			netrc := "machine 127.0.0.1 login " + admin + " password " + password + "\n"
			require.NoError(t, os.WriteFile(s.rename.Replace("/etc/settee/mirror.netrc"), []byte(netrc), 0o600))
			s.checkAll(t, path, run)
		})
	}
}

// TestShownFiles compares blocks that show a file with it.
func TestShownFiles(t *testing.T) {
	t.Parallel()
	for _, path := range documents(t) {
		for _, b := range blocks(t, path) {
			if b.shows == "" {
				continue
			}
			fence := "```" + b.kind + "\n"
			compare(t, path, strings.Replace(read(t, path), fence+b.text+"```", fence+read(t, b.shows)+"```", 1))
		}
	}
}

// shell is a shell that runs the commands of a document.
type shell struct {
	in     io.Writer
	out    *bufio.Reader
	rename *strings.Replacer
}

// startShell starts a shell and its node. names are pairs of further names in the document and what they are here.
func startShell(t *testing.T, names ...string) *shell {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("the commands of the documents are not run: they need curl (on Debian: apt-get install curl)")
	}
	dir := t.TempDir()
	for _, sub := range []string{"etc", "var", "work"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, sub), 0o700))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".curlrc"), []byte("silent\nshow-error\n"), 0o600))
	env := []string{"HOME=" + dir, "PATH=" + filepath.Dir(built(t)) + ":" + os.Getenv("PATH")}
	address := startNode(t, filepath.Join(dir, "store"), env)

	cmd := exec.Command("bash", "--noprofile", "--norc")
	cmd.Dir, cmd.Env = filepath.Join(dir, "work"), env
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, in.Close())
		_ = cmd.Wait()
	})
	killer := time.AfterFunc(3*limit, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() { killer.Stop() })
	return &shell{in: in, out: bufio.NewReader(out), rename: strings.NewReplacer(append([]string{
		"127.0.0.1:5984", address, "/etc/settee", filepath.Join(dir, "etc"), "/var/lib/settee", filepath.Join(dir, "var"),
	}, names...)...)}
}

// end ends what a command prints, with its exit status behind it.
const end = "\x1e"

// run runs a command, and returns what it prints and its exit status.
func (s *shell) run(t *testing.T, text string) (printed, status string) {
	t.Helper()
	_, err := fmt.Fprintf(s.in, "{ %s\n} </dev/null 2>&1; printf '"+end+"%%d"+end+"' $?\n", s.rename.Replace(text))
	require.NoError(t, err)
	printed, err = s.out.ReadString(end[0])
	require.NoError(t, err, "the shell ended; %s", printed)
	status, err = s.out.ReadString(end[0])
	require.NoError(t, err)
	return strings.TrimSuffix(printed, end), strings.TrimSuffix(status, end)
}

var (
	space  = regexp.MustCompile(`\s+`)
	reads  = regexp.MustCompile(`^curl `)
	writes = regexp.MustCompile(` -(X|d) `)
	// progress has the lines that settee verify prints if it takes long. No document has them.
	progress = regexp.MustCompile(`(?m)^\d+ of \d+ databases, .* checked, .*\n`)
)

// checkAll checks the commands of blocks.
func (s *shell) checkAll(t *testing.T, path string, run []block) {
	t.Helper()
	for _, b := range run {
		for _, c := range b.commands() {
			s.check(t, path, c)
		}
	}
}

// check runs a command, and compares what it prints.
func (s *shell) check(t *testing.T, path string, c command) {
	t.Helper()
	want := regexp.QuoteMeta(space.ReplaceAllString(s.rename.Replace(c.prints), ""))
	pattern := regexp.MustCompile("(?s)^" + strings.ReplaceAll(want, "…", ".*") + "$")
	deadline := time.Now()
	if reads.MatchString(c.text) && !writes.MatchString(c.text) {
		deadline = deadline.Add(limit)
	}
	for {
		printed, status := s.run(t, c.text)
		printed = progress.ReplaceAllString(printed, "")
		matches := c.prints == "" || pattern.MatchString(space.ReplaceAllString(printed, ""))
		if status == "0" && matches {
			return
		}
		if time.Now().After(deadline) {
			require.Fail(t, fmt.Sprintf("%s:%d", path, c.line), "%sended with %s and printed\n%s\nwhere the document has\n%s", c.text, status, printed, c.prints)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
