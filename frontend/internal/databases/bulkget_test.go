package databases_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
	"settee/pkg/docjson"
)

func TestBulkGet(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.conflicted()
	_, err := db.PutLocal(t.Context(), "_local/x", "", docjson.Body{})
	require.NoError(t, err)
	const (
		a = `{"ok":{"_id":"doc","_rev":"2-a","v":"a","_deleted":true}}`
		b = `{"ok":{"_id":"doc","_rev":"2-b","v":"b"}}`
		c = `{"ok":{"_id":"doc","_rev":"3-c","v":"c","w":"\n"}}`
	)
	failed := func(rev, reason, id, code string) string {
		return `{"error":{"rev":` + rev + `,"reason":"` + reason + `","id":` + id + `,"error":"` + code + `"}}`
	}
	for item, want := range map[string]string{
		`{"id":"doc"}`: c + `,` + b + `,` + a,
		`{"id":"doc","rev":"2-b","unknown":{"a":[]}}`:   b,
		`{"rev":"2-b","id":"d\u006fc"}`:                 b,
		`{"id":"doc","rev":"2-x"}`:                      failed(`"2-x"`, "missing", `"doc"`, "not_found"),
		`{"id":"no"}`:                                   failed(`"undefined"`, "missing", `"no"`, "not_found"),
		`{"id":"_local/x"}`:                             failed(`"undefined"`, "missing", `"_local/x"`, "not_found"),
		`{"id":"_local/x","rev":"0-1"}`:                 failed(`"0-1"`, "missing", `"_local/x"`, "not_found"),
		`{"id":"doc","rev":"2"}`:                        failed(`"2"`, "Invalid rev format", `"doc"`, "bad_request"),
		`{"id":"doc","rev":{"a":1}}`:                    failed(`{"a":1}`, "Invalid rev format", `"doc"`, "bad_request"),
		`{"id":"doc","atts_since":"1-a"}`:               failed(`"1-a"`, "`atts_since` must be a list of revisions", `"doc"`, "bad_request"),
		`{"id":"doc","rev":"2-b","atts_since":[]}`:      b,
		`{"id":"doc","rev":"2-b","atts_since":["1-r"]}`: b,
		`{"id":7}`:            failed("null", "Document id must be a string", "7", "illegal_docid"),
		`{"id":null,"rev":7}`: failed("null", "Document id must be a string", "null", "illegal_docid"),
		`{"rev":"1-a"}`:       failed("null", "document id missed", "null", "bad_request"),
		`{}`:                  failed("null", "document id missed", "null", "bad_request"),
		`"doc"`:               failed("null", "document must be a JSON object", "null", "bad_request"),
	} {
		got := n.Do(http.MethodPost, "/db/_bulk_get", ` {"docs": [`+item+` , {"id":"doc","rev":"2-b"}], "x": [1]} `).Is(t, http.StatusOK)
		require.Equal(t, "application/json", got.Header.Get("Content-Type"))
		results := decode(t, got.Body).(map[string]any)["results"].([]any)
		require.Len(t, results, 2, item)
		require.Equal(t, "doc", results[1].(map[string]any)["id"])
		text := strings.TrimPrefix(got.Body, `{"results":[`)
		id, docs, found := strings.Cut(text, `,"docs":`)
		require.True(t, found)
		require.Regexp(t, `^\{"id":.`, id)
		require.True(t, strings.HasPrefix(docs, "["+want+"]},"), "%s: %s", item, docs)
	}
	got := n.Do(http.MethodPost, "/db/_bulk_get?latest=true", `{"docs":[{"id":"doc","rev":"2-x"}]}`)
	require.Equal(t, `{"results":[{"id":"doc","docs":[`+c+`]}]}`+"\n", got.Body)
	got = n.Do(http.MethodPost, "/db/_bulk_get", `{"docs":[{"id":"_illegal"}]}`)
	require.Regexp(t, `"docs":\[\{"error":\{"rev":null,"reason":"illegal document id: .*","id":"_illegal","error":"illegal_docid"\}\}\]`, got.Body)
	require.Equal(t, `{"results":[]}`+"\n", n.Do(http.MethodPost, "/db/_bulk_get", `{"docs":[]}`).Body)
}

