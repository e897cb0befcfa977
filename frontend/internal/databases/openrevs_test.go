package databases_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
)

func TestOpenRevs(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.conflicted()
	const (
		a       = `{"ok":{"_id":"doc","_rev":"2-a","v":"a","_deleted":true}}`
		b       = `{"ok":{"_id":"doc","_rev":"2-b","v":"b"}}`
		c       = `{"ok":{"_id":"doc","_rev":"3-c","v":"c","w":"\n"}}`
		history = `{"ok":{"_id":"doc","_rev":"2-b","v":"b","_revisions":{"start":2,"ids":["b","r"]}}}`
	)
	for query, want := range map[string]string{
		"open_revs=all": `[` + c + `,` + b + `,` + a + `]`,
		// As in CouchDB a leaf has no members about the document as a whole.
		"open_revs=all&meta=true":                 `[` + c + `,` + b + `,` + a + `]`,
		`open_revs=["2-b","9-z"]`:                 `[` + b + `,{"missing":"9-z"}]`,
		`open_revs=["2-b"]&revs=true`:             `[` + history + `]`,
		`open_revs=["2-x","1-r","3-c"]`:           `[{"missing":"2-x"},{"missing":"1-r"},` + c + `]`,
		`open_revs=["2-x","3-c"]&latest=true`:     `[` + c + `]`,
		`open_revs=["1-r"]&latest=true`:           `[` + c + `,` + b + `,` + a + `]`,
		`open_revs=["9-z"]&latest=true&rev=bad-1`: ``,
	} {
		target := "/db/doc?" + escapedQuery(t, query)
		got := n.Do(http.MethodGet, target, "", "Accept", "application/json")
		if want == "" {
			require.Equal(t, http.StatusBadRequest, got.Status)
			continue
		}
		require.Equal(t, http.StatusOK, got.Status, query)
		require.JSONEq(t, want, got.Body, query)
		require.Equal(t, webtest.Keys(t, want), webtest.Keys(t, got.Body))
		require.Equal(t, "application/json", got.Header.Get("Content-Type"))
		require.Empty(t, got.Header.Get("ETag"))
		require.Equal(t, http.StatusOK, n.Do(http.MethodHead, target, "", "Accept", "application/json").Status)
	}
	// A list without revisions asks for the document.
	require.Equal(t, `{"_id":"doc","_rev":"3-c","v":"c","w":"\n"}`+"\n", n.Get("/db/doc?open_revs=%5B%5D").Body)
	got := n.Do(http.MethodGet, "/db/no?open_revs=%5B%221-a%22%5D", "", "Accept", "application/json")
	require.Equal(t, `[{"missing":"1-a"}]`+"\n", got.Body)
}

// escapedQuery encodes a query that is written plainly.
func escapedQuery(t *testing.T, query string) string {
	t.Helper()
	values, err := url.ParseQuery(query)
	require.NoError(t, err)
	return values.Encode()
}

func TestOpenRevsAsMultipart(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.attached()
	json := map[string][]string{"Content-Type": {"application/json"}}
	failed := map[string][]string{"Content-Type": {`application/json; error="true"`}}

	got := n.Do(http.MethodGet, "/db/doc?"+escapedQuery(t, `open_revs=["2-b","9-z","1-a"]&latest=true&atts_since=["1-a"]`), "").Is(t, http.StatusOK)
	all := webtest.Parts(t, got.Header.Get("Content-Type"), got.Body)
	require.Len(t, all, 2) // the latest of 1-a is 2-b, which has been sent
	require.Len(t, all[0].Parts, 2)
	require.Equal(t, webtest.Gzipped(t, "new"), all[0].Parts[1].Body)
	require.Equal(t, webtest.Part{Header: failed, Body: `{"missing":"9-z"}`}, all[1])

	// As in CouchDB contents are sent without attachments=true, except those that the client
	// has.
	got = n.Get("/db/doc?open_revs=all")
	require.Len(t, webtest.Parts(t, got.Header.Get("Content-Type"), got.Body)[0].Parts, 3)
	got = n.Get("/db/doc?" + escapedQuery(t, `open_revs=all&atts_since=["2-b"]`))
	all = webtest.Parts(t, got.Header.Get("Content-Type"), got.Body)
	require.Len(t, all, 1)
	require.Equal(t, json, all[0].Header)
	require.Empty(t, all[0].Parts)
	require.Contains(t, all[0].Body, `"stub":true`)
	head := n.Do(http.MethodHead, "/db/doc?open_revs=all", "")
	require.Equal(t, webtest.Answer{Status: http.StatusOK}, webtest.Answer{Status: head.Status, Body: head.Body})
}

func TestManyLeaves(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.NewDatabase("db")
	body := `{"text":"` + strings.Repeat("x", 1_500_000) + `"}` // more than the store reads at once
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		n.replicated(db, "doc", body, false, []string{id})
	}
	got := n.Do(http.MethodGet, "/db/doc?open_revs=all", "", "Accept", "application/json")
	leaves := decode(t, got.Body).([]any)
	require.Len(t, leaves, 5)
	require.Equal(t, "1-e", leaves[0].(map[string]any)["ok"].(map[string]any)["_rev"])
}
