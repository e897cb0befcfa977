package config_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/config"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/faultkv"
	"settee/pkg/kv/memkv"
	"settee/pkg/tuple"
)

var layerPrefix = []byte("config/")

// node is the configuration of a node.
type node struct {
	*testing.T
	*config.Live
	log *testkit.Journal
}

// open opens the configuration of a node.
func open(t *testing.T, db kv.Database, o config.Options) *node {
	t.Helper()
	n := &node{T: t, log: &testkit.Journal{}}
	var err error
	n.Live, err = config.OpenLive(t.Context(), load(t, o), config.LiveOptions{
		Store: db, Prefix: layerPrefix, Files: o.Files, Log: zerolog.New(n.log),
	})
	require.NoError(t, err)
	return n
}

// follow makes the node follow the store until the test ends.
func (n *node) follow() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { assert.ErrorIs(n, n.Live.Run(ctx), context.Canceled) })
	n.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// await waits until the current configuration has the wanted value.
func (n *node) await(wanted func(*config.Config) bool) {
	n.Helper()
	for {
		changed := n.Changed()
		if wanted(n.Current()) {
			return
		}
		select {
		case <-changed:
		case <-n.Context().Done():
			require.Fail(n, "the configuration did not change as expected")
		}
	}
}

func (n *node) set(section, key, text string) (old string) {
	n.Helper()
	old, err := n.Set(n.Context(), section, key, text)
	require.NoError(n, err)
	return old
}

func (n *node) refused(section, key, text, reason string) {
	n.Helper()
	_, err := n.Set(n.Context(), section, key, text)
	var refused *config.RefusedError
	require.ErrorAs(n, err, &refused)
	require.Contains(n, refused.Reason, reason)
}

func (n *node) shown(section, key string) string { return n.Current().Shown()[section][key] }

func hasJobs(want int) func(*config.Config) bool {
	return func(c *config.Config) bool { return config.MaxJobs.Get(c) == want }
}

func TestSetReachesOtherNodes(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		one, other := open(t, db, config.Options{}), open(t, db, config.Options{})
		other.follow()
		first := other.Current()

		require.Equal(t, "500", one.set("replicator", "max_jobs", "7"), "the default")
		require.Equal(t, 7, config.MaxJobs.Get(one.Current()), "at once on the node that set it")
		other.await(hasJobs(7))
		require.Equal(t, "store", config.MaxJobs.From(other.Current()))
		require.Equal(t, 500, config.MaxJobs.Get(first), "a Config does not change")

		require.Equal(t, "7", one.set("replicator", "max_jobs", "8"))
		other.await(hasJobs(8))
		require.Empty(t, one.set("replicator.shares", "a/_replicator", "200"), "there was no value")
		other.await(func(c *config.Config) bool { return config.Shares.Get(c)["a/_replicator"] == 200 })

		old, err := one.Delete(t.Context(), "replicator", "max_jobs")
		require.NoError(t, err)
		require.Equal(t, "8", old)
		other.await(hasJobs(500))
		_, err = one.Delete(t.Context(), "replicator", "max_jobs")
		require.ErrorIs(t, err, config.ErrNotSet)

		late := open(t, db, config.Options{})
		require.Equal(t, map[string]int{"a/_replicator": 200}, config.Shares.Get(late.Current()), "the value stays")
		require.Contains(t, other.log.String(), `"setting":"[replicator] max_jobs","value":"7","was":"500","from":"store"`)
	})
}

