package replicator

import (
	"errors"
	"regexp"
	"strconv"
)

// SocketOptions are the options of an endpoint's connections that a document or
// a configuration sets; nil is for what it leaves alone.
type SocketOptions struct {
	KeepAlive     *bool `json:"keepalive,omitempty"`
	NoDelay       *bool `json:"nodelay,omitempty"`
	ReceiveBuffer *int  `json:"recbuf,omitempty"` // bytes
	SendBuffer    *int  `json:"sndbuf,omitempty"` // bytes
}

var (
	socketOption     = regexp.MustCompile(`\{\s*([a-z]\w*)\s*,\s*([a-z]\w*|[0-9]+)\s*\}`)
	socketOptionList = regexp.MustCompile(`^\s*\[\s*(?:` + socketOption.String() + `(?:\s*,\s*` + socketOption.String() + `)*)?\s*\]\s*$`)
)

// ErrSocketOptions is what ParseSocketOptions returns for a text that it cannot
// make sense of.
var ErrSocketOptions = errors.New("must be a list such as `[{keepalive, true}, {nodelay, false}]`")

// ParseSocketOptions parses the value of CouchDB's socket_options, in a document
// as in the configuration: an Erlang list of pairs. Options it does not know are
// ignored, as CouchDB ignores them; its `buffer` and `priority` have no
// counterpart here. It returns ErrSocketOptions if text is not such a list, or
// if a value is not of its option's kind.
func ParseSocketOptions(text string) (SocketOptions, error) {
	var options SocketOptions
	if !socketOptionList.MatchString(text) {
		return options, ErrSocketOptions
	}
	for _, match := range socketOption.FindAllStringSubmatch(text, -1) {
		var err error
		switch name, value := match[1], match[2]; name {
		case "keepalive":
			options.KeepAlive, err = socketFlag(value)
		case "nodelay":
			options.NoDelay, err = socketFlag(value)
		case "recbuf":
			options.ReceiveBuffer, err = socketBuffer(value)
		case "sndbuf":
			options.SendBuffer, err = socketBuffer(value)
		}
		if err != nil {
			return SocketOptions{}, err
		}
	}
	return options, nil
}

func socketFlag(value string) (*bool, error) {
	if value != "true" && value != "false" {
		return nil, ErrSocketOptions
	}
	return new(value == "true"), nil
}

func socketBuffer(value string) (*int, error) {
	size, err := strconv.ParseInt(value, 10, 32)
	if err != nil || size < 1 {
		return nil, ErrSocketOptions
	}
	return new(int(size)), nil
}
