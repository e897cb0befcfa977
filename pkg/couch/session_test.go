package couch_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/couch"
	"settee/pkg/couch/couchtest"
)

// doorman is a database that requires authentication. Its cookies are numbered, and valid until revoked.
type doorman struct {
	mu      sync.Mutex
	login   http.HandlerFunc // replaces the answer to a login
	extra   string           // attributes of the cookie
	refusal int              // default: 401
	revoked int              // cookies up to this number are invalid
	logins  int
	asked   []string // authentication of requests: cookie 1, basic, nothing
	bodies  []string // of logins
	paths   []string // of logins
}

const refusedBody = `{"error":"unauthorized","reason":"You are not authorized to access this db."}`

func (d *doorman) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	d.mu.Lock()
	defer d.mu.Unlock()
	if strings.HasSuffix(r.URL.Path, "/_session") {
		d.logins++
		d.bodies = append(d.bodies, string(body))
		d.paths = append(d.paths, r.Method+" "+r.URL.Path)
		if d.login != nil {
			d.login(w, r)
			return
		}
		d.grant(w)
		return
	}
	n := 0
	cookie, err := r.Cookie("AuthSession")
	username, password, basic := r.BasicAuth()
	switch {
	case err == nil:
		d.asked = append(d.asked, cookie.Value)
		_, _ = fmt.Sscanf(cookie.Value, "c%d", &n)
	case basic && username == "me" && password == "s3cret":
		d.asked = append(d.asked, "basic")
		n = d.revoked + 1
	default:
		d.asked = append(d.asked, "nothing")
	}
	if n <= d.revoked {
		w.WriteHeader(max(d.refusal, http.StatusUnauthorized))
		_, _ = io.WriteString(w, refusedBody)
		return
	}
	if r.Method == http.MethodPut {
		_, _ = io.WriteString(w, `{"ok":true,"id":"x","rev":"1-a"}`)
		return
	}
	_, _ = io.WriteString(w, dbInfo)
}

func (d *doorman) grant(w http.ResponseWriter) {
	w.Header().Set("Set-Cookie", fmt.Sprintf("AuthSession=c%d; Version=1; Path=/; HttpOnly%s", d.logins, d.extra))
	_, _ = io.WriteString(w, `{"ok":true,"name":"me","roles":[]}`)
}

// revoke makes all existing cookies invalid.
func (d *doorman) revoke() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.revoked = d.logins
}

// since returns the authentication of requests since the last call, and the number of logins.
func (d *doorman) since() ([]string, int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	asked, logins := d.asked, d.logins
	d.asked = nil
	return asked, logins
}

// knocks opens a doorman's database as a user that it knows.
func knocks(t *testing.T, d *doorman, edit ...func(*couch.Config)) *couch.Database {
	t.Helper()
	db := piped(t, d.ServeHTTP, append([]func(*couch.Config){func(cfg *couch.Config) {
		cfg.Username, cfg.Password, cfg.Sessions = "me", "s3cret", &couch.Sessions{}
	}}, edit...)...)
	t.Cleanup(db.Close)
	return db
}

func info(t *testing.T, db *couch.Database) {
	t.Helper()
	_, err := db.Info(t.Context())
	require.NoError(t, err)
}

