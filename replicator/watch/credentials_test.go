package watch_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A watch tries a few users at a time until one may read the feed.
func TestCredentialsAreFound(t *testing.T) {
	inLab(t, func(l *lab) {
		l.source.write("db00", "db99")
		for i := range 12 {
			l.source.readers[fmt.Sprint("u", i)] = "pw"
			l.source.write(fmt.Sprintf("db%02d", i))
			l.park(fmt.Sprint("u", i), fmt.Sprintf("db%02d", i))
		}
		l.park("root", "db99")
		n := l.start()
		l.until(n.asks(1))
		require.Len(t, l.source.requests("u"), 5)
		l.until(func() bool { return len(l.source.requests("root")) > 0 })
		l.until(n.follows(1))
		require.LessOrEqual(t, time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)), 11*time.Minute)
	})
}

// Credentials go with the job that has them: when it is removed or gets others, another job's are used.
func TestCredentialsGo(t *testing.T) {
	inLab(t, func(l *lab) {
		l.source.admins["boss"] = "pw2"
		l.source.write("db", "two")
		id, two := l.park("boss", "db"), l.park("root", "two")
		n := l.start()
		l.until(n.follows(1))
		require.NotEmpty(t, l.source.requests("boss GET /_db_updates?feed"))
		_, err := l.jobs.Requests.Cancel(t.Context(), id)
		require.NoError(t, err)
		l.sleeps(time.Hour, two)
		require.NotEmpty(t, l.source.requests("root GET /_db_updates?feed"))
		l.source.requests("")
		l.sleeps(3*time.Hour, two)
		require.Empty(t, l.source.requests("boss"))
		require.Equal(t, 1, l.source.open())
		require.Equal(t, 1, n.Counts().Feeds)

		// The feed that is open is not used either once its user is no administrator any more.
		l.source.set(func() { l.source.readers["root"], l.source.admins["root"] = "s3cret", "" })
		l.sleeps(2*time.Hour, two)
		require.Equal(t, 1, n.Counts().Questioned)
	})
}

// The credentials of the settings come first, and are used as soon as they are set.
func TestCredentialsOfSettings(t *testing.T) {
	inLab(t, func(l *lab) {
		l.source.write("db")
		id := l.park("ann", "db")
		n := l.start()
		l.until(n.asks(1))
		l.set("replicator.watches/" + strings.TrimSuffix(server, "/") + "=root:s3cret")
		require.LessOrEqual(t, l.until(n.follows(1)), 2*time.Second)
		require.NotEmpty(t, l.source.requests("root GET /_db_updates?feed"))
		l.set("replicator.watches/" + server + "=root:wrong")
		l.until(n.asks(1))
		l.sleeps(time.Minute, id)
		l.source.write("db")
		l.woken(id)
	})
}

// A server whose feed may be read, but not the descriptions of databases, is asked.
func TestDescriptionsAreRefused(t *testing.T) {
	inLab(t, func(l *lab) {
		l.source.write("db")
		l.source.set(func() { l.source.hides = true })
		id := l.park("root", "db")
		n := l.start()
		l.until(n.asks(1))
		l.sleeps(4*time.Minute, id)
		require.Less(t, len(l.source.requests("root GET /_db_updates?feed")), 5)
		l.source.write("db")
		l.woken(id)
	})
}
