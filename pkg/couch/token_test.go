package couch_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"settee/internal/testkit"
	"settee/pkg/couch"
	"settee/pkg/couch/couchtest"
	"settee/pkg/outbound"
	"settee/pkg/redact"
)

const tokenURL = "http://tokens.example/oauth/token"

// tokenLab is databases that want a token, and the server that gives them.
type tokenLab struct {
	tokens   *couchtest.TokenServer
	sessions couch.Sessions
	config   couch.Config

	mu    sync.Mutex
	asked []string // Authorization of the requests to databases
}

// newTokenLab returns a lab whose server is in memory.
func newTokenLab(t *testing.T) *tokenLab {
	t.Helper()
	lab := &tokenLab{tokens: couchtest.NewTokenServer()}
	database := lab.tokens.Guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Set-Cookie", "AuthSession=not-for-us; Max-Age=600")
		_, _ = io.WriteString(w, dbInfo)
	}))
	lab.config = couch.DefaultConfig()
	lab.config.URL, lab.config.Sessions, lab.config.Retries = "http://couch.example/db", &lab.sessions, 0
	lab.config.Header = http.Header{"X-Any": {"header"}, "Authorization": {"Basic bm9ib2R5Om5vdGhpbmc="}}
	lab.config.Transport = couchtest.Pipe(t, map[string]http.Handler{
		"tokens.example": lab.tokens,
		"couch.example": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			lab.mu.Lock()
			lab.asked = append(lab.asked, r.Header.Get("Authorization"))
			lab.mu.Unlock()
			database.ServeHTTP(w, r)
		}),
	})
	lab.config.Token = &clientcredentials.Config{
		ClientID: "me", ClientSecret: "s3cret-key", TokenURL: tokenURL, Scopes: []string{"read", "write"},
		EndpointParams: url.Values{"audience": {"couch"}},
	}
	return lab
}

// open opens the database once more.
func (l *tokenLab) open(t *testing.T, edit ...func(*couch.Config)) *couch.Database {
	t.Helper()
	cfg := l.config
	for _, e := range edit {
		e(&cfg)
	}
	db, err := couch.Open(cfg)
	require.NoError(t, err)
	t.Cleanup(db.Close)
	return db
}

// info makes a request that must succeed, and returns how many tokens were asked for so far.
func (l *tokenLab) info(t *testing.T, db *couch.Database) int {
	t.Helper()
	_, err := db.Info(t.Context())
	require.NoError(t, err)
	return len(l.tokens.Asked())
}

// fails makes a request that must fail, and returns the error.
func (l *tokenLab) fails(t *testing.T, db *couch.Database) *couch.Error {
	t.Helper()
	_, err := db.Info(t.Context())
	var e *couch.Error
	require.ErrorAs(t, err, &e)
	require.NotContains(t, err.Error(), "s3cret-key")
	return e
}

// Databases with the same credentials share a token, and others do not get it.
func TestTokensAreShared(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		lab := newTokenLab(t)
		var running sync.WaitGroup
		for range 20 {
			db := lab.open(t)
			running.Go(func() { _, _ = db.Info(t.Context()) })
		}
		running.Wait()
		require.Equal(t, []couchtest.TokenQuestion{{
			Form:   map[string]string{"grant_type": "client_credentials", "scope": "read write", "audience": "couch"},
			Client: "me", Path: "/oauth/token",
		}}, lab.tokens.Asked())
		require.Len(t, lab.asked, 20)
		for _, authorization := range lab.asked {
			require.Equal(t, "Bearer token-1", authorization, "not the header of the job, nor a cookie")
		}
		db := lab.open(t)
		holds, err := db.LoginHolds(t.Context(), db.Login())
		require.NoError(t, err)
		require.True(t, holds)
		require.Len(t, lab.asked, 20, "nothing is asked")
		other := lab.open(t, func(c *couch.Config) {
			c.Token = &clientcredentials.Config{ClientID: "me", ClientSecret: "s3cret-key", TokenURL: tokenURL}
		})
		require.Equal(t, 2, lab.info(t, other), "other scopes")
		private := lab.open(t, func(c *couch.Config) { c.Sessions = nil })
		require.Equal(t, 3, lab.info(t, private))
	})
}