func TestBulkGetAsMultipart(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.attached()
	const body = `{"docs":[{"id":"doc","atts_since":["1-a"]},{"id":"doc","atts_since":["2-b"]},{"id":"doc","rev":"7-z"},{"id":"no"},{"id":1}]}`
	for accept, mediaType := range map[string]string{
		"multipart/mixed": "multipart/mixed", "multipart/related": "multipart/related", "multipart/*": "multipart/mixed",
	} {
		got := n.Do(http.MethodPost, "/db/_bulk_get", body, "Accept", accept).Is(t, http.StatusOK)
		require.Regexp(t, "^"+mediaType+`; boundary="--[0-9a-f]{32}"$`, got.Header.Get("Content-Type"))
		all := webtest.Parts(t, got.Header.Get("Content-Type"), got.Body)
		require.Len(t, all, 5)
		require.Equal(t, map[string][]string{"X-Doc-Id": {"doc"}, "X-Rev-Id": {"2-b"}}, all[0].Header)
		require.Len(t, all[0].Parts, 2)
		require.Equal(t, webtest.Gzipped(t, "new"), all[0].Parts[1].Body)
		require.Equal(t, map[string][]string{"Content-Type": {"application/json"}}, all[1].Header)
		for i, want := range []string{
			`{"rev":"7-z","error":"not_found","reason":"missing"}`,
			`{"rev":"undefined","reason":"missing","id":"no","error":"not_found"}`,
			`{"rev":null,"reason":"Document id must be a string","id":1,"error":"illegal_docid"}`,
		} {
			require.Equal(t, webtest.Part{Header: map[string][]string{"Content-Type": {`application/json; error="true"`}}, Body: want}, all[2+i])
		}
	}
	// JSON is sent if the client accepts it, with contents only if the client asked for them.
	for _, accept := range []string{"*/*", "multipart/mixed, application/json;q=0.1", "text/plain"} {
		got := n.Do(http.MethodPost, "/db/_bulk_get", body, "Accept", accept)
		require.Equal(t, "application/json", got.Header.Get("Content-Type"))
		require.Equal(t, 1, strings.Count(got.Body, `"data":"bmV3"`), "that of atts_since")
	}
	require.Empty(t, n.Do(http.MethodPost, "/db/_bulk_get", `{"docs":[]}`, "Accept", "multipart/mixed").Body)
}

