package frontend_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
)

// As in CouchDB, every body that is JSON may be compressed. The limits hold for what it becomes.
func TestCompressedBodies(t *testing.T) {
	t.Parallel()
	n := start(t, "chttpd/max_http_request_size=100000", "settee/max_replicate_body=100000")
	n.NewUser("ann")
	n.NewDatabase("db")
	n.Do(http.MethodPut, "/db/a", `{}`).Is(t, http.StatusCreated)
	const keys, queries = `{"keys":["a"]}`, `{"queries":[{"keys":["a"]}]}`
	for _, test := range []struct{ method, target, body string }{
		{http.MethodPost, "/db/_bulk_get", `{"docs":[{"id":"a"}]}`},
		{http.MethodPost, "/db/_all_docs", keys},
		{http.MethodPost, "/db/_all_docs/queries", queries},
		{http.MethodPost, "/db/_design_docs", keys},
		{http.MethodPost, "/db/_design_docs/queries", queries},
		{http.MethodPost, "/db/_local_docs", keys},
		{http.MethodPost, "/db/_local_docs/queries", queries},
		{http.MethodPost, "/db/_changes?filter=_doc_ids", `{"doc_ids":["a"]}`},
		{http.MethodPost, "/db/_revs_diff", `{"a":["1-x"]}`},
		{http.MethodPost, "/db/_missing_revs", `{"a":["1-x"]}`},
		{http.MethodPost, "/db/_bulk_docs", `{"docs":[{"_id":"b","_rev":"1-x"}],"new_edits":false}`},
		{http.MethodPost, "/db", `{}`},
		{http.MethodPut, "/db/d?new_edits=false", `{"_rev":"1-x"}`},
		{http.MethodPut, "/db/_security", `{}`},
		{http.MethodPut, "/db/_revs_limit", `99`},
		{http.MethodPost, "/_dbs_info", `{"keys":["none"]}`},
		{http.MethodPost, "/_session", `{"name":"ann","password":"ann-` + webtest.Secret + `"}`},
		{http.MethodPost, "/_scheduler/check", definition("")},
		{http.MethodPost, "/_replicate", definition(`"continuous":true`)},
		{http.MethodPut, "/_node/_local/_config/log/level", `"info"`},
	} {
		t.Run(test.method+" "+test.target, func(t *testing.T) {
			t.Parallel()
			ask := func(body string, headers ...string) webtest.Answer {
				return n.Do(test.method, test.target, body, append([]string{"Content-Type", "application/json"}, headers...)...)
			}
			gzip := []string{"Content-Encoding", "gzip"}
			whole := webtest.Gzipped(t, test.body)
			plain, compressed := ask(test.body), ask(whole, gzip...)
			require.Less(t, plain.Status, 300, "%s", plain.Body)
			require.Equal(t, plain.Status, compressed.Status, "%s", compressed.Body)
			require.Len(t, compressed.Body, len(plain.Body))

			const broken = "the request body is not compressed as its Content-Encoding says"
			for _, body := range []string{test.body, whole[:len(whole)-1], whole[:8], whole + "more"} {
				webtest.Refused(t, ask(body, gzip...), http.StatusBadRequest, "bad_request", broken)
			}
			webtest.Refused(t, ask(test.body, "Content-Encoding", "deflate"), http.StatusUnsupportedMediaType, "bad_content_type",
				"Content-Encoding must be gzip or identity")
			large := ask(webtest.Gzipped(t, test.body+strings.Repeat(" ", 100_001)), gzip...)
			require.Equal(t, http.StatusRequestEntityTooLarge, large.Status, "%s", large.Body)
			require.Contains(t, large.Body, "which is the limit")
		})
	}
}
