package couch_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch"
	"settee/pkg/couch/couchtest"
)

// answer returns a response whose body ends with the connection.
func answer(contentType, body string) []byte {
	return []byte("HTTP/1.1 200 OK\r\nContent-Type: " + contentType + "\r\nConnection: close\r\n\r\n" + body)
}

// saying opens a database that gives this answer to its first request.
func saying(t *testing.T, contentType, body string, edit ...func(*couch.Config)) *couch.Database {
	t.Helper()
	return open(t, couchtest.ReplayBytes(t, answer(contentType, body)).URL+"/db", append(edit, noRetries)...)
}

func serving(t *testing.T, handler http.HandlerFunc, edit ...func(*couch.Config)) *couch.Database {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return open(t, server.URL+"/db", edit...)
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for _, spoil := range []func(*couch.Config){
		func(c *couch.Config) { c.URL = "" },
		func(c *couch.Config) { c.URL = "db" },
		func(c *couch.Config) { c.URL = "ftp://host/db" },
		func(c *couch.Config) { c.URL = "http://" },
		func(c *couch.Config) { c.URL = "http:///db" },
		func(c *couch.Config) { c.URL = "http://user:secret@host" },
		func(c *couch.Config) { c.URL = "http://user:secret@host/db" },
		func(c *couch.Config) { c.URL = "http://host/db?secret=1" },
		func(c *couch.Config) { c.URL = "http://host/db#secret" },
		func(c *couch.Config) { c.URL = "http://ho%zzst/secret" },
		func(c *couch.Config) { c.ConnectionTimeout = 0 },
		func(c *couch.Config) { c.MaxConnections = -1 },
		func(c *couch.Config) { c.Proxy = "http://user:secret@%zz/" },
		func(c *couch.Config) { c.Proxy = "ftp://user:secret@proxy/" },
	} {
		cfg := couch.DefaultConfig()
		cfg.URL = "http://host/db"
		spoil(&cfg)
		_, err := couch.Open(cfg)
		require.Error(t, err, cfg.URL+cfg.Proxy)
		require.NotContains(t, err.Error(), "secret")
	}
	db := open(t, "http://host:5984/prefix/a%2Fb/")
	require.Equal(t, "http://host:5984/prefix/a%2Fb", db.URL())
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	var got http.Header
	var host string
	db := serving(t, func(w http.ResponseWriter, r *http.Request) {
		got, host = r.Header, r.Host
		_, _ = io.WriteString(w, dbInfo)
	}, func(c *couch.Config) {
		c.Username, c.Password, c.UserAgent = "us:er", "pa ss", "agent/1"
		c.Header = http.Header{"X-Own": {"1", "2"}, "Host": {"other.example"}, "x-lower": {"3"}}
	})
	_, err := db.Info(t.Context())
	require.NoError(t, err)
	require.Equal(t, "Basic "+base64.StdEncoding.EncodeToString([]byte("us:er:pa ss")), got.Get("Authorization"))
	require.Equal(t, "agent/1", got.Get("User-Agent"))
	require.Equal(t, []string{"1", "2"}, got.Values("X-Own"))
	require.Equal(t, "3", got.Get("X-Lower"))
	require.Equal(t, "other.example", host)

	own := serving(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		_, _ = io.WriteString(w, dbInfo)
	}, func(c *couch.Config) { c.Header = http.Header{"user-agent": {"own/2"}} })
	_, err = own.Info(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"own/2"}, got.Values("User-Agent"))
}

// TestConnectionsAreUsedAgain checks that answers are read to their ends, which connections need for reuse.
func TestConnectionsAreUsedAgain(t *testing.T) {
	t.Parallel()
	var opened atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		pouch(w, r)
		flush(w) // chunked
		switch path := strings.TrimPrefix(r.URL.Path, "/db"); {
		case path == "/_changes":
			_, _ = io.WriteString(w, `{"results":[{"id":"x","changes":[{"rev":"1-a"}]}],"last_seq":1}`+"\n")
		case path == "/_bulk_get":
			_, _ = io.WriteString(w, `{"results":[{"id":"x","docs":[{"ok":{"_id":"x"}}]}]}`+"\n")
		case path == "/x":
			_, _ = io.WriteString(w, `[{"ok":{"_id":"x"}}]`+"\n")
		case path == "/_bulk_docs":
			_, _ = io.WriteString(w, "[]\n")
		default:
			_, _ = io.WriteString(w, dbInfo+"\n")
		}
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	db := open(t, server.URL+"/db")
	for range 3 {
		_, err := db.Info(t.Context())
		require.NoError(t, err)
		allRows(t, db, couch.ChangesOptions{})
		fetchAll(t, db, couch.DocRef{ID: "x"})
		readLeaves(t, db, "x", "1-a")
		_, err = db.BulkDocs(t.Context(), []couch.Document{document(t, `{"_id":"x"}`)})
		require.NoError(t, err)
	}
	require.EqualValues(t, 1, opened.Load())
}