func TestDatabasesShareALogin(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var sessions couch.Sessions
		door := &doorman{}
		var running sync.WaitGroup
		for i := range 50 {
			db := knocks(t, door, func(cfg *couch.Config) {
				cfg.URL, cfg.Sessions = fmt.Sprintf("http://couch.example/db%d", i), &sessions
			})
			for range 4 {
				running.Go(func() {
					_, err := db.Info(t.Context())
					assert.NoError(t, err)
				})
			}
		}
		running.Wait()
		asked, logins := door.since()
		require.Equal(t, 1, logins)
		require.Len(t, asked, 200)
		for _, how := range asked {
			require.Equal(t, "c1", how)
		}
		require.Equal(t, []string{"POST /_session"}, door.paths)
		require.JSONEq(t, `{"name":"me","password":"s3cret"}`, door.bodies[0])

		// Other databases have logins of their own.
		for _, edit := range []func(*couch.Config){
			func(cfg *couch.Config) { cfg.Username = "you" },
			func(cfg *couch.Config) { cfg.Password = "other" },
			func(cfg *couch.Config) { cfg.URL = "http://other.example/db" },
			func(cfg *couch.Config) { cfg.URL = "http://couch.example/below/db" },
			func(cfg *couch.Config) { cfg.Header = http.Header{"Host": {"virtual.example"}} },
		} {
			info(t, knocks(t, door, func(cfg *couch.Config) { cfg.Sessions = &sessions }, edit))
		}
		_, logins = door.since()
		require.Equal(t, 6, logins)
		require.Equal(t, "POST /below/_session", door.paths[4])
		require.NotContains(t, fmt.Sprintf("%+v", &sessions), "s3cret")
	})
}

func TestSessionsAreRenewedInTime(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		extra string
		cfg   func(*couch.Config)
		renew time.Duration
	}{
		"Max-Age": {extra: "; Max-Age=600", renew: 540 * time.Second},
		// The server uses the bubble's clock.
		"Expires":          {extra: "; Expires=Sat, 01-Jan-2000 00:10:00 GMT", renew: 540 * time.Second},
		"both":             {extra: "; Expires=Sat, 01-Jan-2000 00:10:00 GMT; Max-Age=100", renew: 90 * time.Second},
		"neither":          {renew: 550 * time.Second},
		"neither, but set": {cfg: func(cfg *couch.Config) { cfg.SessionRefresh = time.Minute }, renew: time.Minute},
		"years":            {extra: "; Max-Age=100000000", renew: 54 * time.Minute},
		"nonsense":         {extra: "; Max-Age=soon; Expires=never", renew: 550 * time.Second},
	} {
		testkit.RunBubble(t, name, func(t *testing.T) {
			door := &doorman{extra: test.extra}
			db := knocks(t, door, func(cfg *couch.Config) {
				if test.cfg != nil {
					test.cfg(cfg)
				}
			})
			info(t, db)
			time.Sleep(test.renew - time.Millisecond)
			info(t, db)
			door.extra = "; Max-Age=600"
			time.Sleep(2 * time.Millisecond)
			info(t, db)
			asked, logins := door.since()
			require.Equal(t, []string{"c1", "c1", "c2"}, asked)
			require.Equal(t, 2, logins)
		})
	}
	testkit.RunBubble(t, "while others go on with the old one", func(t *testing.T) {
		door := &doorman{extra: "; Max-Age=100"}
		db := knocks(t, door)
		info(t, db)
		time.Sleep(91 * time.Second)
		door.login = func(w http.ResponseWriter, r *http.Request) {
			door.mu.Unlock()
			time.Sleep(2 * time.Second)
			door.mu.Lock()
			door.grant(w)
		}
		var running sync.WaitGroup
		running.Go(func() { info(t, db) })
		time.Sleep(time.Second)
		info(t, db)
		running.Wait()
		asked, _ := door.since()
		require.Equal(t, []string{"c1", "c1", "c2"}, asked)
	})
	testkit.RunBubble(t, "with what the server sends by itself", func(t *testing.T) {
		door, n := &doorman{extra: "; Max-Age=100"}, 1
		db := piped(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				n++
				w.Header().Add("Set-Cookie", "other=1")
				w.Header().Add("Set-Cookie", fmt.Sprintf("AuthSession=c%d; Max-Age=100", n))
			}
			door.ServeHTTP(w, r)
		}, func(cfg *couch.Config) {
			cfg.Username, cfg.Password, cfg.Sessions = "me", "s3cret", &couch.Sessions{}
		})
		for range 4 {
			info(t, db)
			time.Sleep(60 * time.Second)
		}
		asked, logins := door.since()
		require.Equal(t, []string{"c1", "c2", "c3", "c4"}, asked)
		require.Equal(t, 1, logins)
	})
	testkit.RunBubble(t, "the old one is good enough if that fails", func(t *testing.T) {
		door := &doorman{extra: "; Max-Age=100"}
		db := knocks(t, door)
		info(t, db)
		time.Sleep(91 * time.Second)
		door.login = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }
		info(t, db)
		info(t, db)
		asked, logins := door.since()
		require.Equal(t, []string{"c1", "c1", "c1"}, asked)
		require.Equal(t, 2, logins, "the login is not tried again for each request")
		time.Sleep(6 * time.Second)
		info(t, db)
		door.login = nil
		time.Sleep(6 * time.Second)
		info(t, db)
		asked, logins = door.since()
		require.Equal(t, []string{"c1", "c4"}, asked)
		require.Equal(t, 4, logins)
	})
}

