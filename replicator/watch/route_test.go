package watch_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/couch/couchtest"
)

// A user whose job has a proxy or a header of its own, so that another machine answers for the server, is told nothing of
// the server's other jobs, and tells them nothing.
func TestWhoAnswersDecidesWhatIsShared(t *testing.T) {
	for name, own := range map[string]string{
		"a proxy":               `"source":"http://eve:s3cret@a.example/payroll","source_proxy":"http://proxy.example:3128"`,
		"a Host":                `"source":{"url":"http://eve:s3cret@a.example/payroll","headers":{"Host":"evil.example"}}`,
		"a header of a gateway": `"source":{"url":"http://eve:s3cret@a.example/payroll","headers":{"X-Backend":"evil"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				source, evil := newSource(t), newSource(t)
				evil.admins["eve"], evil.instance = "s3cret", "1700000077"
				gateway := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Host != "a.example" || r.Header.Get("X-Backend") != "" {
						evil.ServeHTTP(w, r)
						return
					}
					source.ServeHTTP(w, r)
				})
				l := newLab(t, source, couchtest.Pipe(t, map[string]http.Handler{"a.example": gateway, "evil.example": evil}))
				source.write("payroll", "db")
				evil.write("payroll")
				eves := l.parkSource(`"1-x"`, own+`,"target":"http://b.example/eve"`)
				roots, anns := l.park("root", "payroll"), l.park("ann", "db")
				n := l.start()
				l.until(n.follows(2))
				l.sleeps(3*time.Hour, eves, roots, anns)
				require.Equal(t, []int{1, 1}, []int{source.open(), evil.open()})
				require.Empty(t, evil.requests("root"), "the machine is given the login of others")
				require.Empty(t, evil.requests("ann"))
				require.Empty(t, source.requests("eve"))

				evil.write("db", "payroll") // hers alone
				l.woken(eves)
				source.write("payroll")
				took, _ := l.woken(roots)
				require.Less(t, took, time.Second)
				source.write("db")
				l.woken(anns)

				// The login of the settings is for the server, and not for who answers in its name.
				evil.requests("")
				l.set("replicator.watches/http://a.example/=root:s3cret")
				time.Sleep(2 * time.Hour)
				require.Empty(t, evil.requests("root"))
			})
		})
	}
}

// A user with many servers, which a prefix in the URL makes for free, does not keep another user's changes from being found,
// and what waits for its turn counts in the lag.
func TestUsersTakeTurns(t *testing.T) {
	// A question comes after a quarter of the time for which a job has been parked.
	for name, within := range map[string]time.Duration{"feeds": 20 * time.Second, "questions": time.Minute} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				l.set("replicator/max_watches=5")
				l.source.manyServers()
				l.source.write("db", "hers")
				eve := "eve"
				l.source.set(func() { l.source.readers["bob"] = "pw" })
				login := map[string]string{"feeds": "root", "questions": "ann"}[name]
				l.user = &eve
				l.park(login, "db") // the watch of bob's server is hers at first
				for i := range 40 {
					l.parkAt(fmt.Sprintf("http://a.example/s%d/", i), login, "db")
				}
				n := l.start()
				l.until(func() bool { return n.Counts().Feeds+n.Counts().Questioned == 5 })
				time.Sleep(time.Minute)
				require.Greater(t, n.Counts().Lag, 10*time.Second, "others wait")
				l.user = new(string)
				*l.user = "bob"
				id := l.park(login, "hers")
				time.Sleep(3 * time.Minute)
				for range 5 {
					l.source.write("hers")
					took, run := l.woken(id)
					require.LessOrEqual(t, took, within)
					l.parkRun(run, server, "hers", `"`+l.source.seq("hers")+`"`)
					time.Sleep(10 * time.Second)
				}
				// All of hers are looked at, too.
				l.source.requests("")
				time.Sleep(3 * time.Minute)
				require.Less(t, n.Counts().Lag, 3*time.Minute)
				for i := range 40 {
					require.NotEmpty(t, slices.Concat(l.source.requests(fmt.Sprintf("%s GET /s%d/", login, i)),
						l.source.requests(fmt.Sprintf("%s POST /s%d/", login, i))), i)
				}
			})
		})
	}
}
