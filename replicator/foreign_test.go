package replicator_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/docjson"
	"settee/replicator"
)

func TestStripDocument(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]string{
		`{"source":"https://u:p@h/db", "target":"http://h:5984/x","owner":"ann"}`:                                    `{"source":"https://h/db", "target":"http://h:5984/x","owner":"ann"}`,
		`{"source":{"url":"https://u:p@h/db","headers":{"Authorization":"x"},"auth":{"basic":{}},"own":1},"n": 1.0}`: `{"source":{"url":"https://h/db"},"n": 1.0}`,
		`{"source":{"headers":{"A":"x"}},"target":["http://u:p@h/x"]}`:                                               `{"source":{},"target":null}`,
		`{"source":{"url":1},"target":7}`:                                                                            `{"source":{},"target":null}`,
		`{"source":"u:p@h/db","target":"http://u/x:p@h/db"}`:                                                         `{"source":"*****","target":"*****"}`,
		`{"source":"http://a/b","source":"http://u:p@a/c"}`:                                                          `{"source":"http://a/c"}`,
		`{"sour\u0063e":"http://u:p@a/c","target":{"url":"http://u:p@x/","url":"http://v:q@y/z"}}`:                   `{"sour\u0063e":"http://a/c","target":{"url":"http://y/z"}}`,
		`{"proxy":"http://u:p@a:3128","source_proxy":"socks5://u:p@b:1","target_proxy":""}`:                          `{"proxy":"http://a:3128","source_proxy":"socks5://b:1","target_proxy":""}`,
		`{"query_params":{"token":"x", "n":1,"o":{"p":"q"}},"filter":"a/b"}`:                                         `{"query_params":{"token":"*****", "n":"*****","o":"*****"},"filter":"a/b"}`,
		`{"query_params":["x"]}`: `{"query_params":null}`,
		`{}`:                     `{}`,
	} {
		got, err := replicator.StripDocument([]byte(doc))
		require.NoError(t, err, doc)
		assert.Equal(t, want, string(got), doc)
	}
	_, err := replicator.StripDocument([]byte(`[]`))
	require.Error(t, err)
}

func TestOwnedBy(t *testing.T) {
	t.Parallel()
	ann := "ann"
	for doc, want := range map[string][2]bool{ // owned by ann, by the anonymous user
		`{"owner":"ann"}`:               {true, false},
		`{"owner":"bob","owner":"ann"}`: {true, false},
		`{"owner":"Ann"}`:               {false, false},
		`{"Owner":"ann"}`:               {false, false},
		`{"owner":null}`:                {false, true},
		`{"owner":["ann"]}`:             {false, false},
		`{}`:                            {false, false},
		`[]`:                            {false, false},
	} {
		assert.Equal(t, want, [2]bool{replicator.OwnedBy([]byte(doc), &ann), replicator.OwnedBy([]byte(doc), nil)}, doc)
	}
}

func TestCheckUserCtx(t *testing.T) {
	t.Parallel()
	ann := "ann"
	check := func(doc string, user *string, roles ...string) error {
		return replicator.ReadDraft(docjson.Must(doc)).CheckUserCtx(user, roles)
	}
	for doc, reason := range map[string]string{
		`{}`:                          "",
		`{"user_ctx":{"name":"ann"}}`: "",
		`{"user_ctx":{"name":"ann","roles":["a"]}}`:             "",
		`{"user_ctx":{"name":"ann","roles":["a","_admin"]}}`:    "`user_ctx.roles` can only have roles of your own",
		`{"user_ctx":{"name":"bob"}}`:                           "`user_ctx.name` can only be your own name",
		`{"user_ctx":{"name":"ann"},"user_ctx":{"name":"bob"}}`: "`user_ctx.name` can only be your own name",
		`{"user_ctx":{}}`: "`user_ctx.name` can only be your own name",
	} {
		err := check(doc, &ann, "a", "b")
		if reason == "" {
			require.NoError(t, err, doc)
		} else {
			require.EqualError(t, err, reason, doc)
		}
	}
	require.NoError(t, check(`{"user_ctx":{}}`, nil))
	require.Error(t, check(`{"user_ctx":7}`, &ann))
}
