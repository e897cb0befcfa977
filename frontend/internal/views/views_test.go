package views_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/frontend/internal/views"
	"settee/frontend/internal/web"
	"settee/internal/testkit"
	"settee/pkg/config"
)

// counter is an action that answers with a number, and counts how often it runs.
type counter struct {
	mu     sync.Mutex
	number int
	runs   int
}

func (c *counter) answer(w http.ResponseWriter, r *http.Request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs++
	return web.Respond(w, r, http.StatusOK, c.number)
}

func (c *counter) set(number int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.number = number
}

type defaults struct{}

func (defaults) Current() *config.Config { return new(config.Config) }

func newViews() *views.Views {
	return views.New(web.NewConnections(defaults{}, web.DefaultMemory, 0, zerolog.Nop()))
}

func get(t *testing.T, act web.Action, target string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, target, nil)
	for pair := range slices.Chunk(headers, 2) {
		r.Header.Set(pair[0], pair[1])
	}
	w := httptest.NewRecorder()
	assert.NoError(t, act(w, r))
	return w
}

func TestManyClientsCostOneRunASecond(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var c counter
		act := newViews().Watched(c.answer)
		first := get(t, act, "/list", "Prefer", "wait=30")
		require.Equal(t, "0\n", first.Body.String())
		require.Equal(t, "wait=30", first.Header().Get("Preference-Applied"))
		began := time.Now()
		var clients sync.WaitGroup
		for range 100 {
			clients.Go(func() {
				got := get(t, act, "/list", "Prefer", "wait=30", "If-None-Match", first.Header().Get("ETag"))
				assert.Equal(t, "1\n", got.Body.String())
				assert.NotEqual(t, first.Header().Get("ETag"), got.Header().Get("ETag"))
				assert.LessOrEqual(t, time.Since(began), 10500*time.Millisecond+views.Interval)
			})
		}
		time.Sleep(10500 * time.Millisecond)
		c.set(1)
		clients.Wait()
		require.LessOrEqual(t, c.runs, 13)
	})
}

func TestAViewOfSomethingElse(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var c counter
		act := newViews().Watched(c.answer, "skip")
		tag := get(t, act, "/list", "Prefer", "wait=30").Header().Get("ETag")
		began := time.Now()
		var clients sync.WaitGroup
		for i := range 5 {
			clients.Go(func() {
				got := get(t, act, fmt.Sprint("/list?skip=", i), "Prefer", "wait=5", "If-None-Match", tag)
				assert.Equal(t, http.StatusNotModified, got.Code)
				assert.Empty(t, got.Body.String())
			})
		}
		clients.Wait()
		require.Equal(t, 5*time.Second, time.Since(began))
		require.GreaterOrEqual(t, c.runs, 5)
	})
}

func TestRequestsThatDoNotWait(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var c counter
		act := newViews().Watched(c.answer)
		tag := get(t, act, "/", "Prefer", "wait=1").Header().Get("ETag")
		began := time.Now()
		for _, prefer := range []string{"", "wait", "wait=x", "wait=-1", "respond-async", "waiting=3"} {
			got := get(t, act, "/", "Prefer", prefer, "If-None-Match", tag)
			require.Equal(t, http.StatusOK, got.Code, prefer)
			require.Empty(t, got.Header().Get("ETag"), prefer)
		}
		require.Equal(t, began, time.Now())
		for _, prefer := range []string{"respond-async, wait=2", "WAIT = 2", "wait=2; foo"} {
			before := time.Now()
			require.Equal(t, http.StatusNotModified, get(t, act, "/", "Prefer", prefer, "If-None-Match", `W/"x", `+tag).Code, prefer)
			require.Equal(t, 2*time.Second, time.Since(before), prefer)
		}
		before := time.Now()
		require.Equal(t, "wait=60", get(t, act, "/", "Prefer", "wait=99999", "If-None-Match", tag).Header().Get("Preference-Applied"))
		require.Equal(t, time.Minute, time.Since(before))
	})
}

func TestFailuresAndLargeAnswersAreNotKept(t *testing.T) {
	t.Parallel()
	wrong := errors.New("wrong")
	failing := newViews().Watched(func(http.ResponseWriter, *http.Request) error { return wrong })
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Prefer", "wait=30")
	require.ErrorIs(t, failing(httptest.NewRecorder(), r), wrong)

	large := strings.Repeat("x", 5<<20)
	act := newViews().Watched(func(w http.ResponseWriter, r *http.Request) error {
		return web.Respond(w, r, http.StatusOK, large)
	})
	got := get(t, act, "/", "Prefer", "wait=30")
	require.Empty(t, got.Header().Get("ETag"))
	require.Equal(t, len(large)+3, got.Body.Len())
}

// The answers that are kept have a bound in all, and room again when their clients have left.
func TestAllAnswersTogetherAreBounded(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		large := make([]byte, 4<<20)
		act := newViews().Watched(func(w http.ResponseWriter, r *http.Request) error {
			_, err := w.Write(large)
			return err
		}, "n")
		tag := get(t, act, "/", "Prefer", "wait=1").Header().Get("ETag")
		require.NotEmpty(t, tag)
		const most, clients = 8, 20
		var kept, sent atomic.Int32
		var waiting sync.WaitGroup
		for i := range clients {
			waiting.Go(func() {
				if got := get(t, act, fmt.Sprint("/?n=", i), "Prefer", "wait=1", "If-None-Match", tag); got.Code == http.StatusNotModified {
					kept.Add(1)
				} else if assert.Equal(t, len(large), got.Body.Len()) && assert.Empty(t, got.Header().Get("ETag")) {
					sent.Add(1)
				}
			})
		}
		waiting.Wait()
		require.Positive(t, kept.Load())
		require.LessOrEqual(t, kept.Load(), int32(most))
		require.Equal(t, int32(clients), kept.Load()+sent.Load())
		require.Equal(t, tag, get(t, act, "/", "Prefer", "wait=1").Header().Get("ETag"), "there is room again")
	})
}

