package couch_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch"
)

// lister answers _all_dbs for a server with databases of some names. A server that does not know a parameter ignores it.
func lister(names []string, knowsStart, knowsLimit bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var start string
		list := slices.Clone(names)
		if text := r.URL.Query().Get("startkey"); text != "" && knowsStart {
			_ = json.Unmarshal([]byte(text), &start)
			list = slices.DeleteFunc(list, func(name string) bool { return name < start })
		}
		if limit, err := strconv.Atoi(r.URL.Query().Get("limit")); err == nil && knowsLimit {
			list = list[:min(limit, len(list))]
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(list)
	}
}

// pages reads all pages of a server's databases.
func pages(t *testing.T, s *couch.Server) (names []string, n int) {
	t.Helper()
	for after, last := "", false; !last; n++ {
		page, err := s.Databases(t.Context(), after)
		require.NoError(t, err)
		require.Less(t, n, 10, "there is an end")
		names, last = append(names, page.Names...), page.Last
		if len(page.Names) > 0 {
			after = page.Names[len(page.Names)-1]
		}
	}
	return names, n
}

func TestDatabasesInPages(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range 2500 {
		many = append(many, fmt.Sprintf("db-%05d", i))
	}
	for _, test := range []struct {
		names                  []string
		knowsStart, knowsLimit bool
		pages                  int
	}{
		{[]string{}, true, true, 1},
		{[]string{"a", "a/b", "a+b"}, true, true, 1},
		{many, true, true, 3},
		{many[:1001], true, true, 2},
		{many[:1000], true, true, 1},
		{many, false, false, 1},
		{many, true, false, 1},
	} {
		s := answering(t, lister(test.names, test.knowsStart, test.knowsLimit))
		names, n := pages(t, s)
		slices.Sort(test.names)
		require.ElementsMatch(t, test.names, names)
		require.True(t, slices.IsSorted(names))
		require.Equal(t, test.pages, n)
	}
}

func TestExists(t *testing.T) {
	t.Parallel()
	s := answering(t, func(w http.ResponseWriter, r *http.Request) {
		status, body := http.StatusOK, `{"db_name":"is"}`
		switch r.URL.EscapedPath() {
		case "/not":
			status, body = http.StatusNotFound, `{"error":"not_found","reason":"Database does not exist."}`
		case "/a%2Fb":
			status, body = http.StatusNotFound, `{"error":"not_found","reason":"no_db_file"}`
		case "/proxy":
			status, body = http.StatusNotFound, `{"error":"gone"}`
		case "/forbidden":
			status, body = http.StatusForbidden, `{"error":"forbidden","reason":"no"}`
		case "/list":
			body = `[]`
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	})
	for name, want := range map[string]bool{"is": true, "not": false, "a/b": false} {
		is, err := s.Exists(t.Context(), name)
		require.NoError(t, err, name)
		require.Equal(t, want, is, name)
	}
	for _, name := range []string{"proxy", "forbidden", "list"} {
		_, err := s.Exists(t.Context(), name)
		require.Error(t, err, name)
	}
	require.NoError(t, s.Delete(t.Context(), "not"))
	require.Error(t, s.Delete(t.Context(), "forbidden"))
}