func TestCookiesThatTheServerDoesNotTake(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden} {
		testkit.RunBubble(t, fmt.Sprint(status), func(t *testing.T) {
			door := &doorman{refusal: status}
			db := knocks(t, door)
			info(t, db)
			time.Sleep(time.Minute)
			door.revoke()
			info(t, db)
			// The same for a write.
			time.Sleep(time.Minute)
			door.revoke()
			require.NoError(t, db.PutMultipart(t.Context(), document(t, `{"_id":"x","_rev":"1-a"}`), nil))
			asked, logins := door.since()
			require.Equal(t, []string{"c1", "c1", "c2", "c2", "c3"}, asked)
			require.Equal(t, 3, logins)
		})
		testkit.RunBubble(t, fmt.Sprintf("%d always", status), func(t *testing.T) {
			door := &doorman{refusal: status}
			db := knocks(t, door)
			info(t, db)
			door.mu.Lock()
			door.revoked = 1000
			door.mu.Unlock()
			door.since()
			_, err := db.Info(t.Context()) // the cookie is fresh
			require.ErrorContains(t, err, fmt.Sprintf("GET http://couch.example/db: %d unauthorized: You are not", status))
			asked, logins := door.since()
			require.Equal(t, []string{"c1"}, asked)
			require.Equal(t, 1, logins)

			time.Sleep(time.Minute)
			for range 10 {
				_, err = db.Info(t.Context())
				require.Error(t, err)
			}
			asked, logins = door.since()
			require.Less(t, len(asked), 13)
			require.LessOrEqual(t, logins, 2, "logins for nothing")
			if status == http.StatusForbidden {
				// The user lacks a permission. Another cookie does not change that.
				time.Sleep(time.Minute)
				_, err = db.Info(t.Context())
				require.ErrorIs(t, err, couch.ErrForbidden)
				_, logins = door.since()
				require.LessOrEqual(t, logins, 2)
			}
			require.NotContains(t, err.Error(), "c1")
		})
	}
	testkit.RunBubble(t, "a database begins with a revoked one", func(t *testing.T) {
		var sessions couch.Sessions
		share := func(cfg *couch.Config) { cfg.Sessions = &sessions }
		door := &doorman{}
		info(t, knocks(t, door, share))
		door.revoke() // such as by a new password, which is then taken back
		info(t, knocks(t, door, share))
		asked, logins := door.since()
		require.Equal(t, []string{"c1", "c1", "c2"}, asked)
		require.Equal(t, 2, logins)

		// Each database does so once.
		door.mu.Lock()
		door.revoked = 1000
		door.mu.Unlock()
		db := knocks(t, door, share)
		for range 3 {
			_, err := db.Info(t.Context())
			require.ErrorIs(t, err, couch.ErrUnauthorized)
		}
		asked, logins = door.since()
		require.Equal(t, []string{"c2", "c3", "c3", "c3"}, asked)
		require.Equal(t, 3, logins)

		// A user without the permission is not logged in again: another cookie does not change that.
		door.refusal = http.StatusForbidden
		_, err := knocks(t, door, share).Info(t.Context())
		require.ErrorIs(t, err, couch.ErrForbidden)
		_, logins = door.since()
		require.Equal(t, 3, logins)
	})
	testkit.RunBubble(t, "when the body is spent", func(t *testing.T) {
		door := &doorman{}
		db := knocks(t, door)
		info(t, db)
		time.Sleep(time.Minute)
		door.revoke()
		doc, source := withAttachments(t, "x", "1-aa", plainAttachment("a", "a/b", make([]byte, 200_000)))
		err := db.PutMultipart(t.Context(), doc, source)
		require.ErrorIs(t, err, couch.ErrUnauthorized)
		require.ErrorIs(t, err, couch.ErrSession)
		doc, source = withAttachments(t, "x", "1-aa", plainAttachment("a", "a/b", make([]byte, 200_000)))
		require.NoError(t, db.PutMultipart(t.Context(), doc, source))
		asked, _ := door.since()
		require.Equal(t, []string{"c1", "c1", "c2"}, asked)
	})
	testkit.RunBubble(t, "many meet it at once", func(t *testing.T) {
		door := &doorman{}
		db := knocks(t, door)
		info(t, db)
		time.Sleep(time.Minute)
		door.revoke()
		var running sync.WaitGroup
		for range 100 {
			running.Go(func() {
				_, err := db.Info(t.Context())
				assert.NoError(t, err)
			})
		}
		running.Wait()
		_, logins := door.since()
		require.Equal(t, 2, logins)
	})
}