func TestHTTP2(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, `[{"error":"%s","reason":"%d bytes"}]`, r.Proto, len(body))
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	db := open(t, server.URL+"/db", func(c *couch.Config) { c.Transport = server.Client().Transport })
	doc := document(t, `{"_id":"x","v":"`+strings.Repeat("x", 3<<20)+`"}`)
	refused, err := db.BulkDocs(t.Context(), []couch.Document{doc})
	require.NoError(t, err)
	require.Equal(t, []couch.DocError{{Code: "HTTP/2.0", Reason: fmt.Sprintf("%d bytes", len(doc.Body)+29)}}, refused)

	// Waiting does not make a certificate trusted.
	patient := open(t, server.URL+"/db", func(c *couch.Config) { c.RetryBase = time.Minute })
	_, err = patient.Info(ctxFor(t, 30*time.Second))
	require.ErrorContains(t, err, "certificate")
}

func TestNoCredentialsInErrors(t *testing.T) {
	t.Parallel()
	secret := func(c *couch.Config) {
		c.Username, c.Password = "user", "s3cr3t/pass word"
		c.Header = http.Header{"Cookie": {"AuthSession=s3cr3t"}}
		c.Retries = 0
	}
	check := func(t *testing.T, err error) {
		t.Helper()
		require.Error(t, err)
		token := base64.StdEncoding.EncodeToString([]byte("user:s3cr3t/pass word"))
		for e := []error{err}; len(e) > 0; e = e[1:] {
			require.NotContains(t, e[0].Error(), "s3cr3t")
			require.NotContains(t, e[0].Error(), token)
			switch x := e[0].(type) {
			case interface{ Unwrap() error }:
				if inner := x.Unwrap(); inner != nil {
					e = append(e, inner)
				}
			case interface{ Unwrap() []error }:
				e = append(e, x.Unwrap()...)
			}
		}
	}
	t.Run("quoted by the server", func(t *testing.T) {
		t.Parallel()
		for _, pad := range []int{0, 150, 170, 190} { // near the length at which a text is cut
			db := serving(t, func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(http.StatusBadGateway)
				fmt.Fprintf(w, "%s bad header %s, %s, user s3cr3t/pass word s3cr3t%%2Fpass+word", strings.Repeat("x", pad),
					r.Header.Get("Authorization"), r.Header.Get("Cookie"))
			}, secret)
			_, err := db.Info(t.Context())
			check(t, err)
			db = serving(t, func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(http.StatusBadGateway)
				fmt.Fprintf(w, `{"error":"%s","reason":{"was":"%s s3cr3t/pass word"}}`, r.Header.Get("Authorization"), strings.Repeat("x", pad))
			}, secret)
			_, err = db.Info(t.Context())
			check(t, err)
		}
	})
	t.Run("no server", func(t *testing.T) {
		t.Parallel()
		db := open(t, "http://127.0.0.1:1/db", secret)
		_, err := db.Changes(t.Context(), couch.ChangesOptions{Query: url.Values{"key": {"s3cr3t"}}})
		check(t, err)
		require.ErrorContains(t, err, "GET http://127.0.0.1:1/db/_changes: ")
		require.ErrorContains(t, err, "connection refused")
	})
	t.Run("a transport that is a client", func(t *testing.T) {
		t.Parallel()
		db := open(t, "http://127.0.0.1:1/db", secret, func(c *couch.Config) { c.Transport = clientTransport{} })
		_, err := db.Changes(t.Context(), couch.ChangesOptions{Query: url.Values{"key": {"s3cr3t"}}})
		check(t, err)
	})
	t.Run("proxy", func(t *testing.T) {
		t.Parallel()
		for _, scheme := range []string{"http", "https", "socks5"} {
			db := open(t, "http://couch.example/db", noRetries, func(c *couch.Config) {
				c.Proxy = scheme + "://user:s3cr3t@127.0.0.1:1"
			})
			_, err := db.Info(t.Context())
			check(t, err)
		}
	})
	t.Run("redirect", func(t *testing.T) {
		t.Parallel()
		db := serving(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://user:s3cr3t@elsewhere.example/s3cr3t?s3cr3t", http.StatusFound)
		}, secret)
		_, err := db.Info(t.Context())
		require.ErrorIs(t, err, couch.ErrRedirect)
		require.ErrorContains(t, err, "elsewhere.example")
		check(t, err)
	})
}

