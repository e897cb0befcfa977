package couch_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/couch"
)

// limited is a server in memory that accepts rate requests per second and refuses the others with 429.
type limited struct {
	rate    float64 // a second
	burst   float64
	latency time.Duration
	after   string // Retry-After

	mu             sync.Mutex
	tokens         float64
	filled         time.Time
	taken, refused int
}

func (l *limited) take() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.tokens = min(l.burst, l.tokens+l.rate*now.Sub(l.filled).Seconds())
	l.filled = now
	if l.tokens < 1 {
		l.refused++
		return false
	}
	l.tokens--
	l.taken++
	return true
}

// counts returns the numbers of accepted and refused requests since the last call.
func (l *limited) counts() (taken, refused int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken, refused = l.taken, l.refused
	l.taken, l.refused = 0, 0
	return taken, refused
}

func (l *limited) RoundTrip(r *http.Request) (*http.Response, error) {
	response := &http.Response{
		StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: -1,
		Body: io.NopCloser(strings.NewReader(dbInfo)),
	}
	if !l.take() {
		response.StatusCode = http.StatusTooManyRequests
		response.Body = http.NoBody
		if l.after != "" {
			response.Header.Set("Retry-After", l.after)
		}
		time.Sleep(l.latency / 10)
		return response, r.Context().Err()
	}
	time.Sleep(l.latency)
	return response, r.Context().Err()
}

// Fifty databases on a server with a rate limit find the limit and use all of it.
func TestManyDatabasesShareWhatALimitedServerTakes(t *testing.T) {
	testkit.SkipShort(t)
	t.Parallel()
	const databases = 50
	for _, test := range []struct {
		server  *limited
		workers int // of each database
	}{
		{&limited{rate: 100, burst: 20, latency: 20 * time.Millisecond}, 4},
		{&limited{rate: 100, burst: 20, latency: 20 * time.Millisecond}, 20},
		{&limited{rate: 300, burst: 100, latency: 50 * time.Millisecond}, 4},
		{&limited{rate: 30, burst: 30, latency: 20 * time.Millisecond}, 4},
		{&limited{rate: 100, burst: 100, latency: 20 * time.Millisecond, after: "1"}, 4},
	} {
		if testkit.Race && test.workers < 20 {
			continue // it shows no other races
		}
		server := test.server
		testkit.RunBubble(t, fmt.Sprintf("%v a second, %d workers, Retry-After %q", server.rate, test.workers, server.after), func(t *testing.T) {
			var limiter couch.Limiter
			var running sync.WaitGroup
			ctx, cancel := context.WithCancel(t.Context())
			for i := range databases {
				cfg := couch.DefaultConfig()
				cfg.URL, cfg.Transport, cfg.Limiter = fmt.Sprintf("http://couch.example/db%d", i), server, &limiter
				db, err := couch.Open(cfg)
				require.NoError(t, err)
				for range test.workers {
					running.Go(func() {
						for ctx.Err() == nil {
							if _, err := db.Info(ctx); ctx.Err() == nil {
								assert.NoError(t, err)
							}
						}
					})
				}
			}
			time.Sleep(90 * time.Second)
			server.counts()
			const minutes = 1
			time.Sleep(minutes * time.Minute)
			taken, refused := server.counts()
			cancel()
			running.Wait()

			used := float64(taken) / (minutes * 60 * server.rate)
			share := float64(refused) / float64(taken+refused)
			t.Logf("%.0f%% of what the server takes, %.0f%% of the requests refused", 100*used, 100*share)
			require.Greater(t, used, 0.7)
			require.Less(t, share, 0.2)
		})
	}
}

