package pebblekv_test

import (
	"context"
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
	"settee/pkg/kv/faultkv"
	"settee/pkg/kv/kvtest"
	"settee/pkg/kv/pebblekv"
)

func open(t *testing.T, dir string, opts pebblekv.Options) kv.Database {
	t.Helper()
	db, err := pebblekv.Open(dir, opts)
	require.NoError(t, err)
	return db
}

// clocked is a database with a clock of its own.
type clocked struct {
	kv.Database
	*kvtest.Clock
}

func TestConformance(t *testing.T) {
	t.Parallel()
	kvtest.Run(t, func(t *testing.T) kv.Database {
		clock := &kvtest.Clock{}
		db := open(t, t.TempDir(), pebblekv.Options{Now: clock.Now})
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return clocked{db, clock}
	})
}

// stampedWrite writes the stamp of its commit as the value of key, and returns it.
func stampedWrite(ctx context.Context, db kv.Database, key string) (string, error) {
	err := db.Transact(ctx, func(tx kv.Transaction) error {
		tx.SetVersionstampedValue([]byte(key), make([]byte, len(kv.Versionstamp{})+4))
		return nil
	})
	if err != nil {
		return "", err
	}
	return get(ctx, db, key)
}

func TestReopen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var last string
	for i := range 5 {
		db := open(t, dir, pebblekv.Options{})
		stamp, err := stampedWrite(t.Context(), db, fmt.Sprint(i))
		require.NoError(t, err)
		require.Greater(t, stamp, last, "stamps grow across restarts")
		last = stamp
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

// The metadata version stays when the store is opened again.
func TestReopenMetadataVersion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	version := func(db kv.Database) kv.Versionstamp {
		version, err := kv.TransactValue(t.Context(), db, func(tx kv.Transaction) (kv.Versionstamp, error) {
			return tx.MetadataVersion().Await()
		})
		require.NoError(t, err)
		return version
	}
	db := open(t, dir, pebblekv.Options{})
	require.Zero(t, version(db))
	require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) error {
		tx.ChangeMetadataVersion()
		return nil
	}))
	changed := version(db)
	require.NotZero(t, changed)
	_, err := stampedWrite(t.Context(), db, "other")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	db = open(t, dir, pebblekv.Options{})
	require.Equal(t, changed, version(db))
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
	require.True(t, kv.Exclusive(faultkv.Wrap(db, faultkv.Options{})))
	require.NoError(t, db.Close())
}

func TestURL(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db, err := kv.Open(t.Context(), (&url.URL{Scheme: "pebble", Path: dir}).String(), kv.Options{})
	require.NoError(t, err)
	require.NoError(t, db.Close())
	for raw, want := range map[string]string{
		"pebble:":            "names no directory",
		"pebble://var/lib/x": "three slashes",
		"pebble:///x?a=b":    "no parameters",
		"bolt:///x":          "unknown engine",
		"/var/lib/x":         "a store is a URL",
	} {
		_, err := kv.Open(t.Context(), raw, kv.Options{})
		require.ErrorContains(t, err, want, raw)
	}
}
