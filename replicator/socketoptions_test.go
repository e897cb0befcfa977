package replicator_test

import (
	"strings"
	"testing"

	"settee/replicator"

	"github.com/stretchr/testify/require"
)

func TestParseSocketOptions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]replicator.SocketOptions{
		"[]":                                    {},
		" [ ] ":                                 {},
		"[{keepalive, true}, {nodelay, false}]": {KeepAlive: new(true), NoDelay: new(false)},
		"[{recbuf,1024},{sndbuf , 2048},{buffer,1},{what,ever}]": {ReceiveBuffer: new(1024), SendBuffer: new(2048)},
		"[{keepalive, true}, {keepalive, false}]":                {KeepAlive: new(false)},
		// What CouchDB does not know may have any value.
		"[{priority,-1},{linger,{true,10}},{'my own',\"x\\\"]\"},{n,1.5},{m,16#ff},{l,[]},{l,[a,[b]]},{nodelay,true}]": {NoDelay: new(true)},
		"[\n{'keepalive',true}\t]": {KeepAlive: new(true)},
	} {
		options, err := replicator.ParseSocketOptions(text)
		require.NoError(t, err, text)
		require.Equal(t, want, options, text)
	}
	for _, text := range []string{
		"", "[", "keepalive", "{keepalive, true}", "[{keepalive}]", "[{keepalive, yes}]", "[{nodelay, 1}]", "[{sndbuf, true}]",
		"[{sndbuf, 0}]", "[{sndbuf, 99999999999}]", "[{keepalive, true},]", "[{keepalive, true}] x", "[{Keepalive, true}]",
		"[inet6]", "[{a,b,c}]", "[{}]", "[{1,2}]", "[{a,}]", "[{a b}]", "[{a,'}]", "[{a,''}]", "[{a,-}]", "[{a,+b}]", "[{a,\"}]", "[{a,{b}]", "[{a,B}]",
		"[{keepalive,'true'}]", "[{sndbuf,1.5}]", "[{a,é}]", "[{a," + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "}]",
	} {
		_, err := replicator.ParseSocketOptions(text)
		require.ErrorIs(t, err, replicator.ErrSocketOptions, text)
	}
}