// A token is renewed five minutes before its end, or at half of a short life. The first request after that renews it.
func TestTokensAreRenewed(t *testing.T) {
	for name, test := range map[string]struct {
		told  any
		life  time.Duration
		renew time.Duration
	}{
		"an hour":                {3600, time.Hour, 55 * time.Minute},
		"a text":                 {"3600", time.Hour, 55 * time.Minute},
		"eight minutes":          {480, 8 * time.Minute, 4 * time.Minute},
		"a minute":               {60, time.Minute, 30 * time.Second},
		"a second":               {1, time.Hour, 5 * time.Second},
		"over already":           {-5, time.Hour, 5 * time.Second},
		"no life":                {0, time.Hour, 550 * time.Second},
		"not told":               {nil, time.Hour, 550 * time.Second},
		"more than anyone lives": {int64(1) << 60, time.Hour, 55 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				lab := newTokenLab(t)
				lab.tokens.Set(func(s *couchtest.TokenServer) { s.Told, s.Life = test.told, test.life })
				db := lab.open(t)
				require.Equal(t, 1, lab.info(t, db))
				time.Sleep(test.renew - time.Millisecond)
				require.Equal(t, 1, lab.info(t, db))
				time.Sleep(2 * time.Millisecond)
				if name == "more than anyone lives" {
					require.Equal(t, 1, lab.info(t, db), "only the database ends it")
					return
				}
				require.Equal(t, 2, lab.info(t, db))
				require.Equal(t, "Bearer token-2", lab.asked[len(lab.asked)-1])
			})
		})
	}
}

// A token that the database refuses is renewed once: its life was shorter than told, or somebody has revoked it.
func TestTokensAreRenewedAfterRefusal(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		lab := newTokenLab(t)
		lab.tokens.Set(func(s *couchtest.TokenServer) { s.Life = time.Minute })
		db := lab.open(t)
		require.Equal(t, 1, lab.info(t, db))
		time.Sleep(2 * time.Minute)
		require.Equal(t, 2, lab.info(t, db))
		lab.tokens.Revoke()
		time.Sleep(time.Minute)
		require.Equal(t, 3, lab.info(t, db))

		// A database that accepts none costs each request one more token at most, and none if the latest is fresh.
		lab.tokens.Set(func(s *couchtest.TokenServer) { s.Life = 0 })
		time.Sleep(time.Minute)
		for want := range 3 {
			e := lab.fails(t, db)
			require.ErrorIs(t, e, couch.ErrUnauthorized)
			require.Equal(t, couch.ClassUnauthorized, e.Class())
			require.NotErrorIs(t, e, couch.ErrToken)
			require.Len(t, lab.tokens.Asked(), 4, want)
			require.NotContains(t, e.Error(), "token-")
		}
	})
}

// While the token server is down the token that there is serves until its end.
func TestTokenServerIsDownForAWhile(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		lab := newTokenLab(t)
		db := lab.open(t)
		require.Equal(t, 1, lab.info(t, db))
		lab.tokens.Set(func(s *couchtest.TokenServer) { s.Answer = says(http.StatusBadGateway, "down") })
		time.Sleep(56 * time.Minute)
		require.Equal(t, 2, lab.info(t, db))
		require.Equal(t, 2, lab.info(t, db), "it is not asked at once again")
		time.Sleep(4 * time.Minute)
		e := lab.fails(t, db)
		require.Equal(t, couch.ClassTokenFailed, e.Class())
		require.Equal(t, "POST "+tokenURL+": no access token: 502 Bad Gateway", e.Error())
		lab.tokens.Set(func(s *couchtest.TokenServer) { s.Answer = nil })
		time.Sleep(time.Minute)
		require.Equal(t, 4, lab.info(t, db))
	})
}