// An empty value in the store is shown, at all nodes, and the value of another origin has its effect.
func TestEmptyValues(t *testing.T) {
	t.Parallel()
	db := enginetest.Memory(t)
	n := open(t, db, config.Options{Flags: []string{"log/level=error"}})
	n.set("replicator", "max_jobs", "7")
	require.Equal(t, "7", n.set("replicator", "max_jobs", ""))
	require.Empty(t, n.set("replicator", "max_jobs", ""))
	n.set("admins", "ann", "-pbkdf2-ab,cd,10")
	for _, name := range [][2]string{
		{"cors", "origins"}, {"chttpd_auth", "secret"}, {"replicator.shares", "a"}, {"httpd", "enable_cors"}, {"vendor", "name"}, {"x", "password"},
		{"log", "level"}, {"admins", "ann"},
	} {
		n.set(name[0], name[1], "")
	}
	for _, n := range []*node{n, open(t, db, config.Options{Flags: []string{"log/level=error"}})} {
		c := n.Current()
		require.Equal(t, 500, config.MaxJobs.Get(c))
		require.Nil(t, config.Shares.Get(c))
		require.Empty(t, config.Admins.Get(c))
		require.False(t, config.EnableCORS.Get(c))
		for _, name := range [][2]string{
			{"replicator", "max_jobs"}, {"cors", "origins"}, {"chttpd_auth", "secret"}, {"replicator.shares", "a"}, {"httpd", "enable_cors"},
			{"vendor", "name"}, {"x", "password"},
		} {
			text, shown := c.Shown()[name[0]][name[1]]
			require.True(t, shown, name)
			require.Empty(t, text, name)
			require.Equal(t, "store", c.Sourced()[name[0]][name[1]].Origin, name)
		}
		require.Equal(t, "false", c.Shown()["chttpd"]["enable_cors"])
		require.Equal(t, "error", c.Shown()["log"]["level"], "a flag is stronger")
		require.NotContains(t, c.Shown(), "admins")
		require.NotContains(t, n.log.String(), "ignored")
	}
	n.refused("settee", "store", "", "it is read only when a node starts")
	n.refused("settee", "typo", "", "it is not a setting")
	_, err := n.Delete(t.Context(), "replicator", "max_jobs")
	require.NoError(t, err)
	require.Equal(t, "500", n.shown("replicator", "max_jobs"))
}

func TestSetReplacesOtherSpellings(t *testing.T) {
	t.Parallel()
	n := open(t, enginetest.Memory(t), config.Options{})
	n.set("replicator", "interval", "60000")
	require.Equal(t, "60000", n.shown("replicator", "interval"))
	require.Empty(t, n.set("replicator", "interval_sec", "5"))
	require.Equal(t, 5*time.Second, config.Interval.Get(n.Current()))
	require.Empty(t, n.shown("replicator", "interval"))
	_, err := n.Delete(t.Context(), "replicator", "interval")
	require.ErrorIs(t, err, config.ErrNotSet)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	n := open(t, enginetest.Memory(t), config.Options{Flags: []string{"replicator/max_backoff_penalty_sec=1000"}})
	const atStart = "it is read only when a node starts"
	for _, tt := range []struct{ section, key, text, reason string }{
		{"replicator", "max_jobs", "many", `[replicator] max_jobs (request): "many" is refused: it must be a whole number from 0`},
		{"replicator", "usage_coeff", "-2", "it must be a number from 0 to 1"},
		{"replicator.shares", "_replicator", "-1", "it must be a whole number from 0 to 1000"},
		{"replicator", "max_jbos", "7", "[replicator] max_jbos: it is not a setting"},
		{"node_types", "view_indexing", "true", "it is not a setting"},
		{"settee", "store", "mem:", atStart},
		{"node_types", "replication", "false", atStart},
		{"chttpd", "port", "1", atStart},
		{"chttpd", "bind_address", "::", atStart},
		{"couchdb", "uuid", "1", atStart},
		{"admins", "root", "hunter2", "[admins] root: the store accepts only hashed passwords"},
		{"chttpd_auth", "password_scheme", "hunter2", "a secret that has no effect is not stored: new passwords are hashed with PBKDF2"},
		{"other", "password", "hunter2", "a secret that has no effect is not stored"},
		{"replicator", "min_backoff_penalty_sec", "1001", "which is more than [replicator] max_backoff_penalty_sec, 1000 (--set)"},
		{"replicator", "startup_jitter", "1\n2", "one line"},
		{"settee", "store", strings.Repeat("x", 10_001), "it has 10001 bytes, and may have 10000"},
		{"", "x", "1", "the name of a section or a key"},
		{"x", "", "1", "the name of a section or a key"},
		{"x]\n[log", "level", "1", "the name of a section or a key"},
		{" x", "y", "1", "the name of a section or a key"},
		{"x", "y\xff", "1", "the name of a section or a key"},
		{"x", strings.Repeat("y", 1001), "1", "the name of a section or a key"},
		{"x", "a = b", "1", "does not fit a line of an ini file"},
		{"x", "a ;b", "1", "does not fit a line of an ini file"},
	} {
		t.Run(tt.section+"/"+tt.key, func(t *testing.T) {
			n.refused(tt.section, tt.key, tt.text, tt.reason)
		})
	}
	require.NotContains(t, n.log.String(), "hunter2")
	_, err := n.Set(t.Context(), "log", "level", "loud")
	var bad *config.ValueError
	require.ErrorAs(t, err, &bad)
	require.Equal(t, "level", bad.Key)
	require.Equal(t, "loud", bad.Shown)
	require.Equal(t, new(config.Config).Shown()["log"], n.Current().Shown()["log"])
}