// An answer in one media type is not that in another.
func TestMediaTypesAreApart(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		act := newViews().Watched(func(w http.ResponseWriter, r *http.Request) error {
			return web.Respond(w, r, http.StatusOK, r.Header.Get("Accept"))
		})
		var clients sync.WaitGroup
		defer clients.Wait()
		tag := get(t, act, "/", "Prefer", "wait=30", "Accept", "application/json").Header().Get("ETag")
		clients.Go(func() {
			get(t, act, "/", "Prefer", "wait=30", "Accept", "text/html, application/json;q=0.1", "If-None-Match", tag)
		})
		synctest.Wait()
		got := get(t, act, "/", "Prefer", "wait=30", "Accept", "multipart/*")
		require.Equal(t, "\"none/none, multipart/related, multipart/mixed\"\n", got.Body.String())
		require.Contains(t, got.Header().Get("Vary"), "Accept")
	})
}

// What an action does not read makes no view of its own.
func TestAViewIsWhatItsActionReads(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var c counter
		act := newViews().Watched(func(w http.ResponseWriter, r *http.Request) error {
			assert.Equal(t, "limit=2&skip=1", r.URL.RawQuery)
			return c.answer(w, r)
		}, "skip", "limit")
		tag := get(t, act, "/list?limit=2&skip=1", "Prefer", "wait=30").Header().Get("ETag")
		var clients sync.WaitGroup
		for i := range 1_000 {
			clients.Go(func() {
				target := fmt.Sprintf("/list?x=%d&skip=1&limit=2&limit=3", i)
				if i%2 == 0 {
					target = fmt.Sprintf("/%%6cist?limit=%%32&_=%d&skip=1", i)
				}
				got := get(t, act, target, "Prefer", "wait=10", "If-None-Match", tag, "Accept", fmt.Sprintf("*/*;q=0.%d", i+1))
				assert.Equal(t, http.StatusNotModified, got.Code)
			})
		}
		clients.Wait()
		require.LessOrEqual(t, c.runs, 12)
	})
}

func TestAViewThatTakesLongRunsLessOften(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		runs := 0
		act := newViews().Watched(func(w http.ResponseWriter, r *http.Request) error {
			runs++
			time.Sleep(500 * time.Millisecond)
			return web.Respond(w, r, http.StatusOK, 1)
		})
		tag := get(t, act, "/", "Prefer", "wait=1").Header().Get("ETag")
		runs = 0
		require.Equal(t, http.StatusNotModified, get(t, act, "/", "Prefer", "wait=21", "If-None-Match", tag).Code)
		require.LessOrEqual(t, runs, 5, "one in five seconds")
		require.GreaterOrEqual(t, runs, 3)
	})
}

// Few users cannot take all places, and server administrators have some of their own.
func TestViewsAreShared(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var c counter
		act := newViews().Watched(c.answer, "n")
		tag := get(t, act, "/", "Prefer", "wait=1").Header().Get("ETag")
		waiting := func(user, view int) error {
			r := httptest.NewRequest(http.MethodGet, fmt.Sprint("/?n=", 1_000*user+view), nil)
			r.RemoteAddr = fmt.Sprintf("10.%d.0.1:1", user)
			r.Header.Set("Prefer", "wait=5")
			r.Header.Set("If-None-Match", tag)
			return act(httptest.NewRecorder(), r)
		}
		var clients sync.WaitGroup
		defer clients.Wait()
		for user := range 5 {
			for view := range 200 {
				clients.Go(func() { _ = waiting(user, view) })
			}
			synctest.Wait()
		}
		for user := 5; user < 50; user++ {
			clients.Go(func() { assert.NoError(t, waiting(user, 0), "user %d", user) })
			synctest.Wait()
		}
	})
}

func TestViewsAreFew(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var c counter
		act := newViews().Watched(c.answer, "n")
		tag := get(t, act, "/", "Prefer", "wait=1").Header().Get("ETag")
		var refused atomic.Int32
		var clients sync.WaitGroup
		for i := range 250 {
			clients.Go(func() {
				r := httptest.NewRequest(http.MethodGet, fmt.Sprint("/?n=", i), nil)
				r.Header.Set("Prefer", "wait=5")
				r.Header.Set("If-None-Match", tag)
				var failure *web.Failure
				if err := act(httptest.NewRecorder(), r); errors.As(err, &failure) {
					assert.Equal(t, http.StatusServiceUnavailable, failure.Status)
					assert.Positive(t, failure.RetryAfter)
					refused.Add(1)
				}
			})
		}
		clients.Wait()
		require.EqualValues(t, 50, refused.Load(), "a user has two hundred")
		require.Equal(t, http.StatusOK, get(t, act, "/?n=1", "Prefer", "wait=5").Code)
	})
}
