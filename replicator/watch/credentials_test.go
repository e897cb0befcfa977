package watch_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// users parks jobs of plain users.
func (l *lab) users(n int) {
	l.Helper()
	for i := range n {
		user := fmt.Sprintf("u%05d", i)
		l.source.set(func() { l.source.readers[user] = "pw" })
		l.source.write("db" + user)
		l.park(user, "db"+user)
	}
}

// One administrator is found among many users in less than a minute, wherever its job is.
func TestCredentialsAreFound(t *testing.T) {
	const jobs = 500 // 10,000 take twenty times as long
	for name, database := range map[string]string{"first": "a", "last": "z"} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				l.source.write(database)
				l.users(jobs)
				l.park("root", database)
				n := l.start()
				require.LessOrEqual(t, l.until(n.follows(1)), 60*time.Second*jobs/10_000)
			})
		})
	}
}

// A user that is refused is not tried again for a while, however many jobs it has.
func TestRefusedUsersAreTriedOnce(t *testing.T) {
	inLab(t, func(l *lab) {
		l.set("replicator/max_questions_per_sec=1")
		l.users(30)
		for i := range 30 {
			database := fmt.Sprint("more", i)
			l.source.write(database)
			l.park("u00000", database)
		}
		n := l.start()
		l.until(n.asks(1))
		time.Sleep(45 * time.Minute)
		require.Len(t, l.source.requests("u00000 POST /_dbs_info"), 1)
		require.Len(t, l.source.requests("u00029 POST /_dbs_info"), 1)
		// An administrator by now.
		l.source.set(func() { l.source.admins["u00029"] = "pw" })
		time.Sleep(20 * time.Minute)
		l.until(n.follows(1)) // in ten minutes
	})
}

// What changes while a server is asked is used at once, also if there are more jobs than can be asked.
func TestNewsOfCredentials(t *testing.T) {
	for name, test := range map[string]struct {
		before, news func(l *lab)
		within       time.Duration
	}{
		"an administrator's job parks": {func(*lab) {}, func(l *lab) {
			l.source.write("zdb")
			l.park("root", "zdb")
		}, 2 * time.Second},
		"the feed appears": {func(l *lab) {
			l.source.set(func() { l.source.instance = "" })
			l.source.write("zdb")
			l.park("root", "zdb")
		}, func(l *lab) { l.source.set(func() { l.source.instance = "1700000001" }) }, 12 * time.Second},
		"the server has failed": {func(l *lab) {
			l.source.write("zdb")
			l.park("root", "zdb")
			l.source.set(func() { l.source.status["/_db_updates"] = 500 })
		}, func(l *lab) { l.source.set(func() { clear(l.source.status) }) }, 12 * time.Second},
		"the server was down": {func(l *lab) {
			l.source.write("zdb")
			l.park("root", "zdb")
			l.source.set(func() { l.source.down = true })
		}, func(l *lab) { l.source.set(func() { l.source.down = false }) }, 30 * time.Second},
		"the settings have a login": {func(*lab) {}, func(l *lab) {
			l.set("replicator.watches/"+server+"=root:s3cret", "replicator/max_questions_per_sec=1")
		}, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				l.set("replicator/max_questions_per_sec=1")
				l.users(50)
				test.before(l)
				n := l.start()
				l.until(n.asks(1))
				time.Sleep(7 * time.Minute)
				require.Zero(t, n.Counts().Feeds)
				test.news(l)
				require.LessOrEqual(t, l.until(n.follows(1)), test.within)
			})
		})
	}
}

// A server may come back at any moment of a walk, which has not tried all logins then.
func TestServerComesBack(t *testing.T) {
	for left := 5; left <= 60; left += 5 {
		t.Run(fmt.Sprint(left), func(t *testing.T) {
			inLab(t, func(l *lab) {
				l.set("replicator/max_questions_per_sec=1")
				l.users(50)
				l.source.write("zdb")
				l.park("root", "zdb")
				l.source.set(func() { l.source.down = true })
				n := l.start()
				l.until(n.asks(1))
				time.Sleep(time.Minute)
				l.source.set(func() { l.source.left = left })
				require.LessOrEqual(t, l.until(n.follows(1)), 30*time.Second)
			})
		})
	}
}

// Credentials go with the job that has them: when it is removed or gets others, another job's are used.
func TestCredentialsGo(t *testing.T) {
	inLab(t, func(l *lab) {
		l.source.admins["boss"] = "pw2"
		l.source.write("db", "two")
		id := l.park("boss", "db")
		n := l.start()
		l.until(n.follows(1))
		two := l.park("root", "two")
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