// A session expires during its request. It lasts for less than the minimum time between two logins, and the request is
// repeated all the same.
func TestShortSessionsThatEndDuringARequest(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		door := &doorman{extra: "; Max-Age=2"}
		slow := true
		db := piped(t, func(w http.ResponseWriter, r *http.Request) {
			if slow && !strings.HasSuffix(r.URL.Path, "/_session") {
				slow = false
				time.Sleep(1900 * time.Millisecond)
				door.revoke()
			}
			door.ServeHTTP(w, r)
		}, func(cfg *couch.Config) {
			cfg.Username, cfg.Password, cfg.Sessions = "me", "s3cret", &couch.Sessions{}
			cfg.SessionMinAge = 5 * time.Second
		})
		t.Cleanup(db.Close)
		info(t, db)
		asked, logins := door.since()
		assert.Equal(t, []string{"c1", "c2"}, asked)
		assert.Equal(t, 2, logins)
	})
}

func TestServersWithoutSessions(t *testing.T) {
	t.Parallel()
	answer := func(status int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i+1 < len(header); i += 2 {
				w.Header().Add(header[i], header[i+1])
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "{}")
		}
	}
	for name, login := range map[string]http.HandlerFunc{
		"not found":       answer(404),
		"no such method":  answer(405),
		"not implemented": answer(501),
		"bad request":     answer(400),
		"not JSON":        answer(415),
		"elsewhere":       answer(302, "Location", "/login"),
		"no cookie":       answer(200),
		"another cookie":  answer(200, "Set-Cookie", "session=1"),
		"an empty cookie": answer(200, "Set-Cookie", "AuthSession=; Max-Age=600"),
		"a dead cookie":   answer(200, "Set-Cookie", "AuthSession=c1; Max-Age=0"),
		"a past cookie":   answer(200, "Set-Cookie", "AuthSession=c1; Expires=Fri, 31-Dec-1999 23:00:00 GMT"),
		"no such cookie":  answer(200, "Set-Cookie", "AuthSession"),
	} {
		testkit.RunBubble(t, name, func(t *testing.T) {
			door := &doorman{login: login}
			db := knocks(t, door)
			info(t, db)
			time.Sleep(9 * time.Minute)
			info(t, db)
			asked, logins := door.since()
			require.Equal(t, []string{"basic", "basic"}, asked)
			require.Equal(t, 1, logins)
			door.login = nil
			time.Sleep(2 * time.Minute)
			info(t, db)
			asked, _ = door.since()
			require.Equal(t, []string{"c2"}, asked)
		})
	}
	for name, edit := range map[string]func(*couch.Config){
		"own Authorization": func(cfg *couch.Config) { cfg.Header = http.Header{"Authorization": {"Bearer x"}} },
		"own Cookie":        func(cfg *couch.Config) { cfg.Header = http.Header{"Cookie": {"AuthSession=mine"}} },
		"no name":           func(cfg *couch.Config) { cfg.Username, cfg.Password = "", "" },
		"no sessions":       func(cfg *couch.Config) { cfg.Sessions = nil },
	} {
		testkit.RunBubble(t, name, func(t *testing.T) {
			door := &doorman{}
			var header http.Header
			db := piped(t, func(w http.ResponseWriter, r *http.Request) {
				header = r.Header
				door.ServeHTTP(w, r)
			}, func(cfg *couch.Config) {
				cfg.Username, cfg.Password, cfg.Sessions = "me", "s3cret", &couch.Sessions{}
				edit(cfg)
			}, noRetries)
			_, _ = db.Info(t.Context())
			_, logins := door.since()
			require.Zero(t, logins)
			switch name {
			case "own Authorization":
				require.Equal(t, []string{"Bearer x"}, header.Values("Authorization"))
			case "own Cookie":
				require.Equal(t, []string{"AuthSession=mine"}, header.Values("Cookie"))
			}
		})
	}
}