func TestUnusedSettingsAreKept(t *testing.T) {
	t.Parallel()
	n := open(t, enginetest.Memory(t), config.Options{})
	for _, v := range []config.Value{
		{Section: "replicator", Key: "startup_jitter", Text: "5000"},
		{Section: "couchdb", Key: "max_dbs_open", Text: "100"},
		{Section: "mango", Key: "default_limit", Text: "25"},
		{Section: "own", Key: "url", Text: "http://u:hunter2@host/"},
	} {
		require.Empty(t, n.set(v.Section, v.Key, v.Text))
	}
	require.Equal(t, "http://****@host/", n.set("own", "url", "x"))
	require.Equal(t, "5000", n.shown("replicator", "startup_jitter"))
	require.Equal(t, "25", n.shown("mango", "default_limit"))
	require.Contains(t, n.log.String(), "[replicator] startup_jitter, store: has no effect: accept_jitter spreads the starts of jobs")
	require.Contains(t, n.log.String(), "[couchdb] max_dbs_open, store: is not used by settee")
	require.Equal(t, 1, strings.Count(n.log.String(), "max_dbs_open"), "said once")
	require.NotContains(t, n.log.String(), "hunter2")
}

func TestOverriddenStoredValue(t *testing.T) {
	t.Parallel()
	n := open(t, enginetest.Memory(t), config.Options{Flags: []string{"replicator/interval_sec=5"}})
	require.Empty(t, n.set("replicator", "interval", "60000"), "the other spelling is in effect")
	require.Equal(t, 5*time.Second, config.Interval.Get(n.Current()))
	require.Contains(t, n.log.String(), `"setting":"[replicator] interval","from":"--set",`)
	require.Contains(t, n.log.String(), "has no effect on this node")
}

func TestContradictionsInTheStore(t *testing.T) {
	t.Parallel()
	db := enginetest.Memory(t)
	n := open(t, db, config.Options{})
	n.set("replicator", "max_backoff_penalty_sec", "400000")
	n.set("replicator", "min_backoff_penalty_sec", "300000")
	_, err := n.Delete(t.Context(), "replicator", "max_backoff_penalty_sec")
	var refused *config.RefusedError
	require.ErrorAs(t, err, &refused)
	require.Contains(t, refused.Reason, "min_backoff_penalty_sec is 300000 (store), which is more than [replicator] max_backoff_penalty_sec, 172800 (default)")

	// It contradicts the files of another node, which keeps running with its own values.
	path := file(t, "local.ini", "[replicator]\nmax_jobs = 3")
	other := open(t, db, config.Options{Files: []string{path}, Flags: []string{"replicator/max_backoff_penalty_sec=100"}})
	require.Equal(t, 32*time.Second, config.MinBackoffPenalty.Get(other.Current()))
	require.Equal(t, 100*time.Second, config.MaxBackoffPenalty.Get(other.Current()))
	require.Contains(t, other.log.String(), "[replicator] min_backoff_penalty_sec, store: ignored: ")
	other.refused("replicator", "max_backoff_penalty_sec", "500000", "which is more than")
	other.set("replicator", "max_jobs", "9")
	other.set("replicator", "min_backoff_penalty_sec", "90")
	require.Equal(t, 90*time.Second, config.MinBackoffPenalty.Get(other.Current()))
	require.NoError(t, other.Reload())
	require.Equal(t, 9, config.MaxJobs.Get(other.Current()))
}

