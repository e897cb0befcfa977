package credentials

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
)

// maxFile is the largest netrc file, in bytes.
const maxFile = 1 << 20

// netrc is a parsed file.
type netrc struct {
	path    string
	entries []entry
	open    error // not nil if others than the owner have access to the file
}

// entry is a machine entry of a netrc file. The entry "default" has the machine "", and is for all hosts.
type entry struct {
	line                     int
	machine, login, password string
	hasPassword              bool
}

// readNetrc reads a file. Errors name the file, and the line where there is one.
func readNetrc(path string) (*netrc, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was read
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, fmt.Errorf("%s is a directory", path)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	parsed := &netrc{path: path}
	if parsed.entries, err = parse(path, string(text)); err != nil {
		return nil, err
	}
	// The permissions of Windows are not in these bits, and a pipe (<(...) of a shell) has the permissions of its process.
	if mode := info.Mode(); mode.IsRegular() && mode.Perm()&0o077 != 0 && runtime.GOOS != "windows" {
		parsed.open = fmt.Errorf("%s has the permissions %04o: only its owner may have access to it (chmod 600)", path, mode.Perm())
	}
	return parsed, nil
}

// find returns the credentials of the first entry for a host, or nil. If user is not empty, entries of other users are
// passed over.
func (n *netrc) find(hostname, user string) (*pair, error) {
	for _, e := range n.entries {
		if e.machine != "" && !strings.EqualFold(e.machine, hostname) || user != "" && e.login != "" && e.login != user {
			continue
		}
		p := &pair{e.login, e.password}
		if user != "" {
			p.user = user
		}
		switch {
		case p.user == "":
			return nil, fmt.Errorf("%s:%d: the entry for %s has no login", n.path, e.line, hostname)
		case !e.hasPassword:
			return nil, fmt.Errorf("%s:%d: the entry for %s has no password", n.path, e.line, hostname)
		}
		return p, nil
	}
	return nil, nil
}

// parse parses the syntax that ftp and curl document: entries of the words machine, default, login, password and
// account, macros (macdef), comments, and values in double quotes. Errors do not repeat words of the text, since these
// may be passwords.
func parse(path, text string) ([]entry, error) {
	var entries []entry
	s := scanner{rest: text, line: 1}
	wrong := func(line int, reason string) error { return fmt.Errorf("%s:%d: %s", path, line, reason) }
	for {
		word, err := s.next(true)
		switch {
		case errors.Is(err, io.EOF):
			return entries, nil
		case err != nil:
			return nil, wrong(s.line, err.Error())
		}
		line := s.line
		switch word {
		case "default":
			entries = append(entries, entry{line: line})
			continue
		case "machine", "login", "password", "account", "macdef":
		default:
			return nil, wrong(line, "a word is not one of machine, default, login, password, account and macdef")
		}
		value, err := s.next(false)
		if err != nil {
			return nil, wrong(line, fmt.Sprintf("%s has no value", word))
		}
		switch {
		case word == "macdef":
			s.skipMacro()
			continue
		case word == "machine":
			if value == "" {
				return nil, wrong(line, "machine has no value")
			}
			entries = append(entries, entry{line: line, machine: value})
			continue
		case len(entries) == 0:
			return nil, wrong(line, fmt.Sprintf("%s comes before the first machine", word))
		}
		switch e := &entries[len(entries)-1]; word {
		case "login":
			e.login = value
		case "password":
			e.password, e.hasPassword = value, true
		}
	}
}

// scanner reads words.
type scanner struct {
	rest string
	line int
}

// next returns the next word. Where comments may be, a word that begins with # begins one.
func (s *scanner) next(comments bool) (string, error) {
	for s.rest != "" {
		switch c := s.rest[0]; {
		case c == '\n':
			s.line++
			s.rest = s.rest[1:]
		case strings.IndexByte(" \t\r", c) >= 0:
			s.rest = s.rest[1:]
		case c == '#' && comments:
			if end := strings.IndexByte(s.rest, '\n'); end >= 0 {
				s.rest = s.rest[end:]
			} else {
				s.rest = ""
			}
		case c == '"' && !comments:
			return s.quoted()
		default:
			end := strings.IndexAny(s.rest, " \t\r\n")
			if end < 0 {
				end = len(s.rest)
			}
			word := s.rest[:end]
			s.rest = s.rest[end:]
			return word, nil
		}
	}
	return "", io.EOF
}

// quoted returns the value in double quotes that the text begins with. A backslash is an escape, as in curl.
func (s *scanner) quoted() (string, error) {
	var value strings.Builder
	for i := 1; i < len(s.rest); i++ {
		c := s.rest[i]
		switch {
		case c == '"':
			s.rest = s.rest[i+1:]
			return value.String(), nil
		case c == '\n':
			return "", errors.New("a quote has no end")
		case c == '\\' && i+1 < len(s.rest):
			i++
			c = s.rest[i]
			if at := strings.IndexByte("nrt", c); at >= 0 {
				c = "\n\r\t"[at]
			}
		}
		value.WriteByte(c)
	}
	return "", errors.New("a quote has no end")
}

// skipMacro skips the body of a macro, which ends with an empty line. It starts behind the macro's name.
func (s *scanner) skipMacro() {
	for name := true; s.rest != ""; name = false {
		line, rest, found := strings.Cut(s.rest, "\n")
		s.rest = rest
		if found {
			s.line++
		}
		if !name && strings.TrimSuffix(line, "\r") == "" {
			return
		}
	}
}
