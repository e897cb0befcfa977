package web_test

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/frontend/internal/web"
	"settee/internal/testkit"
)

func by(user string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-User", user)
	return r
}

func newScans() *web.Scans {
	return web.NewScans(func(r *http.Request) string { return r.Header.Get("X-User") })
}

func TestScansHaveFewPlacesAndUsersTakeTurns(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := newScans()
		places := int32(max(1, runtime.GOMAXPROCS(0)/2))
		var running atomic.Int32
		var all sync.WaitGroup
		scan := func(user string, done func()) {
			all.Go(func() {
				err := s.Run(by(user), func() error {
					assert.LessOrEqual(t, running.Add(1), places)
					time.Sleep(time.Second)
					running.Add(-1)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				done()
			})
		}
		for range 20 * places {
			scan("many", func() {})
		}
		synctest.Wait()
		began := time.Now()
		var took time.Duration
		scan("one", func() { took = time.Since(began) })
		all.Wait()
		require.LessOrEqual(t, took, 2*time.Second, "it waits for one scan, and not for all")
	})
}

func TestScansEndToWait(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := newScans()
		release := make(chan struct{})
		var all sync.WaitGroup
		for range runtime.GOMAXPROCS(0) {
			all.Go(func() {
				_ = s.Run(by("a"), func() error {
					<-release
					return nil
				})
			})
		}
		synctest.Wait()
		began := time.Now()
		err := s.Run(by("b"), func() error { return nil })
		var failure *web.Failure
		require.ErrorAs(t, err, &failure)
		require.Equal(t, http.StatusServiceUnavailable, failure.Status)
		require.Equal(t, 30*time.Second, time.Since(began))
		close(release)
		all.Wait()
	})
}

func TestScanRowsHasNoPlaceWhileItYields(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := newScans()
		rows := func(yield func(int, error) bool) {
			for i := range 250 {
				if !yield(i, nil) {
					return
				}
			}
		}
		want := 0
		for got, err := range web.ScanRows(s, by("slow"), rows) {
			require.NoError(t, err)
			require.Equal(t, want, got)
			want++
			require.NoError(t, s.Run(by("other"), func() error { return nil }), "a place is free")
		}
		require.Equal(t, 250, want)
	})
}
