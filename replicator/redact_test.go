package replicator_test

import (
	"strings"
	"testing"

	"settee/replicator"

	"github.com/stretchr/testify/require"
)

func TestStripCredentials(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                    "",
		"no URL at all: a@b":  "no URL at all: a@b",
		"http://h/db":         "http://h/db",
		"http://h:5984/db":    "http://h:5984/db",
		"http://[::1]:5984/@": "http://[::1]:5984/@",
		"http://[::1]/@":      "http://[::1]/@",
		"could not open http://adm:pw@h:5984/db/: db_not_found": "could not open http://adm:*****@h:5984/db/: db_not_found",
		`Get "https://adm:pw@h/db": dial tcp`:                   `Get "https://adm:*****@h/db": dial tcp`,
		"http://adm:*****@h/":                                   "http://adm:*****@h/",
		"http://token@h/":                                       "http://*****@h/",
		"http://:pw@h/":                                         "http://:*****@h/",
		"http://adm:@h/":                                        "http://adm:*****@h/",
		"http://adm:p:w@h/":                                     "http://adm:*****@h/",
		"http://adm:p@w@h/":                                     "http://adm:*****@h/",
		"http://adm:p/w@h/":                                     "http://adm:*****@h/",
		"http://adm:p?w@h/ and http://x:y@z":                    "http://adm:*****@h/ and http://x:*****@z",
		"http://h:5984/db/user@example.com":                     "http://h:5984/db/user@example.com",
		"http://h/db?to=http://a:b@c":                           "http://h/db?to=http://a:*****@c",
		"socks5://a:b@c https://d:e@f/g@h":                      "socks5://a:*****@c https://d:*****@f/g@h",
		"{http_request_failed,\"GET\",\"http://u:p@127.0.0.1:1/wire/\"}": "{http_request_failed,\"GET\",\"http://u:*****@127.0.0.1:1/wire/\"}",
		"<http://u:p@h> `http://u:p@h`":                                  "<http://u:*****@h> `http://u:*****@h`",
		"://":                                                            "://",
		"://u:p@":                                                        "://u:*****@",
	} {
		require.Equal(t, want, replicator.StripCredentials(text), text)
		require.Equal(t, want, replicator.StripCredentials(want), "twice is as good as once")
	}
}

// Error texts may quote what a source sent, which may be long and of any form.
func TestStripCredentialsOfLongTexts(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"://", "://u:p@", "://u:p/", "a://b@c ", "http://u:p"} {
		text := strings.Repeat(part, 100_000)
		once := replicator.StripCredentials(text)
		require.Equal(t, once, replicator.StripCredentials(once))
	}
}

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