// Values stored by another version of settee are ignored, and the others apply.
func TestUnusableRowsAreIgnored(t *testing.T) {
	t.Parallel()
	db := enginetest.Memory(t)
	n := open(t, db, config.Options{})
	n.follow()
	space := tuple.SubspaceFromBytes(layerPrefix)
	require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) error {
		for _, row := range [][3]string{
			{"replicator", "max_jobs", "plenty"},
			{"replicator", "of_the_future", "1"},
			{"replicator.shares", "a/_replicator", "many"},
			{"settee", "store", "mem:"},
			{"log", "level", "debug"},
		} {
			tx.Set(space.Pack("value", row[0], row[1]), []byte(row[2]))
		}
		tx.Set(space.Pack("value", "odd"), []byte("x"))
		tx.Set(space.Pack("value", 7, "odd"), []byte("x"))
		tx.Set(space.Pack("changes"), []byte("other"))
		return nil
	}))
	n.await(func(c *config.Config) bool { return config.LogLevel.Get(c) == zerolog.DebugLevel })
	for _, c := range []*config.Config{n.Current(), open(t, db, config.Options{}).Current()} {
		require.Equal(t, 500, config.MaxJobs.Get(c))
		require.Nil(t, config.Shares.Get(c))
		require.Equal(t, "pebble:./data", config.Store.Get(c))
		require.Equal(t, zerolog.DebugLevel, config.LogLevel.Get(c))
	}
	require.Eventually(t, func() bool { // the warning follows the change
		said := n.log.String()
		return strings.Contains(said, "[replicator] max_jobs, store: ignored: it must be a whole number") &&
			strings.Contains(said, "[settee] store, store: ignored: ")
	}, time.Minute, time.Millisecond)

	// They can be replaced and removed.
	require.Equal(t, "500", n.set("replicator", "max_jobs", "5"), "the text in effect, not the stored one")
	for _, key := range []string{"of_the_future", "max_jobs"} {
		_, err := n.Delete(t.Context(), "replicator", key)
		require.NoError(t, err)
	}
	old, err := n.Delete(t.Context(), "settee", "store")
	require.NoError(t, err)
	require.Equal(t, "mem:", old)
}

func TestStoreLimits(t *testing.T) {
	t.Parallel()
	db := enginetest.Memory(t)
	long := strings.Repeat("x", 10_000)
	require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) error {
		for i := range 99 {
			tx.Set(tuple.SubspaceFromBytes(layerPrefix).Pack("value", "vendor", fmt.Sprint(i)), []byte(long))
		}
		return nil
	}))
	n := open(t, db, config.Options{})
	n.refused("vendor", "more", long, "the store takes 1000000 bytes of settings, and has ")
	n.set("vendor", "98", "short")
	n.set("vendor", "more", long)
	n.refused("vendor", "98", long, "the store takes 1000000 bytes")
}

// Every commit succeeds and is reported as unknown once: each answer is still right.
func TestUnknownResults(t *testing.T) {
	t.Parallel()
	n := open(t, enginetest.UnknownOnce(enginetest.Memory(t)), config.Options{})
	require.Equal(t, "500", n.set("replicator", "max_jobs", "7"))
	require.Equal(t, "7", n.set("replicator", "max_jobs", "8"))
	require.Equal(t, "8", n.set("replicator", "max_jobs", "8"))
	old, err := n.Delete(t.Context(), "replicator", "max_jobs")
	require.NoError(t, err)
	require.Equal(t, "8", old)
	_, err = n.Delete(t.Context(), "replicator", "max_jobs")
	require.ErrorIs(t, err, config.ErrNotSet)
	n.refused("replicator", "max_jobs", "many", "it must be")
}