func TestLoginsThatFail(t *testing.T) {
	t.Parallel()
	refuse := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for name, test := range map[string]struct {
		login http.HandlerFunc
		is    error
		says  string
	}{
		"wrong": {
			refuse(401, `{"error":"unauthorized","reason":"Name or password is incorrect."}`), couch.ErrUnauthorized,
			"POST http://couch.example/_session: 401 unauthorized: Name or password is incorrect.",
		},
		"locked": {
			refuse(403, `{"error":"forbidden","reason":"Account is temporarily locked for me:s3cret"}`), couch.ErrForbidden,
			`POST http://couch.example/_session: 403 forbidden: Account is temporarily locked for me:***** (as user "me")`,
		},
	} {
		testkit.RunBubble(t, name, func(t *testing.T) {
			var sessions couch.Sessions
			door := &doorman{login: test.login}
			for range 20 {
				_, err := knocks(t, door, func(cfg *couch.Config) { cfg.Sessions = &sessions }).Info(t.Context())
				require.ErrorIs(t, err, test.is)
				require.ErrorIs(t, err, couch.ErrSession)
				require.EqualError(t, err, test.says)
			}
			asked, logins := door.since()
			require.Empty(t, asked)
			require.Equal(t, 1, logins, "an account is locked by that")
			time.Sleep(6 * time.Second)
			door.login = nil
			info(t, knocks(t, door, func(cfg *couch.Config) { cfg.Sessions = &sessions }))
		})
	}
	testkit.RunBubble(t, "for a while", func(t *testing.T) {
		start, door := time.Now(), &doorman{}
		door.login = func(w http.ResponseWriter, r *http.Request) {
			if door.logins < 4 {
				refuse([]int{500, 429, 503}[door.logins-1], `{}`)(w, r)
				return
			}
			door.grant(w)
		}
		info(t, knocks(t, door))
		require.InDelta(t, 0.75, time.Since(start).Seconds(), 0.25)
	})
	testkit.RunBubble(t, "for all waiting requests", func(t *testing.T) {
		door := &doorman{}
		door.login = func(w http.ResponseWriter, r *http.Request) {
			door.mu.Unlock()
			time.Sleep(time.Second)
			door.mu.Lock()
			refuse(500, `{"error":"internal","reason":"ill"}`)(w, r)
		}
		db := knocks(t, door, noRetries)
		var running sync.WaitGroup
		for range 20 {
			running.Go(func() {
				_, err := db.Info(t.Context())
				assert.ErrorContains(t, err, "POST http://couch.example/_session: 500 internal: ill")
			})
		}
		running.Wait()
		_, logins := door.since()
		require.Equal(t, 1, logins)
	})
	testkit.RunBubble(t, "but not if the request that made it is canceled", func(t *testing.T) {
		door := &doorman{}
		door.login = func(w http.ResponseWriter, r *http.Request) {
			door.mu.Unlock()
			time.Sleep(time.Second)
			door.mu.Lock()
			door.grant(w)
		}
		db := knocks(t, door)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		var running sync.WaitGroup
		running.Go(func() {
			_, err := db.Info(ctx)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
		time.Sleep(100 * time.Millisecond)
		info(t, db)
		running.Wait()
		asked, _ := door.since()
		require.Equal(t, []string{"c2"}, asked)
	})
	testkit.RunBubble(t, "unless it is made with basic authentication", func(t *testing.T) {
		door := &doorman{extra: "; Max-Age=10"}
		door.login = func(w http.ResponseWriter, r *http.Request) {
			if _, _, ok := r.BasicAuth(); !ok {
				w.Header().Set("WWW-Authenticate", `Basic realm="server"`)
				refuse(401, refusedBody)(w, r)
				return
			}
			door.grant(w)
		}
		db := knocks(t, door)
		info(t, db)
		time.Sleep(20 * time.Second)
		info(t, db)
		asked, logins := door.since()
		require.Equal(t, []string{"c2", "c3"}, asked)
		require.Equal(t, 3, logins, "it is known the second time")
	})
}

// A redirect within the origin carries the cookie.
func TestRedirectsKeepTheSession(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		door := &doorman{}
		db := piped(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/db" {
				w.Header().Set("Location", "/new/db")
				w.WriteHeader(http.StatusMovedPermanently)
				return
			}
			door.ServeHTTP(w, r)
		}, func(cfg *couch.Config) {
			cfg.Username, cfg.Password, cfg.Sessions = "me", "s3cret", &couch.Sessions{}
		})
		info(t, db)
		asked, logins := door.since()
		require.Equal(t, []string{"c1"}, asked)
		require.Equal(t, 1, logins)
	})
}

