package pebblekv_test

import (
	"context"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
	"settee/pkg/kv/kvtest"
	"settee/pkg/kv/pebblekv"
)

func open(t *testing.T, dir string, opts pebblekv.Options) kv.Database {
	t.Helper()
	db, err := pebblekv.Open(dir, opts)
	require.NoError(t, err)
	return db
}

// clock is a clock that a test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// clocked is a database with a clock of its own.
type clocked struct {
	kv.Database
	*clock
}

func TestConformance(t *testing.T) {
	t.Parallel()
	kvtest.Run(t, func(t *testing.T) kv.Database {
		c := &clock{now: time.Unix(0, 0)}
		db := open(t, t.TempDir(), pebblekv.Options{Now: c.Now})
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return clocked{db, c}
	})
}

// stampedWrite commits one key that holds the commit's stamp and returns it.
func stampedWrite(ctx context.Context, db kv.Database) (kv.Versionstamp, error) {
	var stamp kv.Future[kv.Versionstamp]
	err := db.Transact(ctx, func(tx kv.Transaction) error {
		tx.SetVersionstampedKey(make([]byte, 14), []byte("x"))
		stamp = tx.Versionstamp()
		return nil
	})
	if err != nil {
		return kv.Versionstamp{}, err
	}
	return stamp.Await()
}

func TestReopen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var last string
	for range 5 {
		db := open(t, dir, pebblekv.Options{})
		stamp, err := stampedWrite(t.Context(), db)
		require.NoError(t, err)
		require.Greater(t, string(stamp[:]), last, "stamps grow across restarts")
		last = string(stamp[:])
		require.NoError(t, db.Close())
	}
	db := open(t, dir, pebblekv.Options{})
	pairs, err := kv.TransactValue(t.Context(), db, func(tx kv.Transaction) ([]kv.KeyValue, error) {
		return tx.GetRange(kv.PrefixRange(nil), kv.RangeOptions{}).Slice()
	})
	require.NoError(t, err)
	require.Len(t, pairs, 5)
	require.NoError(t, db.Close())
}

func TestClose(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir(), pebblekv.Options{})
	var armed kv.Watch
	require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) error {
		armed = tx.Watch([]byte("k"))
		return nil
	}))
	require.NoError(t, db.Close())
	require.ErrorIs(t, armed.Wait(t.Context()), kv.ErrClosed)
	require.ErrorIs(t, db.Close(), kv.ErrClosed)
	require.ErrorIs(t, db.Transact(t.Context(), func(kv.Transaction) error { return nil }), kv.ErrClosed)
}

func TestOneProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := open(t, dir, pebblekv.Options{})
	_, err := pebblekv.Open(dir, pebblekv.Options{})
	require.ErrorContains(t, err, dir)
	require.ErrorContains(t, err, "several nodes need FoundationDB")
	require.NoError(t, db.Close())
}

func TestURL(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db, err := kv.Open(t.Context(), (&url.URL{Scheme: "pebble", Path: dir}).String())
	require.NoError(t, err)
	require.NoError(t, db.Close())
	for raw, want := range map[string]string{
		"pebble:":            "names no directory",
		"pebble://var/lib/x": "three slashes",
		"pebble:///x?a=b":    "no parameters",
		"bolt:///x":          "unknown engine",
		"/var/lib/x":         "a store is a URL",
	} {
		_, err := kv.Open(t.Context(), raw)
		require.ErrorContains(t, err, want, raw)
	}
}