// What is missing from an error does not tell a password that is a word, and does not hide what the error is.
func TestPasswordsThatAreWords(t *testing.T) {
	t.Parallel()
	for _, password := range []string{"pass", "incorrect", "unauthorized", "file", "exists", "missing", "Data", "database", "conf"} {
		for _, test := range []struct {
			status int
			body   string
			is     error
			want   string
		}{
			{401, `{"error":"unauthorized","reason":"Name or password is incorrect."}`, couch.ErrUnauthorized, "401 unauthorized: Name or password is incorrect."},
			{404, `{"error":"not_found","reason":"Database does not exist."}`, couch.ErrNoDatabase, "404 not_found: Database does not exist."},
			{412, `{"error":"file_exists","reason":"The database could not be created, the file already exists."}`, couch.ErrExists, "412 file_exists: The database could not be created, the file already exists."},
			{412, `{"error":"missing_stub","reason":"x"}`, couch.ErrMissingStub, "412 missing_stub: x"},
			{409, `{"error":"conflict","reason":"Document update conflict."}`, couch.ErrConflict, "409 conflict: Document update conflict."},
			{403, `{"error":"forbidden","reason":"no ` + password + `word, me"}`, couch.ErrForbidden, `403 forbidden: ***** (as user "me")`},
			{403, `{"error":"forbidden","reason":"no, me"}`, couch.ErrForbidden, `403 forbidden: no, me (as user "me")`},
		} {
			db := serving(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			}, noRetries, func(c *couch.Config) { c.Username, c.Password = "me", password })
			_, err := db.Info(t.Context())
			require.ErrorIs(t, err, test.is, password)
			var failed *couch.Error
			require.ErrorAs(t, err, &failed)
			require.Equal(t, test.want, failed.Cause(), password)
		}
		db := serving(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"x":{"missing":[{"`+password+`word":1}]}}`)
		}, noRetries, func(c *couch.Config) { c.Username, c.Password = "me", password })
		_, err := db.RevsDiff(t.Context(), []couch.DocRevs{{ID: "x", Revs: []string{"1-a"}}})
		require.ErrorIs(t, err, couch.ErrMalformed, password)
		require.ErrorContains(t, err, ": ***** where a string should be")
	}
}

// clientTransport puts URLs into its errors, as http.Client does.
type clientTransport struct{}

func (clientTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	return nil, fmt.Errorf("wrapped: %w", &url.Error{Op: "Get", URL: r.URL.String(), Err: io.ErrClosedPipe})
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	var stranger atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stranger.Add(1) }))
	t.Cleanup(elsewhere.Close)
	db := serving(t, func(w http.ResponseWriter, r *http.Request) {
		user, _, _ := r.BasicAuth()
		switch r.URL.Path {
		case "/db":
			http.Redirect(w, r, "/moved", http.StatusMovedPermanently)
		case "/moved":
			http.Redirect(w, r, "again?x=1", http.StatusTemporaryRedirect)
		case "/again":
			_, _ = io.WriteString(w, strings.Replace(dbInfo, `"db"`, `"`+user+`"`, 1))
		case "/db/_bulk_docs":
			http.Redirect(w, r, "/written", http.StatusPermanentRedirect)
		case "/written":
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, `[{"error":"%s","reason":"%d bytes"}]`, r.Method, len(body))
		case "/db/_revs_diff":
			http.Redirect(w, r, "/again", http.StatusFound)
		case "/db/circle":
			http.Redirect(w, r, "circle", http.StatusFound)
		case "/db/away":
			http.Redirect(w, r, elsewhere.URL, http.StatusFound)
		case "/db/nowhere":
			w.WriteHeader(http.StatusFound)
		}
	}, func(c *couch.Config) { c.Username, c.Password = "someone", "password" })

	info, err := db.Info(t.Context())
	require.NoError(t, err)
	require.Equal(t, "someone", info.Name)
	refused, err := db.BulkDocs(t.Context(), []couch.Document{document(t, `{"_id":"x"}`)})
	require.NoError(t, err)
	require.Equal(t, []couch.DocError{{Code: "POST", Reason: "40 bytes"}}, refused)
	_, err = db.RevsDiff(t.Context(), []couch.DocRevs{{ID: "x"}})
	require.ErrorIs(t, err, couch.ErrRedirect)
	for _, id := range []string{"circle", "away", "nowhere"} {
		_, err = db.Get(t.Context(), id)
		require.ErrorIs(t, err, couch.ErrRedirect, id)
	}
	require.Zero(t, stranger.Load())
}

// Other methods than GET go to where the database has moved.
func TestDatabasesThatHaveMoved(t *testing.T) {
	t.Parallel()
	var asked []string
	serve := func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.Path)
		switch path, old := strings.CutPrefix(r.URL.Path, "/db"); {
		case path == "/away":
			http.Redirect(w, r, "/login", http.StatusFound)
		case old:
			w.Header().Set("Location", "/new/db"+path)
			w.WriteHeader(http.StatusMovedPermanently)
		case r.URL.Path == "/new/db":
			_, _ = io.WriteString(w, dbInfo)
		case r.URL.Path == "/new/db/_ensure_full_commit":
			_, _ = io.WriteString(w, `{"ok":true}`)
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"error":"not_found","reason":"missing"}`)
		}
	}
	for _, first := range []func(*couch.Database) error{
		func(db *couch.Database) error { _, err := db.Info(t.Context()); return err },
		func(db *couch.Database) error {
			_, err := db.GetLocal(t.Context(), "x y")
			require.ErrorIs(t, err, couch.ErrNotFound)
			return nil
		},
	} {
		db := serving(t, serve)
		// Until it is known where it is, the error says which URL to write.
		_, err := db.EnsureFullCommit(t.Context())
		require.ErrorIs(t, err, couch.ErrRedirect)
		require.ErrorContains(t, err, "301 of a POST to "+strings.TrimSuffix(db.URL(), "/db")+"/new/db/_ensure_full_commit")
		require.NoError(t, first(db))
		asked = nil
		_, err = db.EnsureFullCommit(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"POST /new/db/_ensure_full_commit"}, asked)
		require.True(t, strings.HasSuffix(db.URL(), "/new/db"))
	}
	// What answers is no database, or only a document is elsewhere.
	db := serving(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/login" {
			_, _ = io.WriteString(w, `<html>`)
			return
		}
		http.Redirect(w, r, "/login", http.StatusFound)
	}, noRetries)
	_, err := db.Info(t.Context())
	require.Error(t, err)
	require.NotContains(t, db.URL(), "/login")
	db = serving(t, serve)
	for _, id := range []string{"away", "doc"} {
		_, err = db.Get(t.Context(), id)
		require.Error(t, err)
	}
	require.NotContains(t, db.URL(), "/new")
}

