package worker_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/couch/couchtest"
	"settee/replicator"
	"settee/replicator/worker"
)

func TestSecurityDigest(t *testing.T) {
	t.Parallel()
	one := worker.SecurityDigest(json.RawMessage(`{"admins":{"names":["a"]},"n":1.10}`))
	require.Len(t, one, 32)
	for text, same := range map[string]bool{
		"{ \"n\" : 1.10,\n\"admins\":{\"names\":[\"\\u0061\"]}}": true,
		`{"admins":{"names":["b"]},"n":1.10}`:                    false,
		`{"admins":{"names":["a"]}}`:                             false,
		`{}`:                                                     false,
	} {
		require.Equal(t, same, worker.SecurityDigest(json.RawMessage(text)) == one, text)
	}
}

// guarded is the `_security` object of a stub.
type guarded struct {
	mu     sync.Mutex
	object string
}

// guard gives a stub a `_security` object.
func guard(s *stub, object string) *guarded {
	g := &guarded{object: object}
	s.on("GET /_security", func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		_, err := io.WriteString(w, g.now())
		return err == nil
	})
	s.on("PUT /_security", func(w http.ResponseWriter, _ *http.Request, body []byte) bool {
		g.set(string(body))
		_, err := io.WriteString(w, `{"ok":true}`)
		return err == nil
	})
	return g
}

func (g *guarded) now() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.object
}

func (g *guarded) set(object string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.object = object
}

// mirrored makes a replication one that a mirror has made.
func mirrored(rep *replicator.Replication) *replicator.Replication {
	rep.Mirrored = &replicator.Mirrored{Security: true}
	return rep
}

// mirroredLot is a lot whose job copies `_security`.
func mirroredLot(t *testing.T) (l *lot, source, target *guarded) {
	l = newLot(t)
	l.rep = mirrored(l.rep)
	l.state.Target.Claim = replicator.TargetMade
	return l, guard(l.source.stub, `{"admins":{"names":["ann"]}}`), guard(l.target.stub, `{"admins":{"roles":["_admin"]}}`)
}

// count returns how many of some requests are one.
func count(requests []string, one string) (n int) {
	for _, request := range requests {
		if request == one {
			n++
		}
	}
	return n
}

// A run of a mirror's job copies `_security` at its start, before any document. A woken one asks the source once, before it
// parks again.
func TestSecurityIsCopied(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		l, source, target := mirroredLot(t)
		l.source.change("d")
		l.patiently(l.begin(false))
		require.Equal(t, source.now(), target.now())
		written := l.target.asked()
		require.Less(t, strings.Index(strings.Join(written, " "), "PUT /_security"), strings.Index(strings.Join(written, " "), "POST /_bulk_docs"))
		require.Equal(t, worker.SecurityDigest(json.RawMessage(source.now())), l.state.Security)

		wake := func() {
			l.source.reset()
			l.target.reset()
			l.patiently(l.begin(true))
		}
		l.source.change("e")
		wake()
		require.Len(t, append(l.source.asked(), l.target.asked()...), maxWake+1)
		require.Equal(t, 1, count(l.source.asked(), "GET /_security"))
		require.Zero(t, count(l.target.asked(), "GET /_security"))

		source.set(`{"admins":{"names":["bob"]}}`)
		wake()
		require.Equal(t, source.now(), target.now())
		require.Equal(t, 1, count(l.target.asked(), "PUT /_security"))

		source.set(`{ "admins": {"names":["bob"]} }`) // the same
		wake()
		require.Zero(t, count(l.target.asked(), "PUT /_security"))

		// A run that is not woken compares both: the target may have been created anew.
		target.set(`{}`)
		l.patiently(l.begin(false))
		require.JSONEq(t, source.now(), target.now())
	})
}

// A change between the look at the object and the park is not what the run has noted. One before the look is copied.
func TestSecurityThatChangesWhileTheJobParks(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		l, source, target := mirroredLot(t)
		l.source.change("d")
		l.noting(func() error { // after the source's update_seq was read
			source.set(`{"members":{"names":["late"]}}`)
			return nil
		})
		l.patiently(l.begin(false))
		require.Equal(t, source.now(), target.now())
	})
}

