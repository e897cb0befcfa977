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
	"sync/atomic"
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

// asked is what a server was asked for.
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

// unpacking is a server that takes compressed requests, if it may, and refuses nothing else.
func unpacking(t testing.TB, server string, refuse int) (url string, seen *asked) {
	t.Helper()
	seen = &asked{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Server", server)
		if r.Method == http.MethodGet {
			sayInfo(w, r)
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
		require.NoError(t, write(db, large)) // it is not known yet what it takes
		require.NoError(t, write(db, large))
		require.NoError(t, write(db, small))
		missing, err := db.RevsDiff(t.Context(), revs)
		require.NoError(t, err)
		require.Empty(t, missing)
		_, err = db.RevsDiff(t.Context(), revs[:2])
		require.NoError(t, err)
		require.Equal(t, []string{"_bulk_docs ", "_bulk_docs gzip", "_bulk_docs ", "_revs_diff gzip", "_revs_diff "}, seen.take())
		// A bad document is no reason to send the next one otherwise.
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

// What a job's own headers say of encodings would leave answers compressed.
func TestHeadersDoNotAskForEncodings(t *testing.T) {
	t.Parallel()
	db := serving(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "gzip" {
			http.Error(w, "it asks for "+r.Header.Get("Accept-Encoding"), http.StatusTeapot)
			return
		}
		sayInfo(w, r)
	}, noRetries, func(c *couch.Config) { c.Header = http.Header{"accept-encoding": {"br"}} })
	_, err := db.Info(t.Context())
	require.NoError(t, err)
}

// BenchmarkCompression says up to which speed of a network it takes less time to compress a batch of
// documents than to send what that saves.
func BenchmarkCompression(b *testing.B) {
	docs := make([]couch.Document, 500)
	for i := range docs {
		body := fmt.Sprintf(`{"_id":"film-%08d","_rev":"1-%032x","_revisions":{"start":1,"ids":["%032x"]},"year":%d,"text":"`, i, i*7919, i*7919, 1900+i%120)
		for j := range 100 {
			body += fmt.Sprintf("word%d and ", (i*31+j*j)%977)
		}
		docs[i] = document(b, body+`"}`)
	}
	var plain, packed atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Server", "CouchDB/3.5.0")
		n, _ := io.Copy(io.Discard, r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			packed.Store(n)
		} else {
			plain.Store(n)
		}
		_, _ = io.WriteString(w, `[]`)
	}))
	b.Cleanup(server.Close)
	var took [2]float64
	for i, compress := range []bool{false, true} {
		db := open(b, server.URL+"/db", distant(b), func(c *couch.Config) { c.NoCompression = !compress })
		b.Run(fmt.Sprintf("compressed=%v", compress), func(b *testing.B) {
			for b.Loop() {
				if _, err := db.BulkDocs(b.Context(), docs); err != nil {
					b.Fatal(err)
				}
			}
			took[i] = b.Elapsed().Seconds() / float64(b.N)
			if compress && took[0] > 0 {
				saved := float64(plain.Load() - packed.Load())
				b.ReportMetric(float64(packed.Load())/float64(plain.Load()), "packed/plain")
				b.ReportMetric(8*saved/1e6/(took[1]-took[0]), "Mbit/s-break-even")
			}
		})
	}
}
