package databases_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
	"settee/pkg/docstore"
)

const (
	hexF = "ffffffffffffffffffffffffffffffff"
	hexD = "d0df861eb528e79690cd2ff3c4d394f3"
)

func TestRevsDiff(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.NewDatabase("wire")
	webtest.Replicate(t, db, webtest.Leaf("plain", false, `{}`, 2, hexF, "aaaa"), webtest.Leaf("plain", false, `{}`, 2, hexD, "aaaa"))
	webtest.Write(t, db, webtest.Doc("num", `{}`))
	e := webtest.Recorded(t, 46)
	got := n.Send(e)
	require.Equal(t, e.Answer.Status, got.Status)
	require.JSONEq(t, e.Answer.Body, got.Body)
	require.Contains(t, got.Body, `"plain":{"missing":["2-dddd","3-cccc"],"possible_ancestors":["2-`+hexF+`","2-`+hexD+`"]}`)
	require.Equal(t, e.Answer.Header.Get("Content-Type"), got.Header.Get("Content-Type"))
	e = webtest.Recorded(t, 48)
	n.RequireSame(e, n.Send(e), webtest.SameText)

	// CouchDB answers some of these with 500, up to 3.5.3.
	for body, reason := range map[string]string{
		webtest.Recorded(t, 47).Body:  "Invalid revisions, must be a list",
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
			webtest.Refused(t, n.Do(http.MethodPost, target, body), http.StatusBadRequest, "bad_request", reason)
		}
	}
	for body, want := range map[string]string{
		`{}`:                                    `{}`,
		`{"a":["1-b","1-a","1-b"]}`:             `{"a":{"missing":["1-a","1-b"]}}`,
		`{"plain":["1-aaaa","2-` + hexF + `"]}`: `{}`,
		`{"_local/x":["1-a"],"":["1-a"]}`:       `{"_local/x":{"missing":["1-a"]},"":{"missing":["1-a"]}}`,
		`{"ü\"\n":["1-a"]}`:                     `{"ü\"\n":{"missing":["1-a"]}}`,
	} {
		got := n.Do(http.MethodPost, "/wire/_revs_diff", body)
		require.Equal(t, want+"\n", got.Body, body)
	}
	require.Equal(t, http.StatusMethodNotAllowed, n.Get("/wire/_revs_diff").Status)
	require.Equal(t, http.StatusNotFound, n.Do(http.MethodPost, "/nope/_revs_diff", `{}`).Status)
	require.Equal(t, http.StatusUnsupportedMediaType,
		n.Do(http.MethodPost, "/wire/_missing_revs", `{}`, "Content-Type", "text/plain").Status)
}

func TestRevsDiffOfACompressedBody(t *testing.T) {
	t.Parallel()
	n := start(t, "chttpd/max_http_request_size=3000")
	n.NewDatabase("db")
	query := `{"a":["1-a"],"b":["1-b"]` + strings.Repeat(" ", 2000) + "}"
	got := n.Do(http.MethodPost, "/db/_revs_diff", webtest.Gzipped(t, query), "Content-Encoding", "gzip").Is(t, http.StatusOK)
	require.JSONEq(t, `{"a":{"missing":["1-a"]},"b":{"missing":["1-b"]}}`, got.Body)
	webtest.Refused(t, n.Do(http.MethodPost, "/db/_revs_diff", webtest.Gzipped(t, query+strings.Repeat(" ", 1000)), "Content-Encoding", "gzip"),
		http.StatusRequestEntityTooLarge, "too_large", "the request body has more than 3000 bytes, which is the limit here: ask in several requests")
	webtest.Refused(t, n.Do(http.MethodPost, "/db/_revs_diff", webtest.Gzipped(t, query)[:20], "Content-Encoding", "gzip"),
		http.StatusBadRequest, "bad_request", "the request body is not compressed as its Content-Encoding says")
	webtest.Refused(t, n.Do(http.MethodPost, "/db/_revs_diff", query, "Content-Encoding", "br"),
		http.StatusUnsupportedMediaType, "bad_content_type", "Content-Encoding must be gzip or identity")
}

func TestRevsDiffOfMany(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.NewDatabase("db")
	var edits []docstore.Edit
	var asked, missing []string
	for i := range 2_000 {
		id := fmt.Sprintf("doc%d", i)
		if i%2 == 0 {
			edits = append(edits, webtest.Leaf(id, false, `{}`, 1, "aa"))
		} else {
			missing = append(missing, fmt.Sprintf("%q:{\"missing\":[\"1-aa\"]}", id))
		}
		asked = append(asked, fmt.Sprintf("%q:[\"1-aa\"]", id))
	}
	webtest.Replicate(t, db, edits...)
	got := n.Do(http.MethodPost, "/db/_revs_diff", "{"+strings.Join(asked, ",")+"}")
	require.Equal(t, "{"+strings.Join(missing, ",")+"}\n", got.Body)

	large := n.Do(http.MethodPost, "/db/_revs_diff", `{"a":["1-`+strings.Repeat("a", 16<<20)+`"]}`)
	webtest.Refused(t, large, http.StatusRequestEntityTooLarge, "too_large",
		"the request body has more than 16777216 bytes, which is the limit here: ask in several requests")
}
