package watch_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A cordoned node keeps its watches and takes none. A drained one gives them back.
func TestCordon(t *testing.T) {
	inLab(t, func(l *lab) {
		l.source.manyServers()
		l.source.write("db")
		first := l.park("root", "db")
		a := l.start()
		l.until(a.follows(1))
		a.Cordon(true, false)
		l.parkAt("http://a.example/s1/", "root", "db")
		l.sleeps(2*time.Minute, first)
		require.True(t, a.follows(1)())
		require.LessOrEqual(t, a.Counts().Lag, 20*time.Second, "the time since the feed was last heard; what waits for other nodes does not count")

		b := l.start()
		l.until(b.follows(1))
		a.Cordon(true, true)
		l.until(b.follows(2))
		require.True(t, a.follows(0)())
		b.Cordon(true, true)
		a.Cordon(false, false)
		l.until(a.follows(2))
	})
}