// Other changes follow between a commit and the discovery that it was made.
func TestUnknownResultFollowedByOtherChanges(t *testing.T) {
	t.Parallel()
	db := enginetest.Memory(t)
	one := open(t, db, config.Options{})
	var once sync.Once
	other := open(t, faultkv.Wrap(db, faultkv.Options{Script: func(c faultkv.Call) faultkv.Fault {
		if c.Run == 2 {
			once.Do(func() {
				require.Equal(t, "7", one.set("replicator", "max_jobs", "8"))
				require.Equal(t, "8", one.set("replicator", "max_jobs", "9"))
			})
		}
		return faultkv.UnknownOnce(c)
	}}), config.Options{})
	require.Equal(t, "500", other.set("replicator", "max_jobs", "7"))
	require.Equal(t, 9, config.MaxJobs.Get(other.Current()), "it is not written twice")
}

// Concurrent Sets from several nodes, with faults, are serializable: each returns the value of
// the one before.
func TestConcurrentSets(t *testing.T) {
	t.Parallel()
	db := enginetest.Memory(t)
	var mu sync.Mutex
	after := map[string]string{} // the value that replaced a value
	var setting sync.WaitGroup
	for i := range 4 {
		faulty := faultkv.Wrap(db, faultkv.Options{Seed: uint64(i), Rates: faultkv.Rates{
			faultkv.Conflict: 0.2, faultkv.UnknownCommitted: 0.3, faultkv.UnknownNotCommitted: 0.1,
		}})
		n := open(t, faulty, config.Options{})
		n.follow()
		setting.Go(func() {
			for j := range 25 {
				text := fmt.Sprint(1000*(i+1) + j)
				old, err := n.Set(t.Context(), "replicator", "max_jobs", text)
				mu.Lock()
				if assert.NoError(t, err) {
					assert.NotContains(t, after, old)
				}
				after[old] = text
				mu.Unlock()
			}
		})
	}
	setting.Wait()
	require.Len(t, after, 100)
	text := "500"
	for range 100 {
		text = after[text]
	}
	last := open(t, db, config.Options{})
	require.Equal(t, text, last.shown("replicator", "max_jobs"))
}

func TestReload(t *testing.T) {
	t.Parallel()
	path := file(t, "local.ini", "[replicator]\nmax_jobs = 3\n[chttpd]\nport = 1")
	n := open(t, enginetest.Memory(t), config.Options{Files: []string{path}, Flags: []string{"log/level=error"}})
	n.set("replicator", "max_history", "20")

	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	write("[replicator]\nmax_jobs = 4\nmax_history = 30\nmax_jbos = 1\n[log]\nlevel = debug\n[chttpd]\nport = 2")
	changed := n.Changed()
	require.NoError(t, n.Reload())
	<-changed
	require.Equal(t, 4, config.MaxJobs.Get(n.Current()))
	require.Equal(t, path+":2", config.MaxJobs.From(n.Current()))
	require.Equal(t, 20, config.MaxHistory.Get(n.Current()), "the store overrides files")
	require.Equal(t, zerolog.ErrorLevel, config.LogLevel.Get(n.Current()), "flags do not change")
	require.Contains(t, n.log.String(), `"setting":"[replicator] max_jobs","value":"4","was":"3"`)
	require.Contains(t, n.log.String(), "[replicator] max_jbos, "+path+":4: is not a setting")
	require.Contains(t, n.log.String(), `"setting":"[chttpd] port","from":"`+path+`:8","message":"the setting has changed since the node started`)

	before, changed := n.Current(), n.Changed()
	write("[replicator]\nmax_jobs = x\nmax_history = y")
	require.ErrorContains(t, n.Reload(), `[replicator] max_jobs (`+path+`:2): "x" is refused`)
	require.ErrorContains(t, n.Reload(), `[replicator] max_history (`+path+`:3): "y" is refused`)
	require.NoError(t, os.Remove(path))
	require.ErrorIs(t, n.Reload(), os.ErrNotExist)
	require.Same(t, before, n.Current())
	select {
	case <-changed:
		require.Fail(t, "nothing has changed")
	default:
	}
}

