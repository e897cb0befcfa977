package couch

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
)

// Logins of closed databases are kept while they are useful, up to a limit.
func TestSessionsAreForgotten(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var s Sessions
		held := s.acquire(cookies{}, "http://a", "me")
		count := 0
		many := func(n int, age time.Duration) {
			for range n {
				count++
				one := s.acquire(cookies{}, "http://a", fmt.Sprint(count))
				one.take(grant{secret: "c", age: age}, time.Now(), Config{})
				one.release()
			}
		}
		many(100_000, time.Millisecond)
		require.LessOrEqual(t, len(s.all), 2*(idleSessions+1)+1)
		time.Sleep(time.Second)
		many(5000, time.Minute)
		require.LessOrEqual(t, len(s.all), 2*(idleSessions+1)+1)
		require.Same(t, held, s.acquire(cookies{}, "http://a", "me"), "a login that is used was forgotten")

		time.Sleep(time.Hour)
		s.mu.Lock()
		s.drop()
		s.mu.Unlock()
		require.Len(t, s.all, 1)

		// All logins in use are kept.
		for i := range 3 * idleSessions {
			s.acquire(cookies{}, "http://b", fmt.Sprint(i))
		}
		require.Len(t, s.all, 3*idleSessions+1)
	})
}
