package replicator

import (
	"errors"
	"strconv"
	"strings"
)

// SocketOptions are the options of an endpoint's connections that a document or
// a configuration sets; nil is for what it leaves alone.
type SocketOptions struct {
	KeepAlive     *bool `json:"keepalive,omitempty"`
	NoDelay       *bool `json:"nodelay,omitempty"`
	ReceiveBuffer *int  `json:"recbuf,omitempty"` // bytes
	SendBuffer    *int  `json:"sndbuf,omitempty"` // bytes
}

// ErrSocketOptions is what ParseSocketOptions returns for a text that it cannot
// make sense of.
var ErrSocketOptions = errors.New("must be a list such as `[{keepalive, true}, {nodelay, false}]`")

// ParseSocketOptions parses the value of CouchDB's socket_options, in a document
// as in the configuration: an Erlang list of pairs. Options it does not know are
// ignored, whatever their values are, as CouchDB ignores them; its `buffer` and
// `priority` have no counterpart here. It returns ErrSocketOptions if text is not
// such a list, or if a value is not of its option's kind.
func ParseSocketOptions(text string) (SocketOptions, error) {
	var options SocketOptions
	s := termScanner{rest: text}
	ok := s.sequence('[', ']', func() bool {
		name, value, ok := s.pair()
		return ok && options.set(name, value)
	})
	s.skipSpace()
	if !ok || s.rest != "" {
		return SocketOptions{}, ErrSocketOptions
	}
	return options, nil
}

// set sets an option to a value in Erlang's spelling, and reports whether it is of
// the option's kind.
func (o *SocketOptions) set(name, value string) bool {
	switch name {
	case "keepalive":
		return setSocketFlag(&o.KeepAlive, value)
	case "nodelay":
		return setSocketFlag(&o.NoDelay, value)
	case "recbuf":
		return setSocketBuffer(&o.ReceiveBuffer, value)
	case "sndbuf":
		return setSocketBuffer(&o.SendBuffer, value)
	}
	return true
}

func setSocketFlag(flag **bool, value string) bool {
	*flag = new(value == "true")
	return value == "true" || value == "false"
}

func setSocketBuffer(buffer **int, value string) bool {
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

// pair reads a tuple of an atom and any term, and returns both as they are
// spelled.
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

// sequence reads what stands between two brackets: nothing, or elements with
// commas between them.
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
		return r < 0x80 && (isAlphanumeric(byte(r)) || strings.ContainsRune("_@.#", r))
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
