package couch_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch"
)

// distant makes connections look as if they led to another network.
func distant(t testing.TB) func(*couch.Config) {
	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return distantConn{conn}, err
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return func(c *couch.Config) { c.Transport = transport }
}

type distantConn struct{ net.Conn }

func (distantConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80} }

// asked records the requests to a server.
type asked struct {
	mu       sync.Mutex
	requests []string // path and encoding
}

func (a *asked) add(text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests = append(a.requests, text)
}

func (a *asked) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.requests
	a.requests = nil
	return all
}

// unpacking is a server that accepts compressed requests, if allowed, and refuses nothing else.
func unpacking(t testing.TB, server string, refuse int) (url string, seen *asked) {
	t.Helper()
	seen = &asked{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Server", server)
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, dbInfo)
			return
		}
		encoding := r.Header.Get("Content-Encoding")
		seen.add(strings.TrimPrefix(r.URL.Path, "/db/") + " " + encoding)
		body := io.Reader(r.Body)
		if encoding == "gzip" {
			if refuse != 0 {
				http.Error(w, `{"error":"bad_request","reason":"invalid_json"}`, refuse)
				return
			}
			var err error
			if body, err = gzip.NewReader(r.Body); err != nil {
				http.Error(w, err.Error(), http.StatusTeapot)
				return
			}
		}
		var docs struct {
			Docs []struct{ Bad bool }
		}
		data, err := io.ReadAll(body)
		if err != nil || json.Unmarshal(data, &docs) != nil {
			http.Error(w, "what is this", http.StatusTeapot)
			return
		}
		if len(docs.Docs) > 0 && docs.Docs[0].Bad {
			http.Error(w, `{"error":"bad_request","reason":"bad"}`, http.StatusBadRequest)
			return
		}
		if r.URL.Path == "/db/_revs_diff" {
			_, _ = io.WriteString(w, `{}`)
			return
		}
		_, _ = io.WriteString(w, `[]`)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/db", seen
}

func TestCompressedRequests(t *testing.T) {
	t.Parallel()
	large := document(t, `{"_id":"x","v":"`+strings.Repeat("words ", 1000)+`"}`)
	small := document(t, `{"_id":"x"}`)
	var revs []couch.DocRevs
	for i := range 200 {
		revs = append(revs, couch.DocRevs{ID: fmt.Sprintf("doc-%05d", i), Revs: []string{"1-0123456789abcdef0123456789abcdef"}})
	}
	write := func(db *couch.Database, doc couch.Document) error {
		_, err := db.BulkDocs(t.Context(), []couch.Document{doc})
		return err
	}
	known := func(db *couch.Database) {
		_, err := db.Info(t.Context())
		require.NoError(t, err)
	}
	for _, server := range []string{"CouchDB/3.5.0 (Erlang OTP/26)", "settee"} {
		url, seen := unpacking(t, server, 0)
		db := open(t, url, distant(t))
		require.NoError(t, write(db, large)) // what the server accepts is not known yet
		require.NoError(t, write(db, large))
		require.NoError(t, write(db, small))
		missing, err := db.RevsDiff(t.Context(), revs)
		require.NoError(t, err)
		require.Equal(t, make([]couch.Missing, len(revs)), missing)
		_, err = db.RevsDiff(t.Context(), revs[:2])
		require.NoError(t, err)
		require.Equal(t, []string{"_bulk_docs ", "_bulk_docs gzip", "_bulk_docs ", "_revs_diff gzip", "_revs_diff "}, seen.take())
		// A bad document does not change the encoding of later requests.
		bad := document(t, `{"_id":"x","bad":true,"v":"`+strings.Repeat("words ", 1000)+`"}`)
		require.ErrorContains(t, write(db, bad), "400 bad_request: bad")
		require.NoError(t, write(db, large))
		require.Equal(t, []string{"_bulk_docs gzip", "_bulk_docs ", "_bulk_docs gzip"}, seen.take())
	}
	for name, plain := range map[string]func(t *testing.T) (string, []func(*couch.Config)){
		"a server that is not known":   func(*testing.T) (string, []func(*couch.Config)) { return "nginx", []func(*couch.Config){distant(t)} },
		"a server on the same machine": func(*testing.T) (string, []func(*couch.Config)) { return "CouchDB/3.5.0", nil },
		"told not to": func(*testing.T) (string, []func(*couch.Config)) {
			return "CouchDB/3.5.0", []func(*couch.Config){distant(t), func(c *couch.Config) { c.NoCompression = true }}
		},
	} {
		server, edit := plain(t)
		url, seen := unpacking(t, server, 0)
		db := open(t, url, edit...)
		known(db)
		require.NoError(t, write(db, large), name)
		require.Equal(t, []string{"_bulk_docs "}, seen.take(), name)
	}
	for _, status := range []int{http.StatusUnsupportedMediaType, http.StatusBadRequest} {
		url, seen := unpacking(t, "CouchDB/3.5.0", status)
		db := open(t, url, distant(t))
		known(db)
		require.NoError(t, write(db, large))
		require.NoError(t, write(db, large))
		require.Equal(t, []string{"_bulk_docs gzip", "_bulk_docs ", "_bulk_docs "}, seen.take())
	}
}

// A job's own Accept-Encoding would leave answers compressed.
func TestHeadersDoNotAskForEncodings(t *testing.T) {
	t.Parallel()
	db := serving(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "gzip" {
			http.Error(w, "it asks for "+r.Header.Get("Accept-Encoding"), http.StatusTeapot)
			return
		}
		_, _ = io.WriteString(w, dbInfo)
	}, noRetries, func(c *couch.Config) { c.Header = http.Header{"accept-encoding": {"br"}} })
	_, err := db.Info(t.Context())
	require.NoError(t, err)
}
