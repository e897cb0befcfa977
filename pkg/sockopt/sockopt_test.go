package sockopt_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/sockopt"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]sockopt.Options{
		"[]":                                    {},
		" [ ] ":                                 {},
		"[{keepalive, true}, {nodelay, false}]": {KeepAlive: new(true), NoDelay: new(false)},
		"[{recbuf,1024},{sndbuf , 2048},{buffer,1},{what,ever}]": {ReceiveBuffer: new(1024), SendBuffer: new(2048)},
		"[{keepalive, true}, {keepalive, false}]":                {KeepAlive: new(false)},
		// What CouchDB does not know may have any value.
		"[{priority,-1},{linger,{true,10}},{'my own',\"x\\\"]\"},{n,1.5},{m,16#ff},{l,[]},{l,[a,[b]]},{nodelay,true}]": {NoDelay: new(true)},
		"[\n{'keepalive',true}\t]": {KeepAlive: new(true)},
	} {
		options, err := sockopt.Parse(text)
		require.NoError(t, err, text)
		require.Equal(t, want, options, text)
	}
	for _, text := range []string{
		"", "[", "keepalive", "{keepalive, true}", "[{keepalive}]", "[{keepalive, yes}]", "[{nodelay, 1}]", "[{sndbuf, true}]",
		"[{sndbuf, 0}]", "[{sndbuf, 99999999999}]", "[{keepalive, true},]", "[{keepalive, true}] x", "[{Keepalive, true}]",
		"[inet6]", "[{a,b,c}]", "[{}]", "[{1,2}]", "[{a,}]", "[{a b}]", "[{a,'}]", "[{a,''}]", "[{a,-}]", "[{a,+b}]", "[{a,\"}]", "[{a,{b}]", "[{a,B}]",
		"[{keepalive,'true'}]", "[{sndbuf,1.5}]", "[{a,é}]", "[{a," + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "}]",
	} {
		_, err := sockopt.Parse(text)
		require.ErrorIs(t, err, sockopt.ErrSyntax, text)
	}
}

func TestParseKnown(t *testing.T) {
	t.Parallel()
	options, err := sockopt.ParseKnown("[ {keepalive,false},{nodelay, true} , {sndbuf, 1000}, {recbuf,2000}, {priority, 0}, {buffer, 5} ]")
	require.NoError(t, err)
	require.Equal(t, sockopt.Options{
		KeepAlive: new(false), NoDelay: new(true), SendBuffer: new(1000), ReceiveBuffer: new(2000),
	}, options)
	for _, text := range []string{
		"true", "{keepalive, true}", "[{keepalive, yes}]", "[{sndbuf, 0}]", "[{sndbuf, true}]", "[{recbuf, 99999999999}]",
		"[{keepalive}]", "[{keepalive, true, false}]", "[{keepalive, true} {nodelay, true}]", "[{linger, 1}]", "[keepalive]",
		"[{buffer, 0}]", "[{buffer, x}]", "[{priority, -1}]",
	} {
		_, err := sockopt.ParseKnown(text)
		require.ErrorIs(t, err, sockopt.ErrSyntax, text)
	}
}

func TestOnly(t *testing.T) {
	t.Parallel()
	all := sockopt.Options{KeepAlive: new(false), NoDelay: new(false), SendBuffer: new(5), ReceiveBuffer: new(6)}
	require.Equal(t, all, all.Only([]string{"keepalive", "nodelay", "sndbuf", "recbuf", "buffer"}))
	require.Equal(t, sockopt.Options{NoDelay: all.NoDelay}, all.Only([]string{"nodelay"}))
	require.Equal(t, sockopt.Options{KeepAlive: all.KeepAlive, SendBuffer: all.SendBuffer}, all.Only([]string{"keepalive", "sndbuf"}))
}