// A run that is not idle for long looks at the object every SecurityInterval.
func TestSecurityThatChangesDuringARun(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		l, source, target := mirroredLot(t)
		l.cfg.SecurityInterval = 10 * time.Minute
		r := l.begin(false)
		time.Sleep(time.Minute)
		source.set(`{"members":{"names":["new"]}}`)
		time.Sleep(9 * time.Minute)
		synctest.Wait()
		require.Equal(t, source.now(), target.now())
		l.source.reset()
		time.Sleep(time.Hour)
		require.InDelta(t, 6, count(l.source.asked(), "GET /_security"), 1)
		r.stop()
		require.ErrorIs(t, r.ended(), worker.ErrStopped)
	})
}

// What a server refuses is an error that names the object, the database and the user. No document is copied then.
func TestSecurityThatIsRefused(t *testing.T) {
	const refusal = `{"error":"forbidden","reason":"You are not a db or server admin."}`
	for name, test := range map[string]struct {
		ill  func(source, target *stub)
		code string
		says string // empty: the run goes on
	}{
		"the source may not be read": {
			func(source, _ *stub) { source.fail("GET /_security", 403, refusal) }, "forbidden",
			`cannot read the _security object of the source database http://a.example/db/ without a user: You are not`,
		},
		"the target may not be written": {
			func(_, target *stub) { target.fail("PUT /_security", 401, refusal) }, "unauthorized",
			`cannot write the _security object of the target database http://b.example/db/ without a user, which only an administrator ` +
				`of the database or of the server may: You are not a db or server admin. (a mirror with "security": false leaves it alone)`,
		},
		"the target does not take it": {
			func(_, target *stub) {
				target.fail("PUT /_security", 400, `{"error":"bad_request","reason":"names must be"}`)
			}, "error",
			`cannot write the _security object of the target database http://b.example/db/ without a user: names must be`,
		},
		"the source has none": {
			func(source, _ *stub) { source.fail("GET /_security", 404, `{"error":"not_found","reason":"missing"}`) }, "", "",
		},
	} {
		testkit.RunBubble(t, name, func(t *testing.T) {
			l, _, _ := mirroredLot(t)
			l.source.change("d")
			test.ill(l.source.stub, l.target.stub)
			r := l.begin(false)
			if test.says == "" {
				l.patiently(r)
				require.True(t, l.copied("d"))
				return
			}
			var failure *worker.Error
			require.ErrorAs(t, r.ended(), &failure)
			require.Equal(t, test.code, failure.Code)
			require.Contains(t, failure.Reason, test.says)
			require.False(t, l.copied("d"))
		})
	}
}

// A refusal ends also a run that has begun well.
func TestSecurityThatIsRefusedLater(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		l, source, _ := mirroredLot(t)
		l.patiently(l.begin(false))
		source.set(`{"admins":{"names":["x"]}}`)
		l.target.stub.fail("PUT /_security", 403, `{"error":"forbidden","reason":"no"}`)
		r := l.begin(true)
		for range 3 {
			time.Sleep(2 * time.Second)
			l.parker.Ask()
		}
		require.ErrorContains(t, r.ended(), "cannot write the _security object")
	})
}

// pathOf returns the path of a URL.
func pathOf(t testing.TB, text string) string {
	t.Helper()
	u, err := url.Parse(text)
	require.NoError(t, err)
	return u.EscapedPath()
}

