package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// plain returns the URL of the node without credentials, and without a slash at the end.
func (p *process) plain() string { return strings.TrimSuffix(withoutAdmin(p.url), "/") }

// netrcFor writes a file with the administrator of nodes, and returns its path.
func netrcFor(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	text := fmt.Sprintf("machine 127.0.0.1\n  login %s\n  password %s\n", adminName, adminPassword)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// A continuous replication gets its credentials from each of the ways, and its command line has no password.
func TestCredentialsOfReplicate(t *testing.T) {
	t.Parallel()
	node := serveNode(t, aStore(t))
	node.fill()
	for way, c := range map[string]struct{ args, env []string }{
		"file":  {args: []string{"--credentials", netrcFor(t, "file")}},
		"netrc": {env: []string{"NETRC=" + netrcFor(t, "named")}},
		"home":  {env: []string{"HOME=" + filepath.Dir(netrcFor(t, ".netrc"))}},
		"env": {env: []string{
			"SETTEE_SOURCE_USER=" + adminName, "SETTEE_SOURCE_PASSWORD=" + adminPassword,
			"SETTEE_TARGET_USER=" + adminName, "SETTEE_TARGET_PASSWORD=" + adminPassword,
		}},
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			args := slices.Concat([]string{"replicate", node.plain() + "/db", node.plain() + "/copy-" + way, "--create-target", "--continuous"}, c.args)
			p := begin(t, "replication id", slices.Concat([]string{"HOME=" + t.TempDir()}, c.env), args...)
			require.EventuallyWithT(t, func(t *assert.CollectT) {
				status, _ := node.request(http.MethodGet, "copy-"+way, "")
				assert.Equal(t, http.StatusOK, status)
			}, limit, 50*time.Millisecond)
			line, err := os.ReadFile("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/cmdline")
			require.NoError(t, err)
			assert.Contains(t, string(line), "replicate")
			assert.NotContains(t, string(line), adminPassword)
			assert.Equal(t, 128+int(syscall.SIGTERM), p.end(syscall.SIGTERM))
			assert.NotContains(t, p.logged(), adminPassword)
			assert.NotContains(t, p.logged(), "warning")
		})
	}
}

func TestCredentialsOfOtherCommands(t *testing.T) {
	t.Parallel()
	node := serveNode(t, "pebble:"+filepath.Join(t.TempDir(), "data"))
	node.fill()
	file := netrcFor(t, "file")
	out, errs, status := settee(t, "verify", node.plain()+"/db", node.plain()+"/db", "--credentials", file)
	assert.Zero(t, status, errs)
	assert.Contains(t, out, "equal: ")
	assert.NotContains(t, errs, "warning")
	_, errs, status = settee(t, "backup", node.plain(), filepath.Join(t.TempDir(), "backup"), "--credentials", file)
	assert.Zero(t, status, errs)
	assert.Empty(t, errs)
	_, errs, status = settee(t, "verify", node.url+"db", node.url+"db")
	assert.Zero(t, status, errs)
	assert.Equal(t, 1, strings.Count(errs, "settee: warning: every local user can read the password of the URL"))
	assert.NotContains(t, errs, adminPassword)

	require.NoError(t, os.Chmod(file, 0o644)) //nolint:gosec // the command refuses it
	for _, args := range [][]string{
		{"replicate", node.plain() + "/db", node.plain() + "/x"},
		{"verify", node.plain() + "/db", node.plain() + "/x"},
		{"backup", node.plain(), filepath.Join(t.TempDir(), "backup")},
		{"import-couchdb", node.plain(), "--to", node.plain()},
	} {
		_, errs, status := settee(t, append(args, "--credentials", file)...)
		assert.Equal(t, exitFailed, status)
		assert.Contains(t, errs, "has the permissions 0644: only its owner may have access to it")
	}
}