func TestConcurrentReloads(t *testing.T) {
	t.Parallel()
	path := file(t, "local.ini", "[replicator]\nmax_jobs = 3")
	n := open(t, enginetest.Memory(t), config.Options{Files: []string{path}})
	n.follow()
	require.NoError(t, os.WriteFile(path, []byte("[replicator]\nmax_jobs = 4"), 0o600))
	var reloading sync.WaitGroup
	for i := range 8 {
		reloading.Go(func() { assert.NoError(t, n.Reload()) })
		reloading.Go(func() {
			_, err := n.Set(t.Context(), "replicator.shares", fmt.Sprint(i), "7")
			assert.NoError(t, err)
		})
	}
	reloading.Wait()
	require.Equal(t, 4, config.MaxJobs.Get(n.Current()))
	require.Len(t, config.Shares.Get(n.Current()), 8)
}

func TestStoreThatFailsForAWhile(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		inner := enginetest.Memory(t)
		db := enginetest.Control(inner)
		n, other := open(t, db, config.Options{}), open(t, inner, config.Options{})
		n.follow()
		synctest.Wait()
		began := db.Transactions.Load()
		db.Fail(errors.New("no quorum"))
		other.set("replicator", "max_jobs", "7") // ends the watch
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.Equal(t, 500, config.MaxJobs.Get(n.Current()))
		require.Contains(t, n.log.String(), "no quorum")
		db.Fail(nil)
		require.Less(t, db.Transactions.Load()-began, int64(30), "it is not read all the time")
		time.Sleep(30 * time.Second)
		synctest.Wait()
		require.Equal(t, 7, config.MaxJobs.Get(n.Current()))

		closed := open(t, db, config.Options{})
		db.Fail(kv.ErrClosed)
		require.ErrorIs(t, closed.Live.Run(t.Context()), kv.ErrClosed)
		db.Fail(nil)
	})
}

// A watch may miss a change, or be refused.
func TestWatchesThatFail(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, opts memkv.Options, within time.Duration) {
		testkit.Bubble(t, func(t *testing.T) {
			inner := enginetest.MemoryWith(t, opts)
			db := faultkv.Wrap(inner, faultkv.Options{Script: func(c faultkv.Call) faultkv.Fault {
				if c.Op == faultkv.Watch {
					return faultkv.LostWatch
				}
				return faultkv.None
			}})
			hungry, n, other := open(t, inner, config.Options{}), open(t, db, config.Options{}), open(t, inner, config.Options{})
			hungry.follow()
			synctest.Wait()
			n.follow()
			synctest.Wait()
			other.set("replicator", "max_jobs", "7")
			time.Sleep(within)
			synctest.Wait()
			require.Equal(t, 7, config.MaxJobs.Get(hungry.Current()))
			require.Equal(t, 7, config.MaxJobs.Get(n.Current()))
		})
	}
	t.Run("lost", func(t *testing.T) { test(t, memkv.Options{}, 30*time.Second) })
	t.Run("too many", func(t *testing.T) { test(t, memkv.Options{MaxWatches: 1}, time.Second) })
}

func TestOpenLiveWithoutTheStore(t *testing.T) {
	t.Parallel()
	db := enginetest.Control(enginetest.Memory(t))
	n := open(t, db, config.Options{})
	db.Fail(errors.New("no quorum"))
	_, err := config.OpenLive(t.Context(), new(config.Config), config.LiveOptions{Store: db})
	require.ErrorContains(t, err, "reading the configuration in the store: no quorum")
	_, err = n.Set(t.Context(), "replicator", "max_jobs", "7")
	require.ErrorContains(t, err, "no quorum")
	var refused *config.RefusedError
	require.NotErrorAs(t, err, &refused)
}

func TestShown(t *testing.T) {
	t.Parallel()
	cfg := load(t, config.Options{Files: []string{"testdata/local.ini"}, Flags: []string{"replicator/worker_processes=8"}})
	shown := cfg.Shown()
	require.Equal(t, "8", shown["replicator"]["worker_processes"])
	require.Equal(t, "60000", shown["replicator"]["interval"])
	require.NotContains(t, shown["replicator"], "interval_sec")
	require.Equal(t, "2", shown["replicator"]["max_acceptors"], "a default")
	require.Equal(t, map[string]string{"_replicator": "100", "high/_replicator": "200"}, shown["replicator.shares"])
	require.Equal(t, map[string]string{"root": "****"}, shown["admins"])
	require.Equal(t, "****", shown["replicator"]["password"])
	require.Equal(t, map[string]string{"url": "http://****@search.example.invalid:5987"}, shown["nouveau"])
	require.NotContains(t, new(config.Config).Shown()["couchdb"], "uuid", "empty texts are left out")
	require.NotContains(t, new(config.Config).Shown(), "replicator.shares")
}