// These are CouchDB 3.5's answers.
func TestWireSessions(t *testing.T) {
	t.Parallel()
	for number, test := range map[int]struct {
		password string
		is       error
		says     string
	}{
		10:  {password: "password"},
		11:  {"nope", couch.ErrUnauthorized, "401 unauthorized: Name or password is incorrect."},
		112: {"password", couch.ErrForbidden, `403 forbidden: Account is temporarily locked due to multiple authentication failures (as user "admin")`},
	} {
		t.Run(fmt.Sprint(number), func(t *testing.T) {
			t.Parallel()
			numbers := []int{number}
			if test.is == nil {
				numbers = append(numbers, 34)
			}
			server := couchtest.Replay(t, numbers...)
			db := open(t, server.URL+"/wire", noRetries, func(cfg *couch.Config) {
				cfg.Username, cfg.Password, cfg.Sessions = "admin", test.password, &couch.Sessions{}
			})
			_, err := db.Info(t.Context())
			received := server.Received()
			require.Equal(t, "POST", received[0].Method)
			require.Equal(t, "/_session", received[0].Target)
			require.Equal(t, "application/json", received[0].Header.Get("Content-Type"))
			require.JSONEq(t, `{"name":"admin","password":"`+test.password+`"}`, string(received[0].Body))
			if test.is != nil {
				require.ErrorIs(t, err, test.is)
				require.ErrorContains(t, err, test.says)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "AuthSession=YWRtaW46REDACTED", received[1].Header.Get("Cookie"))
			require.Empty(t, received[1].Header.Get("Authorization"))
		})
	}
}

// addAdmin makes an administrator of a PouchDB Server, and returns the name.
func addAdmin(t *testing.T, server *couchtest.Server, password string) (name string) {
	t.Helper()
	name = "adm-" + rand.Text()
	text, err := json.Marshal(password)
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, server.URL+"/_config/admins/"+name, bytes.NewReader(text))
	require.NoError(t, err)
	request.SetBasicAuth(server.Username, server.Password)
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusOK, answer.StatusCode)
	return name
}