// openTerminal returns a pseudo terminal: what a user sees and types, and what a command has.
func openTerminal(t *testing.T) (user, command *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = user.Close() })
	var number int
	raw, err := user.SyscallConn() // Fd would make reads ignore Close
	require.NoError(t, err)
	var failed error
	require.NoError(t, raw.Control(func(fd uintptr) {
		if failed = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); failed == nil {
			number, failed = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	}))
	require.NoError(t, failed)
	command, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = command.Close() })
	return user, command
}

// A backup is not text.
func TestBackupIsNotWrittenToATerminal(t *testing.T) {
	t.Parallel()
	_, command := openTerminal(t)
	var errs strings.Builder
	cmd := exec.CommandContext(t.Context(), built(t), "backup", "http://127.0.0.1:1/", "-")
	cmd.Stdout, cmd.Stderr = command, &errs
	require.Error(t, cmd.Run())
	assert.Equal(t, exitUsage, cmd.ProcessState.ExitCode())
	assert.Contains(t, errs.String(), "a backup is not written to a terminal")
}

// writerFunc is a function that writes.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// The terminal is silent when the question appears: an answer that is typed or pasted at once is not shown.
func TestSecretIsHiddenBeforeTheQuestion(t *testing.T) {
	t.Parallel()
	user, command := openTerminal(t)
	echoes := func() bool {
		settings, err := unix.IoctlGetTermios(int(command.Fd()), unix.TCGETS)
		require.NoError(t, err)
		return settings.Lflag&unix.ECHO != 0
	}
	require.True(t, echoes())
	asked := false
	answer, err := asker{command, writerFunc(func(b []byte) (int, error) {
		if string(b) == "Password: " {
			asked = true
			assert.False(t, echoes())
			_, err := fmt.Fprintln(user, "s3cret")
			require.NoError(t, err)
		}
		return len(b), nil
	})}.AskSecret("Password: ")
	require.NoError(t, err)
	require.True(t, asked)
	require.Equal(t, "s3cret", answer)
	require.True(t, echoes())
}

// On a terminal the command asks for what is missing, and the terminal does not show the password.
func TestCredentialsOfATerminal(t *testing.T) {
	t.Parallel()
	node := serveNode(t, "pebble:"+filepath.Join(t.TempDir(), "data"))
	for name, c := range map[string]struct {
		url     string
		answers [][2]string // a question, and what is typed
	}{
		"a user": {strings.Replace(node.plain(), "://", "://"+adminName+"@", 1), [][2]string{{"Password of \"" + adminName + "\" for the node " + node.plain() + ": ", adminPassword}}},
		"no user": {node.plain(), [][2]string{
			{"User name for the node " + node.plain() + ": ", adminName},
			{"Password of \"" + adminName + "\" for the node " + node.plain() + ": ", adminPassword},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			user, command := openTerminal(t) // one after the other, since a node runs one backup at a time
			cmd := exec.Command(built(t), "backup", c.url, filepath.Join(t.TempDir(), "backup"))
			cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
			cmd.Stdin, cmd.Stdout, cmd.Stderr = command, command, command
			require.NoError(t, cmd.Start())
			ended := make(chan error, 1)
			go func() {
				ended <- cmd.Wait()
				_ = command.Close() // the user's end reads to the end then
			}()
			stop := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
			defer stop.Stop()
			var screen bytes.Buffer
			answers := c.answers
			for buffer := make([]byte, 4096); ; {
				n, err := user.Read(buffer)
				screen.Write(buffer[:n])
				if len(answers) > 0 && strings.HasSuffix(screen.String(), answers[0][0]) {
					_, err := fmt.Fprintln(user, answers[0][1])
					require.NoError(t, err)
					answers = answers[1:]
				}
				if err != nil {
					break
				}
			}
			require.NoError(t, <-ended, screen.String())
			assert.Empty(t, answers, screen.String())
			assert.Contains(t, screen.String(), "backed up ")
			assert.NotContains(t, screen.String(), adminPassword)
		})
	}
}