func TestListRequestsThatAreRefused(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.conflicted()
	for request, want := range map[string]string{
		"_bulk_get ":                                        "bad_request: Missing request body",
		"_bulk_get {\"docs\":[\"\xff\"]}":                   "bad_request: invalid UTF-8 JSON",
		"_bulk_get {":                                       "bad_request: invalid UTF-8 JSON",
		"_bulk_get []":                                      "bad_request: Request body must be a JSON object",
		"_bulk_get {}":                                      "bad_request: Missing JSON list of 'docs'.",
		`_bulk_get {"docs":{}}`:                             "bad_request: `docs` must be a list of objects with an `id`",
		`_bulk_get {"docs":null}`:                           "bad_request: `docs` must be a list of objects with an `id`",
		`_bulk_get?rev=1-a {"docs":[]}`:                     `bad_request: "rev" query parameter is not acceptable`,
		`_bulk_get?open_revs=all {"docs":[]}`:               `bad_request: "open_revs" query parameter is not acceptable`,
		`_bulk_get?atts_since=[] {"docs":[]}`:               `bad_request: "atts_since" query parameter is not acceptable`,
		`_bulk_get?latest=yes {"docs":[]}`:                  "query_parse_error: Invalid value for boolean parameter `latest`: it must be true or false",
		"_all_docs ":                                        "bad_request: Missing request body",
		"_all_docs []":                                      "bad_request: Request body must be a JSON object",
		`_all_docs {"keys":{}}`:                             "bad_request: `keys` body member must be an array.",
		`_all_docs {"limit":"x"}`:                           "query_parse_error: Invalid value for integer parameter `limit`: it must be a whole number of at least 0",
		`_all_docs {"limit":"1"}`:                           "query_parse_error: Invalid value for integer parameter `limit`: it must be a whole number of at least 0",
		`_all_docs?group=true {}`:                           "query_parse_error: Invalid use of grouping on a map view: `group`",
		`_all_docs?group_level=1 {}`:                        "query_parse_error: Invalid use of grouping on a map view: `group_level`",
		`_all_docs?reduce=true {}`:                          "query_parse_error: Reduce is invalid for map-only views.",
		`_all_docs?stale=no {}`:                             "query_parse_error: Invalid value for `stale`: it must be ok or update_after",
		`_all_docs?update=no {}`:                            "query_parse_error: Invalid value for `update`: it must be true or false or lazy",
		`_all_docs {"skip":-1}`:                             "query_parse_error: Invalid value for integer parameter `skip`: it must be a whole number of at least 0",
		`_all_docs {"include_docs":1}`:                      "query_parse_error: Invalid value for boolean parameter `include_docs`: it must be true or false",
		`_all_docs {"keys":["a"],"startkey":"b"}`:           "query_parse_error: `keys` is incompatible with `key`, `start_key` and `end_key`",
		`_all_docs?endkey=x {}`:                             "bad_request: Invalid value for parameter `endkey`: it must be an id, as JSON",
		`_all_docs?keys=x {}`:                               "bad_request: Invalid value for parameter `keys`: it must be a list of ids, as JSON",
		`_all_docs?keys=1 {}`:                               "bad_request: `keys` parameter must be an array.",
		`_design_docs {"limit":[]}`:                         "query_parse_error: Invalid value for integer parameter `limit`: it must be a whole number of at least 0",
		`_all_docs/queries {"x":1}`:                         "bad_request: POST body must include `queries` parameter.",
		`_all_docs/queries {"queries":1}`:                   "bad_request: `queries` member must be an array.",
		`_all_docs/queries {"queries":[{},1]}`:              "query_parse_error: `queries` must be a list of objects",
		`_all_docs/queries {"queries":[{},{"limit":true}]}`: "query_parse_error: Invalid value for integer parameter `limit`: it must be a whole number of at least 0",
	} {
		target, body, _ := strings.Cut(request, " ")
		code, reason, _ := strings.Cut(want, ": ")
		webtest.Refused(t, n.Do(http.MethodPost, "/db/"+target, body), http.StatusBadRequest, code, reason)
	}
	for _, path := range []string{"_bulk_get", "_all_docs", "_design_docs/queries"} {
		got := n.Do(http.MethodPost, "/db/"+path, `{}`, "Content-Type", "text/plain")
		webtest.Refused(t, got, http.StatusUnsupportedMediaType, "bad_content_type", "Content-Type must be application/json")
		got = n.Do(http.MethodPost, "/db/"+path, strings.Repeat(" ", 8<<20+1))
		webtest.Refused(t, got, http.StatusRequestEntityTooLarge, "too_large", "the request body has more than 8388608 bytes, "+
			"which is the limit (of a list of documents; longer ones can be asked for in several requests)")
	}
	for path, allowed := range map[string]string{"_bulk_get": "POST", "_all_docs": "GET,HEAD,POST", "_all_docs/queries": "POST"} {
		got := n.Do(http.MethodPut, "/db/"+path, "")
		webtest.Refused(t, got, http.StatusMethodNotAllowed, "method_not_allowed", "Only "+allowed+" allowed")
	}
}