func TestCompressedAnswers(t *testing.T) {
	t.Parallel()
	// Compressed before anybody waits for it: a busy machine takes long.
	bomb, harmless := compressed(t, strings.Repeat(" ", 32<<20)+dbInfo), compressed(t, dbInfo)
	var asked sync.Map
	db := serving(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.URL.Path, r.Header.Get("Accept-Encoding"))
		w.Header().Set("Content-Encoding", "gzip")
		if r.URL.Path == "/db/bomb" {
			_, _ = w.Write(bomb)
		} else {
			_, _ = w.Write(harmless)
		}
	}, noRetries, func(c *couch.Config) { c.MaxDocument = 8 << 20 })
	info, err := db.Info(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, info.DocCount)
	_, err = db.Get(t.Context(), "bomb")
	require.ErrorIs(t, err, couch.ErrLimit)
	encoding, _ := asked.Load("/db")
	require.Equal(t, "gzip", encoding)
}

func compressed(t *testing.T, text string) []byte {
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	_, err := io.WriteString(zip, text)
	require.NoError(t, errors.Join(err, zip.Close()))
	return out.Bytes()
}

// expectant waits for 100 Continue even on a busy machine.
func expectant(t *testing.T) func(*couch.Config) {
	transport := &http.Transport{ExpectContinueTimeout: time.Minute}
	t.Cleanup(transport.CloseIdleConnections)
	return func(c *couch.Config) { c.Transport = transport }
}

