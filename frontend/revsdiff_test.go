package frontend_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/docstore"
)

const (
	hexF = "ffffffffffffffffffffffffffffffff"
	hexD = "d0df861eb528e79690cd2ff3c4d394f3"
)

func TestRevsDiff(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.newDatabase("wire")
	replicate(t, db, leaf("plain", false, `{}`, 2, hexF, "aaaa"), leaf("plain", false, `{}`, 2, hexD, "aaaa"))
	write(t, db, doc("num", `{}`))
	e := recorded(t, 46)
	got := n.send(e)
	require.Equal(t, e.answer.status, got.status)
	require.JSONEq(t, e.answer.body, got.body)
	require.Contains(t, got.body, `"plain":{"missing":["2-dddd","3-cccc"],"possible_ancestors":["2-`+hexF+`","2-`+hexD+`"]}`)
	require.Equal(t, e.answer.header.Get("Content-Type"), got.header.Get("Content-Type"))
	e = recorded(t, 48)
	n.requireSame(e, n.send(e), sameText)

	// CouchDB answers some of these with 500, up to 3.5.3.
	for body, reason := range map[string]string{
		recorded(t, 47).body:          "Invalid revisions, must be a list",
		`{"a": null}`:                 "Invalid revisions, must be a list",
		`{"a": {}}`:                   "Invalid revisions, must be a list",
		`{"a": [], "_deleted": true}`: "Invalid revisions, must be a list",
		`{"a": ["1-a", 1]}`:           "Invalid rev format",
		`{"a": [null]}`:               "Invalid rev format",
		`{"a": [], "b": ["x"]}`:       "Invalid rev format",
		`["a"]`:                       "Request body must be a JSON object",
		`{"a": ["1-a"]`:               "invalid UTF-8 JSON",
		"":                            "invalid UTF-8 JSON",
	} {
		for _, target := range []string{"/wire/_revs_diff", "/wire/_missing_revs"} {
			refused(t, n.do(http.MethodPost, target, body), http.StatusBadRequest, "bad_request", reason)
		}
	}
	for body, want := range map[string]string{
		`{}`:                                    `{}`,
		`{"a":["1-b","1-a","1-b"]}`:             `{"a":{"missing":["1-a","1-b"]}}`,
		`{"plain":["1-aaaa","2-` + hexF + `"]}`: `{}`,
		`{"_local/x":["1-a"],"":["1-a"]}`:       `{"_local/x":{"missing":["1-a"]},"":{"missing":["1-a"]}}`,
		`{"ü\"\n":["1-a"]}`:                     `{"ü\"\n":{"missing":["1-a"]}}`,
	} {
		got := n.do(http.MethodPost, "/wire/_revs_diff", body)
		require.Equal(t, want+"\n", got.body, body)
	}
	require.Equal(t, http.StatusMethodNotAllowed, n.get("/wire/_revs_diff").status)
	require.Equal(t, http.StatusNotFound, n.do(http.MethodPost, "/nope/_revs_diff", `{}`).status)
	require.Equal(t, http.StatusUnsupportedMediaType,
		n.do(http.MethodPost, "/wire/_missing_revs", `{}`, "Content-Type", "text/plain").status)
}

func TestRevsDiffOfACompressedBody(t *testing.T) {
	t.Parallel()
	n := start(t, "chttpd/max_http_request_size=3000")
	n.newDatabase("db")
	query := `{"a":["1-a"],"b":["1-b"]` + strings.Repeat(" ", 2000) + "}"
	got := n.do(http.MethodPost, "/db/_revs_diff", gzipped(t, query), "Content-Encoding", "gzip").is(t, http.StatusOK)
	require.JSONEq(t, `{"a":{"missing":["1-a"]},"b":{"missing":["1-b"]}}`, got.body)
	refused(t, n.do(http.MethodPost, "/db/_revs_diff", gzipped(t, query+strings.Repeat(" ", 1000)), "Content-Encoding", "gzip"),
		http.StatusRequestEntityTooLarge, "too_large", "the request body has more than 3000 bytes, which is the limit here: ask in several requests")
	refused(t, n.do(http.MethodPost, "/db/_revs_diff", gzipped(t, query)[:20], "Content-Encoding", "gzip"),
		http.StatusBadRequest, "bad_request", "the request body is not compressed as its Content-Encoding says")
	refused(t, n.do(http.MethodPost, "/db/_revs_diff", query, "Content-Encoding", "br"),
		http.StatusUnsupportedMediaType, "bad_content_type", "Content-Encoding must be gzip or identity")
}

func TestRevsDiffOfMany(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.newDatabase("db")
	var edits []docstore.Edit
	var asked, missing []string
	for i := range 2_000 {
		id := fmt.Sprintf("doc%d", i)
		if i%2 == 0 {
			edits = append(edits, leaf(id, false, `{}`, 1, "aa"))
		} else {
			missing = append(missing, fmt.Sprintf("%q:{\"missing\":[\"1-aa\"]}", id))
		}
		asked = append(asked, fmt.Sprintf("%q:[\"1-aa\"]", id))
	}
	replicate(t, db, edits...)
	got := n.do(http.MethodPost, "/db/_revs_diff", "{"+strings.Join(asked, ",")+"}")
	require.Equal(t, "{"+strings.Join(missing, ",")+"}\n", got.body)

	large := n.do(http.MethodPost, "/db/_revs_diff", `{"a":["1-`+strings.Repeat("a", 16<<20)+`"]}`)
	refused(t, large, http.StatusRequestEntityTooLarge, "too_large",
		"the request body has more than 16777216 bytes, which is the limit here: ask in several requests")
}