// The target of a mirror's job gets the parameters of the source, except those that the definition gives.
func TestMirroredTargets(t *testing.T) {
	server := couchtest.SharedCouchDB(t)
	source := server.DBWith(t, "source", "q=3&partitioned=true")
	server.Do(t, http.MethodPut, pathOf(t, source)+"/_security", []byte(`{"admins":{"names":["boss"]},"members":{"names":["ann"]}}`), http.StatusOK)
	post(t, source, `{"_id":"a:1"}`)
	described := func(database string) (info struct {
		Cluster struct{ Q, N int }
		Props   struct{ Partitioned bool }
	},
	) {
		require.NoError(t, json.Unmarshal(server.Do(t, http.MethodGet, pathOf(t, database), nil, http.StatusOK), &info))
		return info
	}
	for more, q := range map[string]int{``: 3, `"create_target_params":{"q":5}`: 5} {
		target := server.DB(t, "target")
		server.Remove(t, target)
		fields := []string{`"create_target":true`}
		if more != "" {
			fields = append(fields, more)
		}
		rep := mirrored(replication(t, source, target, fields...))
		result := run(t, rep)
		require.EqualValues(t, 1, result.Stats.DocsWritten)
		require.Equal(t, q, described(target).Cluster.Q)
		require.True(t, described(target).Props.Partitioned)
		require.JSONEq(t, string(server.Do(t, http.MethodGet, pathOf(t, source)+"/_security", nil, http.StatusOK)),
			string(server.Do(t, http.MethodGet, pathOf(t, target)+"/_security", nil, http.StatusOK)))
		require.NotEmpty(t, result.Security)
	}
}

// A target that does not take a parameter of the source gets the others. What the definition gives is not left out.
func TestParametersThatATargetRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		more   string
		refuse map[string]int // the status, by parameter
		asked  []string
		fails  bool
	}{
		"takes all":             {"", nil, []string{"n=3&partitioned=true&q=4"}, false},
		"has one node":          {"", map[string]int{"n": 400}, []string{"n=3&partitioned=true&q=4", "partitioned=true&q=4"}, false},
		"has no partitions":     {"", map[string]int{"partitioned": 501}, []string{"n=3&partitioned=true&q=4", "n=3&q=4"}, false},
		"has neither":           {"", map[string]int{"n": 400, "partitioned": 501}, []string{"n=3&partitioned=true&q=4", "partitioned=true&q=4", "q=4"}, false},
		"does not take the own": {`"create_target_params":{"n":2}`, map[string]int{"n": 400}, []string{"n=2&partitioned=true&q=4"}, true},
	} {
		testkit.RunBubble(t, name, func(t *testing.T) {
			l, _, _ := mirroredLot(t)
			fields := []string{`"continuous":true`, `"create_target":true`}
			if test.more != "" {
				fields = append(fields, test.more)
			}
			l.rep = mirrored(replication(t, "http://a.example/db", "http://b.example/db", fields...))
			source, target := l.source.stub, l.target.stub
			l.cfg = pipedTo(t, source, target)
			source.add("d", "1-a", `{"_id":"d","_rev":"1-a"}`)
			source.on("GET ", func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
				w.Header().Set("Server", "CouchDB/3.5.0 (Erlang OTP/25)")
				_, err := io.WriteString(w, `{"db_name":"db","update_seq":"1-x","instance_start_time":"1700000000",`+
					`"cluster":{"q":4,"n":3,"w":2,"r":2},"props":{"partitioned":true}}`)
				return err == nil
			})
			var mu sync.Mutex
			var asked []string
			created := false
			target.on("PUT ", func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, r.URL.Query().Encode())
				for _, parameter := range []string{"n", "partitioned"} {
					if status := test.refuse[parameter]; status != 0 && r.URL.Query().Has(parameter) {
						return refuse(w, status, `{"error":"x","reason":"not this parameter"}`)
					}
				}
				created = true
				_, err := io.WriteString(w, `{"ok":true}`)
				return err == nil
			})
			target.on("GET ", func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
				mu.Lock()
				defer mu.Unlock()
				return !created && refuse(w, 404, `{"error":"not_found","reason":"no_db_file"}`)
			})
			r := l.begin(false)
			time.Sleep(time.Minute)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, test.asked, asked)
			require.NotEqual(t, test.fails, created)
			r.stop()
		})
	}
}
