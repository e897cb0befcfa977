package worker_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/replicator/worker"
)

// lodge makes a stub require sessions. It refuses requests without a valid cookie, also with basic authentication.
type lodge struct {
	*stub
	mu     sync.Mutex
	logins int
	good   int // number of the oldest valid cookie
	locked bool
	before func(r *http.Request) // called for each request except logins
}

func lodgeOf(s *stub) *lodge {
	l := &lodge{stub: s, good: 1}
	s.Config.Handler = l
	s.URL = strings.Replace(s.URL, "://", "://me:s3cret@", 1)
	return l
}

func (l *lodge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	if r.URL.Path == "/_session" {
		defer l.mu.Unlock()
		if l.locked {
			refuse(w, 403, `{"error":"forbidden","reason":"Account is temporarily locked"}`)
			return
		}
		l.logins++
		w.Header().Set("Set-Cookie", fmt.Sprintf("AuthSession=c%d; Max-Age=600; Path=/", l.logins))
		fmt.Fprint(w, `{"ok":true}`)
		return
	}
	if l.before != nil {
		l.before(r)
	}
	n := 0
	if cookie, err := r.Cookie("AuthSession"); err == nil {
		_, _ = fmt.Sscanf(cookie.Value, "c%d", &n)
	}
	good := n >= l.good && r.Header.Get("Authorization") == ""
	l.mu.Unlock()
	if !good {
		refuse(w, 401, `{"error":"unauthorized","reason":"You are not authorized to access this db."}`)
		return
	}
	l.stub.ServeHTTP(w, r)
}

func (l *lodge) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.logins
}

func lodges(t *testing.T, docs int) (source, target *lodge) {
	t.Helper()
	s, d := stubs(t, docs)
	return lodgeOf(s), lodgeOf(d)
}

func TestRunsShareLogins(t *testing.T) {
	t.Parallel()
	source, target := lodges(t, 3)
	shared := worker.Impatient()
	for range 3 {
		run(t, replication(t, source.URL, target.URL), func(cfg *worker.Config) { cfg.Shared = shared })
	}
	require.Equal(t, 1, source.count())
	require.Equal(t, 1, target.count())

	failure := fails(t, replication(t, source.URL, target.URL), func(cfg *worker.Config) { cfg.BasicAuth = true })
	require.Equal(t, "unauthorized", failure.Code)
	require.Equal(t, 1, source.count())
}

// An expired or impossible session is not a refusal of a document.
func TestSessionsThatEndRefuseNoDocument(t *testing.T) {
	t.Parallel()
	for _, size := range []int{100, 400_000} {
		for _, locked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d bytes, locked: %v", size, locked), func(t *testing.T) {
				t.Parallel()
				source, target := lodges(t, 2)
				source.add("big", "1-a", "")
				source.attach("big", strings.Repeat("x", size)) // more than 64 KiB cannot be sent twice
				ended := false
				target.before = func(r *http.Request) {
					if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/big") && !ended {
						ended = true
						target.good, target.locked = target.logins+1, locked
					}
				}
				refused := 0
				edit := func(cfg *worker.Config) {
					cfg.SessionMinAge = 0
					cfg.Refused = func(worker.Refusal) { refused++ }
				}
				if !locked {
					result := run(t, replication(t, source.URL, target.URL), edit)
					require.Zero(t, result.Stats.DocWriteFailures)
					require.EqualValues(t, 3, result.Stats.DocsWritten)
					require.Equal(t, 2, target.count())
					return
				}
				failure := fails(t, replication(t, source.URL, target.URL), edit,
					func(cfg *worker.Config) { cfg.RetriesPerRequest = 5 })
				require.Equal(t, "forbidden", failure.Code)
				require.Contains(t, failure.Reason, "Account is temporarily locked")
				require.NotContains(t, failure.Error(), "s3cret")
				require.Zero(t, refused)
				require.Empty(t, target.locals, "a checkpoint covers what was not written")
			})
		}
	}
}

func TestLoginsThatAreRefused(t *testing.T) {
	t.Parallel()
	_, target := stubs(t, 1)
	for status, code := range map[int]string{401: "replication_auth_error", 403: "forbidden"} {
		source := newStub(t)
		source.fail("POST /_session", status, `{"error":"unauthorized","reason":"Name or password is incorrect."}`)
		url := strings.Replace(source.URL, "://", "://me:s3cret@", 1)
		failure := fails(t, replication(t, url, target.URL))
		require.Equal(t, code, failure.Code)
		require.Contains(t, failure.Reason, source.URL)
		require.Contains(t, failure.Reason, ": Name or password is incorrect.")
		require.Zero(t, failure.RetryAfter)
	}
}

// A user whose login is good may still not be let into a database. As in CouchDB, that is not an error of the login.
func TestDatabasesThatRefuseAUser(t *testing.T) {
	t.Parallel()
	for _, side := range []string{"source", "target"} {
		source, target := lodges(t, 1)
		refusing := map[string]*lodge{"source": source, "target": target}[side]
		refusing.stub.fail("GET ", 401, `{"error":"unauthorized","reason":"You are not authorized to access this db."}`)
		failure := fails(t, replication(t, source.URL, target.URL))
		require.Equal(t, "unauthorized", failure.Code, side)
		require.Contains(t, failure.Reason, `as "me": You are not authorized to access this db.`)
		require.Equal(t, 1, refusing.count())
	}
}

// A job's own proxy can answer anything in a server's name. No other job sends the cookie from it.
func TestACookieOfAProxyIsSentByItsJobAlone(t *testing.T) {
	t.Parallel()
	source, target := lodges(t, 3)
	var mu sync.Mutex
	var cookies []string
	source.before = func(r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		cookies = append(cookies, r.Header.Get("Cookie"))
	}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Set-Cookie", "AuthSession=planted; Max-Age=600; Path=/")
		refuse(w, 200, `{"db_name":"db","update_seq":0}`)
	}))
	t.Cleanup(proxy.Close)

	shared := worker.Impatient()
	edit := func(cfg *worker.Config) { cfg.Shared = shared }
	_ = fails(t, replication(t, source.URL, target.URL, `"source_proxy":`+quoted(proxy.URL)), edit)
	require.Empty(t, cookies)
	run(t, replication(t, source.URL, target.URL), edit)
	require.NotEmpty(t, cookies)
	for _, cookie := range cookies {
		require.Equal(t, "AuthSession=c1", cookie)
	}
}