// TestRefusedBeforeTheBody uses a server that refuses a large request by its length and hangs up. If the body were
// sent, the answer would be lost.
func TestRefusedBeforeTheBody(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = io.WriteString(conn, "HTTP/1.1 413 Request Entity Too Large\r\nConnection: close\r\nContent-Length: 46\r\n\r\n"+
					`{"error":"too_large","reason":"the_request"}  `)
			}
			conn.Close()
		}
	})
	t.Cleanup(func() {
		listener.Close()
		running.Wait()
	})
	db := open(t, "http://"+listener.Addr().String()+"/db", expectant(t))
	doc := document(t, `{"_id":"x","_rev":"1-a","v":"`+strings.Repeat("x", 8<<20)+`"}`)
	_, err = db.BulkDocs(t.Context(), []couch.Document{doc})
	require.ErrorIs(t, err, couch.ErrTooLarge)
	require.ErrorContains(t, err, "too_large: the_request")

	doc, source := withAttachments(t, "y", "1-aa", plainAttachment("f", "a/b", make([]byte, 8<<20)))
	require.ErrorIs(t, db.PutMultipart(t.Context(), doc, source), couch.ErrTooLarge)
	require.Len(t, *source, 1) // it was not used
}

// endless serves prefix, then filler until the client leaves.
func endless(prefix, filler string) http.HandlerFunc {
	chunk := []byte(strings.Repeat(filler, 64<<10/len(filler)))
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, err := io.WriteString(w, prefix)
		for err == nil {
			_, err = w.Write(chunk)
		}
	}
}

func TestEndlessAnswers(t *testing.T) {
	t.Parallel()
	small := func(c *couch.Config) { c.MaxDocument = 1 << 20; c.Retries = 0 }
	t.Run("row", func(t *testing.T) {
		t.Parallel()
		for _, feed := range []couch.Feed{couch.FeedNormal, couch.FeedContinuous} {
			prefix := map[couch.Feed]string{couch.FeedNormal: `{"results":[`}[feed]
			_, err := rowsUntil(t, serving(t, endless(prefix+`{"id":"`, "x"), small), couch.ChangesOptions{Feed: feed})
			require.ErrorIs(t, err, couch.ErrLimit)
			require.ErrorContains(t, err, "more than 16777216 bytes")
		}
	})
	t.Run("info", func(t *testing.T) {
		t.Parallel()
		_, err := serving(t, endless(`{"db_name":"`, "x"), small).Info(t.Context())
		require.ErrorIs(t, err, couch.ErrLimit)
	})
	t.Run("document", func(t *testing.T) {
		t.Parallel()
		db := serving(t, endless(`{"results":[{"id":"x","docs":[{"ok":{"_id":"`, "x"), small)
		results, err := db.BulkGet(t.Context(), []couch.DocRef{{ID: "x"}})
		require.NoError(t, err)
		_, err = results.Next()
		require.ErrorIs(t, err, couch.ErrLimit)
		require.ErrorContains(t, err, `document "x"`)
	})
	t.Run("documents", func(t *testing.T) {
		t.Parallel()
		db := serving(t, endless(`{"results":[{"id":"x","docs":[{}`, `,{"ok":{"_id":"x"}}`), small)
		results, err := db.BulkGet(t.Context(), []couch.DocRef{{ID: "x"}})
		require.NoError(t, err)
		for err == nil {
			_, err = results.Next()
		}
		require.ErrorIs(t, err, couch.ErrLimit)
	})
	t.Run("white space", func(t *testing.T) {
		t.Parallel()
		_, err := serving(t, endless(`{"x":{"missing":["1-a"]},`, " "), small).RevsDiff(t.Context(), []couch.DocRevs{{ID: "x", Revs: []string{"1-a"}}})
		require.ErrorIs(t, err, couch.ErrMalformed)
	})
	t.Run("leaves", func(t *testing.T) {
		t.Parallel()
		leaves, err := serving(t, endless(`[{"missing":"1-a"}`, `,{"ok":{"_id":"x"}}`), small).OpenRevs(t.Context(), "x", "1-a", nil)
		require.NoError(t, err)
		for err == nil {
			_, err = leaves.Next()
		}
		require.ErrorIs(t, err, couch.ErrLimit)
	})
	t.Run("refusals", func(t *testing.T) {
		t.Parallel()
		_, err := serving(t, endless(`[{}`, `,{"ok":true,"filler":"`+strings.Repeat("x", 10_000)+`"}`), small).BulkDocs(t.Context(), []couch.Document{document(t, `{"_id":"x"}`)})
		require.ErrorIs(t, err, couch.ErrLimit)
	})
	t.Run("error", func(t *testing.T) {
		t.Parallel()
		endlessly := endless("", "x")
		_, err := serving(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			endlessly(w, r)
		}, small).Info(t.Context())
		require.ErrorIs(t, err, couch.ErrNotFound)
		require.Less(t, len(err.Error()), 400)
	})
}