// Requests to a server that refuses everything end, and then all clients leave it alone for a while.
func TestAServerThatRefusesEverythingIsLeftAlone(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server := &limited{}
		limiter := &couch.Limiter{Longest: 10 * time.Second}
		db := func(name string) *couch.Database {
			cfg := couch.DefaultConfig()
			cfg.URL, cfg.Transport, cfg.Limiter = "http://couch.example/"+name, server, limiter
			db, err := couch.Open(cfg)
			require.NoError(t, err)
			return db
		}
		start := time.Now()
		_, err := db("a").Info(t.Context())
		require.ErrorIs(t, err, couch.ErrTooManyRequests)
		require.ErrorContains(t, err, "GET http://couch.example/a: 429 backed off: the wait between two requests has come up to 10s")
		var e *couch.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, 10*time.Second, e.RetryAfter)
		require.Less(t, time.Since(start), 90*time.Second)
		_, tries := server.counts()
		require.InDelta(t, 50, tries, 15)

		// Another database of the server sends no request.
		start = time.Now()
		_, err = db("b").Info(t.Context())
		require.ErrorIs(t, err, couch.ErrBackedOff)
		require.ErrorIs(t, err, couch.ErrTooManyRequests)
		require.ErrorContains(t, err, "GET http://couch.example/b: backed off: ")
		require.ErrorAs(t, err, &e)
		require.Equal(t, 10*time.Second, e.RetryAfter)
		require.Zero(t, time.Since(start))
		_, tries = server.counts()
		require.Zero(t, tries)
		// Another method is not affected.
		_, err = db("a").RevsDiff(ctxFor(t, time.Second), []couch.DocRevs{{ID: "x", Revs: []string{"1-a"}}})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, tries = server.counts()
		require.NotZero(t, tries)

		server.rate, server.burst = 1e6, 1e6
		time.Sleep(e.RetryAfter + 8*time.Second)
		_, err = db("b").Info(t.Context())
		require.NoError(t, err)
	})
}

// If a refused request is one of very many, the interval may stay short for long. The request then ends because of its
// own refusals.
func TestARequestIsNotRefusedForEver(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		start := time.Now()
		db := piped(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/db" {
				w.Header().Set("Retry-After", "20")
				http.Error(w, `{"error":"too_many_requests","reason":"later"}`, http.StatusTooManyRequests)
			}
		})
		_, err := db.Info(t.Context())
		require.ErrorIs(t, err, couch.ErrTooManyRequests)
		require.ErrorContains(t, err, "429 too_many_requests: later: backed off: refused for 1m20s")
		require.InDelta(t, 80, time.Since(start).Seconds(), 1)
	})
}

// Retrying is called for a request that is delayed because of others' refusals.
func TestRequestsThatAreHeldBackAreToldOf(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var limiter couch.Limiter
		refuse := true
		open := func(told *[]couch.Retry) *couch.Database {
			return piped(t, func(w http.ResponseWriter, r *http.Request) {
				if refuse {
					refuse = false
					w.Header().Set("Retry-After", "20")
					w.WriteHeader(http.StatusTooManyRequests)
					return
				}
				_, _ = io.WriteString(w, dbInfo)
			}, func(cfg *couch.Config) {
				cfg.Limiter = &limiter
				cfg.Retrying = func(_ context.Context, r couch.Retry) func() {
					*told = append(*told, r)
					return func() {}
				}
			})
		}
		var first, second []couch.Retry
		a, b := open(&first), open(&second)
		start := time.Now()
		var running sync.WaitGroup
		running.Go(func() {
			_, err := a.Info(t.Context())
			assert.NoError(t, err)
		})
		time.Sleep(5 * time.Second)
		_, err := b.Info(t.Context())
		require.NoError(t, err)
		running.Wait()
		for _, told := range [][]couch.Retry{first, second} {
			require.Len(t, told, 1)
			require.InDelta(t, 20, told[0].Until.Sub(start).Seconds(), 0.1)
			require.Zero(t, told[0].Attempts)
			require.ErrorIs(t, told[0].Err, couch.ErrTooManyRequests)
		}
		require.Equal(t, start, first[0].Since)
		require.Equal(t, 2, first[0].Attempt)
		require.Equal(t, start.Add(5*time.Second), second[0].Since)
		require.Equal(t, 1, second[0].Attempt)
		require.Equal(t, "too many requests: the server has refused other requests with 429", second[0].Err.Cause())
	})
}