// A token server that fails is a fault of its own, not of the database.
func TestTokenServerFails(t *testing.T) {
	for name, test := range map[string]struct {
		answer    http.HandlerFunc
		want      string
		class     couch.Class
		temporary bool
	}{
		"an error":      {says(http.StatusServiceUnavailable, `{"error":"temporarily_unavailable"}`), "temporarily_unavailable: no access token: 503 Service Unavailable", couch.ClassTokenFailed, true},
		"a limit":       {says(http.StatusTooManyRequests, "s3cret-key"), "no access token: 429 Too Many Requests", couch.ClassTokenFailed, true},
		"no page":       {says(http.StatusNotFound, "s3cret-key"), "no access token: 404 Not Found", couch.ClassTokenFailed, false},
		"no JSON":       {says(http.StatusOK, "s3cret-key"), "no access token: 200 OK: the answer has no usable token", couch.ClassTokenFailed, true},
		"no token":      {says(http.StatusOK, `{"expires_in":3600}`), "no access token: 200 OK: the answer has no usable token", couch.ClassTokenFailed, true},
		"an odd token":  {says(http.StatusOK, `{"access_token":"a b"}`), "no access token: 200 OK: the answer has no usable token", couch.ClassTokenFailed, true},
		"silence":       {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "no access token: stalled: no answer within 30s", couch.ClassTokenFailed, true},
		"a slow answer": {drips, "no access token: stalled: no answer within 30s", couch.ClassTokenFailed, true},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://couch.example/steal", http.StatusTemporaryRedirect)
		}, "no access token: 307 Temporary Redirect: redirect not followed", couch.ClassTokenFailed, false},
		"a refusal with 200": {says(http.StatusOK, `{"error":"invalid_scope","error_description":"s3cret-key"}`), "invalid_scope: *****: the token server refuses the credentials: 200 OK", couch.ClassTokenRefused, false},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				lab := newTokenLab(t)
				lab.tokens.Set(func(s *couchtest.TokenServer) { s.Answer = test.answer })
				e := lab.fails(t, lab.open(t))
				require.Equal(t, "POST "+tokenURL+": "+test.want, e.Error())
				require.Equal(t, test.class, e.Class())
				require.Equal(t, test.temporary, e.Temporary())
				require.ErrorIs(t, e, couch.ErrToken)
				require.Zero(t, e.Status)
				require.Empty(t, lab.asked, "the database is not asked")
				before := len(lab.tokens.Asked())
				_ = lab.fails(t, lab.open(t))
				require.Len(t, lab.tokens.Asked(), before, "nor the token server at once again")

				lab.tokens.Set(func(s *couchtest.TokenServer) { s.Answer = nil })
				if test.temporary {
					lab.info(t, lab.open(t, func(c *couch.Config) { c.Retries = 1 }))
				}
			})
		})
	}
}

// All databases together ask a token server that is down, with a growing wait.
func TestTokenServerIsAskedTogether(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		lab := newTokenLab(t)
		lab.tokens.Set(func(s *couchtest.TokenServer) { s.Answer = says(http.StatusInternalServerError, "") })
		began := time.Now()
		var running sync.WaitGroup
		for range 20 {
			db := lab.open(t, func(c *couch.Config) { c.Retries = 3 })
			running.Go(func() { _, _ = db.Info(t.Context()) })
		}
		running.Wait()
		require.Len(t, lab.tokens.Asked(), 4, "all together")
		require.GreaterOrEqual(t, time.Since(began), 1750*time.Millisecond)
		lab.config.Token = &clientcredentials.Config{ClientID: "me", ClientSecret: "s3cret-key", TokenURL: "http://nowhere.example/"}
		require.Contains(t, lab.fails(t, lab.open(t)).Error(), "no access token: no such host in the pipe")
	})
}

// Refused credentials are not tried again at once.
func TestTokenServerRefuses(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		lab := newTokenLab(t)
		lab.tokens.Set(func(s *couchtest.TokenServer) { s.ClientSecret = "another" })
		e := lab.fails(t, lab.open(t, func(c *couch.Config) { c.Retries = 5 }))
		require.ErrorIs(t, e, couch.ErrTokenRefused)
		require.ErrorIs(t, e, couch.ErrUnauthorized)
		require.Equal(t, couch.ClassTokenRefused, e.Class())
		require.Equal(t, "POST "+tokenURL+": invalid_client: not *****: the token server refuses the credentials: 401 Unauthorized", e.Error())
		require.Len(t, lab.tokens.Asked(), 2, "in the header, and in the form")
	})
}

// Some servers want the secret of a client in the form.
func TestTokenSecretInForm(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		lab := newTokenLab(t)
		lab.tokens.Set(func(s *couchtest.TokenServer) { s.InForm = true })
		require.Equal(t, 2, lab.info(t, lab.open(t)))
		time.Sleep(56 * time.Minute)
		require.Equal(t, 3, lab.info(t, lab.open(t)), "the form is known")
	})
}

// IBM Cloud takes an API key, and says in its own words why it refuses it.
func TestTokenOfAPIKey(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		lab := newTokenLab(t)
		ask := func(key string) func(*couch.Config) {
			return func(c *couch.Config) {
				c.Secrets = redact.Set{}.With(key)
				c.Token = &clientcredentials.Config{TokenURL: tokenURL, AuthStyle: oauth2.AuthStyleInParams, EndpointParams: url.Values{
					"grant_type": {"urn:ibm:params:oauth:grant-type:apikey"}, "response_type": {"cloud_iam"}, "apikey": {key},
				}}
			}
		}
		require.Equal(t, 1, lab.info(t, lab.open(t, ask("s3cret-key"))))
		require.Len(t, lab.tokens.Asked()[0].Form, 3)
		e := lab.fails(t, lab.open(t, ask("an0ther-key")))
		require.Equal(t, []string{"BXNIM0415E", "Provided API key could not be found: *****"}, []string{e.Code, e.Reason})
		require.ErrorIs(t, e, couch.ErrTokenRefused)
	})
}