func TestBulkGetGoesWrong(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, body string
		is         error
		says       string
	}{
		{"empty", ``, io.ErrUnexpectedEOF, "reading the documents"},
		{"cut", `{"results":[{"id":"x","docs":[{"ok":{"_id":"x"`, io.ErrUnexpectedEOF, `document "x"`},
		{"cut between", `{"results":[{"id":"x","docs":[{"ok":{"_id":"x"}}]},`, io.ErrUnexpectedEOF, ``},
		{"no results", `{}`, couch.ErrMalformed, "no results"},
		{"not UTF-8", "{\"results\":[{\"id\":\"x\",\"docs\":[{\"ok\":{\"_id\":\"x\",\"a\":\"\xff\"}}]}]}", couch.ErrMalformed, `document "x"`},
		{"not JSON", `{"results":[{"id":"x","docs":[{"ok":{"_id":"x","a":01}}]}]}`, couch.ErrMalformed, `document "x"`},
		{"no id", `{"results":[{"id":"x","docs":[{"ok":{"a":1}}]}]}`, couch.ErrMalformed, "a document without _id"},
		{"another's", `{"results":[{"id":"x","docs":[{"ok":{"_id":"y"}}]}]}`, couch.ErrMalformed, `document "y" was not asked for`},
		{"id is a number", `{"results":[{"id":7,"docs":[]}]}`, couch.ErrMalformed, "a string"},
		{"document is a number", `{"results":[{"id":"x","docs":[{"ok":7}]}]}`, couch.ErrMalformed, "not an object"},
		{"answer is a number", `{"results":[{"id":"x","docs":[7]}]}`, couch.ErrMalformed, "not an object"},
		{"_deleted is a number", `{"results":[{"id":"x","docs":[{"ok":{"_id":"x","_deleted":1}}]}]}`, couch.ErrMalformed, "_deleted"},
		{"_id twice", `{"results":[{"id":"x","docs":[{"ok":{"_id":"x","\u005fid":"x"}}]}]}`, couch.ErrMalformed, "there twice"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			results, err := saying(t, "application/json", test.body).BulkGet(t.Context(), []couch.DocRef{{ID: "x"}})
			require.NoError(t, err)
			for err == nil {
				_, err = results.Next()
			}
			require.ErrorIs(t, err, test.is)
			require.ErrorContains(t, err, test.says)
			require.ErrorContains(t, err, "POST http://")
			require.NoError(t, results.Close())
		})
	}
	t.Run("some left out", func(t *testing.T) {
		t.Parallel()
		db := saying(t, "application/json", `{"new":[1],"results":[{"docs":[{"ok":{"_id":"x","_rev":"1-a"}}],"new":{},"id":"x"}],"more":true}`)
		got := fetchAll(t, db, couch.DocRef{ID: "x", Rev: "1-a"}, couch.DocRef{ID: "y", Rev: "2-b"})
		require.Len(t, got, 2)
		require.NoError(t, got[0].Err)
		require.Equal(t, &couch.DocError{ID: "y", Rev: "2-b", Code: "not_answered", Reason: "the server left it out"}, got[1].Err)
	})
	for _, status := range []int{400, 405, 415, 501} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			db := serving(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(status) })
			_, err := db.BulkGet(t.Context(), []couch.DocRef{{ID: "x"}})
			require.ErrorIs(t, err, couch.ErrNoBulkGet)
		})
	}
}