// The cookies of PouchDB Server have no lifetime.
func TestLiveSessions(t *testing.T) {
	t.Parallel()
	server := couchtest.SharedWithAdmin(t)
	url, _, _ := couchtest.Credentials(server.DB(t, "sessions"))
	const password = "s3cret/ü"
	name := addAdmin(t, server, password)
	var mu sync.Mutex
	shown := map[string]int{}
	forward := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		shown[fmt.Sprintf("%s cookie:%v basic:%v", r.Method, r.Header.Get("Cookie") != "", r.Header.Get("Authorization") != "")]++
		mu.Unlock()
		hr, err := http.NewRequestWithContext(r.Context(), r.Method, server.URL+r.URL.RequestURI(), r.Body)
		if !assert.NoError(t, err) {
			return
		}
		hr.Header, hr.ContentLength = r.Header.Clone(), r.ContentLength
		answer, err := http.DefaultTransport.RoundTrip(hr)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer answer.Body.Close()
		for name, values := range answer.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(answer.StatusCode)
		_, _ = io.Copy(w, answer.Body)
	}))
	t.Cleanup(forward.Close)
	var sessions couch.Sessions
	db := open(t, forward.URL+strings.TrimPrefix(url, server.URL), func(cfg *couch.Config) {
		cfg.Username, cfg.Password, cfg.Sessions = name, password, &sessions
		cfg.Transport = &http.Transport{DisableKeepAlives: true}
	})
	info(t, db)
	write(t, db, revision("a", 1, "aa"))
	doc, err := db.Get(t.Context(), "a")
	require.NoError(t, err)
	require.True(t, json.Valid(doc))
	rev, err := db.PutLocal(t.Context(), "x", raw(`{"a":1}`))
	require.NoError(t, err)
	require.NotEmpty(t, rev)
	made := url + "-made"
	require.NoError(t, open(t, made, func(cfg *couch.Config) {
		cfg.Username, cfg.Password, cfg.Sessions = name, password, &sessions
	}).Create(t.Context(), nil))
	t.Cleanup(func() { server.Remove(t, couchtest.As(made, server.Username, server.Password)) })
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, map[string]int{
		"POST cookie:false basic:false": 1, // the login
		"GET cookie:true basic:false":   2, "POST cookie:true basic:false": 1, "PUT cookie:true basic:false": 1,
	}, shown)

	_, err = open(t, url, noRetries, func(cfg *couch.Config) {
		cfg.Username, cfg.Password, cfg.Sessions = name, "wrong", &sessions
	}).Info(t.Context())
	require.ErrorIs(t, err, couch.ErrUnauthorized)
	require.ErrorContains(t, err, "POST "+server.URL+"/_session: 401 unauthorized: Name or password is incorrect.")
}

func TestLoginsThatHold(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer string // to GET /_session
		holds  bool
		logins int // after the next request
	}{
		"a user":       {`200 {"ok":true,"userCtx":{"name":"me","roles":[]}}`, true, 1},
		"no user":      {`200 {"ok":true,"userCtx":{"name":null,"roles":[]}}`, false, 2},
		"another body": {`200 <html>`, true, 1},
		"no such path": {`404 {"error":"not_found"}`, true, 1},
		"unauthorized": {`401 {"error":"unauthorized"}`, false, 3}, // the question has logged in again
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &doorman{}
			status, body, _ := strings.Cut(test.answer, " ")
			db := piped(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet && r.URL.Path == "/_session" {
					code, _ := strconv.Atoi(status)
					w.WriteHeader(code)
					_, _ = io.WriteString(w, body)
					return
				}
				d.ServeHTTP(w, r)
			}, func(cfg *couch.Config) {
				cfg.Username, cfg.Password, cfg.Sessions, cfg.SessionMinAge = "me", "s3cret", &couch.Sessions{}, 0
			})
			t.Cleanup(db.Close)
			info(t, db)
			holds, err := db.LoginHolds(t.Context(), db.Login())
			require.NoError(t, err)
			require.Equal(t, test.holds, holds)
			info(t, db)
			_, logins := d.since()
			require.Equal(t, test.logins, logins)
		})
	}
	// Without a session there is nothing to ask.
	db := piped(t, func(http.ResponseWriter, *http.Request) { t.Error("asked") })
	t.Cleanup(db.Close)
	holds, err := db.LoginHolds(t.Context(), db.Login())
	require.NoError(t, err)
	require.True(t, holds)
}
