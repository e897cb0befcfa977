package watch_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A feed that names one database as fast as it is read is slowed down, and then the sources are asked.
func TestFlood(t *testing.T) {
	inLab(t, func(l *lab) {
		l.source.write("db")
		id := l.park("root", "db")
		n := l.start()
		l.until(n.follows(1))
		l.source.set(func() { l.source.floods = true })
		l.until(n.asks(1))
		require.Contains(t, l.log.String(), "its feed has too many updates of databases for which no job waits")
		l.sleeps(time.Second, id)
		l.source.mu.Lock()
		require.Less(t, l.source.flooded, 200_000, "in a minute")
		l.source.mu.Unlock()
		l.source.write("db")
		l.woken(id)
		require.EqualValues(t, 1, n.Counts().WakesQuestion)
		l.source.set(func() { l.source.floods = false })
		l.until(n.follows(1))
	})
}