func TestDocErrors(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]error{
		"not_found": couch.ErrNotFound, "unauthorized": couch.ErrUnauthorized, "forbidden": couch.ErrForbidden,
		"conflict": couch.ErrConflict, "missing_stub": couch.ErrMissingStub, "document_too_large": couch.ErrTooLarge,
	} {
		err := &couch.DocError{ID: "a\n", Rev: "1-a", Code: code, Reason: "because"}
		require.ErrorIs(t, err, want)
		require.NotErrorIs(t, err, couch.ErrExists)
		require.EqualError(t, err, `document "a\n" 1-a: `+code+": because")
	}
}

func TestProxy(t *testing.T) {
	t.Parallel()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Proxy-Authorization") != "Basic "+base64.StdEncoding.EncodeToString([]byte("user:pass")) {
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		_, _ = io.WriteString(w, strings.Replace(dbInfo, `"db"`, `"`+r.URL.String()+`"`, 1))
	}))
	t.Cleanup(proxy.Close)
	db := open(t, "http://couch.example/db", func(c *couch.Config) {
		c.Proxy = strings.Replace(proxy.URL, "http://", "http://user:pass@", 1)
	})
	info, err := db.Info(t.Context())
	require.NoError(t, err)
	require.Equal(t, "http://couch.example/db", info.Name)
}

// TestSlotsComeBack causes every failure with a single connection, and then uses it.
func TestSlotsComeBack(t *testing.T) {
	t.Parallel()
	var fail atomic.Bool
	db := serving(t, func(w http.ResponseWriter, r *http.Request) {
		if fail.Load() {
			_, _ = io.WriteString(w, "{")
			flush(w)
			panic(http.ErrAbortHandler)
		}
		switch {
		case r.URL.Query().Get("open_revs") != "":
			_, _ = io.WriteString(w, `[{"ok":{"_id":"x","_rev":"1-a","_attachments":{"f":{"stub":true,"length":2}}}}]`)
		case strings.HasSuffix(r.URL.Path, "/f"):
			_, _ = io.WriteString(w, `12`)
		case strings.HasSuffix(r.URL.Path, "/_bulk_get"):
			_, _ = io.WriteString(w, `{"results":[{"id":"x","docs":[{"ok":{"_id":"x","_rev":"1-a"}}]}]}`)
		default:
			_, _ = io.WriteString(w, dbInfo)
		}
	}, noRetries, func(c *couch.Config) { c.MaxConnections = 1 })
	ctx := ctxFor(t, 30*time.Second)
	for _, failing := range []bool{false, true, false} {
		fail.Store(failing)
		_, err := db.Info(ctx)
		require.Equal(t, failing, err != nil)
		results, err := db.BulkGet(ctx, []couch.DocRef{{ID: "x"}})
		require.NoError(t, err)
		_, err = results.Next()
		require.Equal(t, failing, err != nil)
		require.NoError(t, results.Close())
		leaves, err := db.OpenRevs(ctx, "x", "1-a", nil)
		require.NoError(t, err)
		leaf, err := leaves.Next()
		require.Equal(t, failing, err != nil)
		if !failing {
			a, err := leaf.NextAttachment()
			require.NoError(t, err)
			_, err = a.Read(make([]byte, 1))
			require.NoError(t, err)
		}
		require.NoError(t, leaves.Close())
		require.NoError(t, leaves.Close())
		_, err = db.RevsDiff(ctx, []couch.DocRevs{{ID: "x"}})
		require.Error(t, err) // whatever the server answers
	}
}

// A proxy may show a database as the root of a host. The login is then below it.
func TestDatabaseAtTheRootOfAHost(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.Method+" "+r.URL.Path)
		if r.URL.Path == "/_session" {
			w.Header().Set("Set-Cookie", "AuthSession=x; Max-Age=600; Path=/")
			_, _ = io.WriteString(w, `{"ok":true}`)
			return
		}
		_, _ = io.WriteString(w, dbInfo)
	}))
	defer server.Close()
	for _, url := range []string{server.URL, server.URL + "/"} {
		db := open(t, url, func(c *couch.Config) {
			c.Username, c.Password, c.Sessions = "me", "pass", &couch.Sessions{}
		})
		_, err := db.Info(t.Context())
		require.NoError(t, err)
		require.Equal(t, server.URL, db.URL())
		mu.Lock()
		require.Equal(t, []string{"POST /_session", "GET /"}, asked)
		asked = nil
		mu.Unlock()
	}
}
