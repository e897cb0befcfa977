// Package sockopt has the socket options that replications and the configuration set, in CouchDB's notation.
package sockopt

import (
	"errors"
	"slices"
	"strconv"
	"strings"
)

// Options are the options of a connection's socket. nil leaves an option at the default of the program or system.
type Options struct {
	KeepAlive     *bool `json:"keepalive,omitempty"` // TCP keepalive
	NoDelay       *bool `json:"nodelay,omitempty"`   // TCP_NODELAY
	ReceiveBuffer *int  `json:"recbuf,omitempty"`    // bytes
	SendBuffer    *int  `json:"sndbuf,omitempty"`    // bytes
}

// ErrSyntax is the error of Parse and ParseKnown.
var ErrSyntax = errors.New("must be a list such as `[{keepalive, true}, {nodelay, false}]`")

// Parse parses the value of CouchDB's socket_options: an Erlang list of pairs. As in CouchDB, options that it does
// not know are ignored, whatever their values; so are buffer and priority, which have no counterpart here. It
// returns ErrSyntax if text is not such a list, or if a value is not of its option's kind.
func Parse(text string) (Options, error) {
	return parse(text, func(string, string) bool { return true })
}

// ParseKnown is Parse for a configuration: it also returns ErrSyntax for options that CouchDB does not have, and for
// a value of buffer or priority that is not of its option's kind.
func ParseKnown(text string) (Options, error) {
	return parse(text, func(name, value string) bool {
		size, err := strconv.ParseInt(value, 10, 32)
		return err == nil && (name == "buffer" && size > 0 || name == "priority" && size >= 0)
	})
}

// parse calls ignore for each option that has no effect. ignore reports whether the option is valid.
func parse(text string, ignore func(name, value string) bool) (Options, error) {
	var options Options
	s := termScanner{rest: text}
	ok := s.sequence('[', ']', func() bool {
		name, value, ok := s.pair()
		if !ok {
			return false
		}
		switch name {
		case "keepalive":
			return setFlag(&options.KeepAlive, value)
		case "nodelay":
			return setFlag(&options.NoDelay, value)
		case "recbuf":
			return setBuffer(&options.ReceiveBuffer, value)
		case "sndbuf":
			return setBuffer(&options.SendBuffer, value)
		}
		return ignore(name, value)
	})
	s.skipSpace()
	if !ok || s.rest != "" {
		return Options{}, ErrSyntax
	}
	return options, nil
}

// String returns the options in CouchDB's notation, which Parse reads.
func (o Options) String() string {
	var pairs []string
	flag := func(name string, value *bool) {
		if value != nil {
			pairs = append(pairs, "{"+name+", "+strconv.FormatBool(*value)+"}")
		}
	}
	size := func(name string, value *int) {
		if value != nil {
			pairs = append(pairs, "{"+name+", "+strconv.Itoa(*value)+"}")
		}
	}
	flag("keepalive", o.KeepAlive)
	flag("nodelay", o.NoDelay)
	size("recbuf", o.ReceiveBuffer)
	size("sndbuf", o.SendBuffer)
	return "[" + strings.Join(pairs, ", ") + "]"
}

// Only returns the options that names contains, by their names in CouchDB's notation.
func (o Options) Only(names []string) Options {
	if !slices.Contains(names, "keepalive") {
		o.KeepAlive = nil
	}
	if !slices.Contains(names, "nodelay") {
		o.NoDelay = nil
	}
	if !slices.Contains(names, "recbuf") {
		o.ReceiveBuffer = nil
	}
	if !slices.Contains(names, "sndbuf") {
		o.SendBuffer = nil
	}
	return o
}

func setFlag(flag **bool, value string) bool {
	*flag = new(value == "true")
	return value == "true" || value == "false"
}

func setBuffer(buffer **int, value string) bool {
	size, err := strconv.ParseInt(value, 10, 32)
	*buffer = new(int(size))
	return err == nil && size > 0
}

// termScanner reads Erlang terms: atoms, numbers, strings, tuples and lists.
type termScanner struct {
	rest  string
	depth int
}

// maxTermDepth bounds the recursion; no socket option comes near it.
const maxTermDepth = 8

// pair reads a tuple of an atom and any term, and returns both as they are spelled, the atom without its quotes.
func (s *termScanner) pair() (name, value string, ok bool) {
	elements := 0
	ok = s.sequence('{', '}', func() bool {
		s.skipSpace()
		before := s.rest
		if !s.term() {
			return false
		}
		spelled := before[:len(before)-len(s.rest)]
		switch elements++; elements {
		case 1:
			name = strings.Trim(spelled, "'")
			return isAtomStart(spelled[0])
		case 2:
			value = spelled
		}
		return true
	})
	return name, value, ok && elements == 2
}

// sequence reads two brackets with elements between them, which commas separate.
func (s *termScanner) sequence(open, end byte, element func() bool) bool {
	if s.depth++; s.depth > maxTermDepth || !s.take(open) {
		return false
	}
	defer func() { s.depth-- }()
	if s.take(end) {
		return true
	}
	for element() {
		if s.take(end) {
			return true
		}
		if !s.take(',') {
			return false
		}
	}
	return false
}

func (s *termScanner) term() bool {
	s.skipSpace()
	if s.rest == "" {
		return false
	}
	switch c := s.rest[0]; {
	case c == '{':
		return s.sequence('{', '}', s.term)
	case c == '[':
		return s.sequence('[', ']', s.term)
	case c == '\'' || c == '"':
		return s.quoted(c)
	case c == '-' || c == '+':
		s.rest = s.rest[1:]
		return s.rest != "" && isDigit(s.rest[0]) && s.word()
	case isDigit(c) || isAtomStart(c):
		return s.word()
	}
	return false
}

// quoted reads a string or an atom in quotes that is not empty.
func (s *termScanner) quoted(quote byte) bool {
	for i := 1; i < len(s.rest); i++ {
		switch s.rest[i] {
		case '\\':
			i++
		case quote:
			s.rest = s.rest[i+1:]
			return quote == '"' || i > 1
		}
	}
	return false
}

// word reads an atom or a number, such as true, 5, 1.5 and 16#ff.
func (s *termScanner) word() bool {
	s.rest = strings.TrimLeftFunc(s.rest, func(r rune) bool {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("_@.#", r)
	})
	return true
}

// take reads c, if it is what comes next.
func (s *termScanner) take(c byte) bool {
	s.skipSpace()
	if s.rest == "" || s.rest[0] != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

func (s *termScanner) skipSpace() {
	s.rest = strings.TrimLeft(s.rest, " \t\r\n")
}

func isDigit(c byte) bool {
	return c >= '0' && c <= '9'
}

func isAtomStart(c byte) bool {
	return c >= 'a' && c <= 'z' || c == '\''
}