// A request that ends while it waits for a token says why, and others go on.
func TestWaitingForATokenEnds(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		lab := newTokenLab(t)
		answer := make(chan struct{})
		lab.tokens.Set(func(s *couchtest.TokenServer) {
			s.Answer = func(w http.ResponseWriter, r *http.Request) {
				<-answer
				says(http.StatusOK, `{"access_token":"late"}`)(w, r)
			}
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			_, err := lab.open(t).Info(ctx)
			require.ErrorIs(t, err, io.ErrClosedPipe)
			require.NotErrorIs(t, err, couch.ErrToken)
		})
		synctest.Wait()
		cancel(io.ErrClosedPipe)
		running.Wait()
		running.Go(func() { _ = lab.fails(t, lab.open(t)) })
		close(answer)
		running.Wait()
		require.Equal(t, []string{"Bearer late"}, lab.asked[:1])
	})
}

// Nothing that prints a database or its configuration shows the secret.
func TestTokenSecretsAreNotPrinted(t *testing.T) {
	t.Parallel()
	cfg := couch.DefaultConfig()
	cfg.URL, cfg.Token = "http://couch.example/db", &clientcredentials.Config{ClientID: "me", ClientSecret: "s3cret-key", TokenURL: tokenURL}
	db, err := couch.Open(cfg)
	require.NoError(t, err)
	defer db.Close()
	require.NotContains(t, fmt.Sprintf("%v %+v %#v %v %+v", cfg, cfg, cfg, db, db), "s3cret")
	for _, wrong := range []string{"", "ftp://h/", "http://u:s3cret@h/", "http://h/?s3cret", "://s3cret"} {
		cfg.Token = &clientcredentials.Config{TokenURL: wrong}
		_, err := couch.Open(cfg)
		require.Error(t, err, wrong)
		require.NotContains(t, err.Error(), "s3cret")
	}
}

// The networks that a node does not connect to are denied to token servers, too, and a proxy of the endpoint is theirs.
func TestTokenServerIsAnEndpoint(t *testing.T) {
	t.Parallel()
	database := httptest.NewServer(says(http.StatusOK, dbInfo))
	t.Cleanup(database.Close)
	open := func(proxy string, denied ...netip.Prefix) *couch.Database {
		pool := outbound.NewPool(outbound.PoolOptions{Config: func() outbound.PoolConfig { return outbound.PoolConfig{Denied: denied} }})
		t.Cleanup(pool.Close)
		transport, err := pool.Transport(outbound.TransportOptions{Proxy: proxy})
		require.NoError(t, err)
		cfg := couch.DefaultConfig()
		cfg.URL, cfg.Proxy, cfg.Transport, cfg.Retries = database.URL+"/db", proxy, transport, 0
		cfg.Token = &clientcredentials.Config{ClientID: "me", ClientSecret: "s3cret-key", TokenURL: "http://127.0.0.2:1/token"}
		db, err := couch.Open(cfg)
		require.NoError(t, err)
		t.Cleanup(db.Close)
		return db
	}
	_, err := open("", netip.MustParsePrefix("127.0.0.2/32")).Info(t.Context())
	var e *couch.Error
	require.ErrorAs(t, err, &e)
	require.ErrorIs(t, err, outbound.ErrDenied)
	require.Equal(t, couch.ClassTokenFailed, e.Class())
	require.False(t, e.Temporary())

	tokens := couchtest.NewTokenServer()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Host == "127.0.0.2:1" {
			tokens.ServeHTTP(w, r)
			return
		}
		says(http.StatusOK, dbInfo)(w, r)
	}))
	t.Cleanup(proxy.Close)
	_, err = open(proxy.URL).Info(t.Context())
	require.NoError(t, err)
	require.Len(t, tokens.Asked(), 1)
}

// says answers with a status and a body.
func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// drips answers a byte a second, for ever.
func drips(w http.ResponseWriter, r *http.Request) {
	for r.Context().Err() == nil {
		_, _ = io.WriteString(w, " ")
		flush(w)
		time.Sleep(time.Second)
	}
}