// If several nodes set the first administrator, one of them succeeds.
func TestSetFirst(t *testing.T) {
	t.Parallel()
	const hashed = "-hashed-c88e9c67041a74e0357befdff93f87dde0904214,salt"
	db := enginetest.Memory(t)
	nodes := []*config.Live{open(t, db, config.Options{}).Live, open(t, db, config.Options{}).Live}
	first := make([]bool, len(nodes))
	var setting sync.WaitGroup
	for i, node := range nodes {
		setting.Go(func() {
			var err error
			first[i], err = node.SetFirst(t.Context(), "admins", "admin", hashed+strconv.Itoa(i))
			assert.NoError(t, err)
		})
	}
	setting.Wait()
	require.NotEqual(t, first[0], first[1])
	want := map[string]string{"admin": hashed + map[bool]string{true: "0", false: "1"}[first[0]]}
	for _, node := range nodes {
		require.Equal(t, want, config.Admins.Get(node.Current()))
	}
	_, err := open(t, enginetest.Memory(t), config.Options{}).SetFirst(t.Context(), "admins", "admin", "hunter2")
	var refused *config.RefusedError
	require.ErrorAs(t, err, &refused)
}

func TestAdminFromTheEnvironment(t *testing.T) {
	t.Parallel()
	for want, environ := range map[string][]string{
		"pass=word": {"COUCHDB_PASSWORD=pass=word", "COUCHDB_USER=ann"},
		"":          {"COUCHDB_USER=ann", "COUCHDB_PASSWORD="},
	} {
		cfg := load(t, config.Options{Environ: environ})
		require.Equal(t, want, config.Admins.Get(cfg)["ann"])
	}
}

func TestAccountSettings(t *testing.T) {
	t.Parallel()
	cfg := load(t, config.Options{Flags: []string{
		"chttpd/authentication_handlers={chttpd_auth, jwt_authentication_handler},{couch_httpd_auth,default_authentication_handler}",
		`jwt_auth/required_claims=exp, {iss, "me"}`,
		"chttpd_auth/hash_algorithms=sha512, sha",
		"chttpd_auth/same_site=Strict",
	}})
	require.Equal(t, []string{"jwt", "default"}, config.AuthenticationHandlers.Get(cfg))
	require.Equal(t, []string{"cookie", "default"}, config.AuthenticationHandlers.Get(new(config.Config)))
	require.Equal(t, []string{"sha512", "sha"}, config.HashAlgorithms.Get(cfg))
	require.Equal(t, "strict", config.SameSite.Get(cfg))
	for text, want := range map[string][]string{
		"a": {"a"}, "a.b.c": {"a", "b", "c"}, `my\.app.roles`: {"my.app", "roles"}, `a\.b\.c`: {"a.b.c"}, `a\\.b`: {`a\.b`},
		`a\b.c\`: {`a\b`, `c\`}, `\.`: {"."},
	} {
		require.Equal(t, want, config.RolesClaimPath.Get(load(t, config.Options{Flags: []string{"jwt_auth/roles_claim_path=" + text}})), text)
	}
	require.Nil(t, config.RolesClaimPath.Get(cfg))
	for _, bad := range []string{
		"jwt_auth/roles_claim_path=a..b",
		"jwt_auth/roles_claim_path=.a",
		"jwt_auth/roles_claim_path=a.",
		"chttpd/authentication_handlers={other_auth, proxy_authentication_handler}",
		"chttpd/authentication_handlers={chttpd_auth, null_authentication_handler}",
		"chttpd/authentication_handlers=cookie",
		`jwt_auth/required_claims={iss}`,
		"chttpd_auth/hash_algorithms=md5",
		"chttpd_auth/same_site=off",
		"chttpd_auth/iterations=0",
	} {
		_, _, err := config.Load(config.Options{Flags: []string{bad}})
		var wrong *config.ValueError
		require.ErrorAs(t, err, &wrong, bad)
	}
}
