//go:build fdb

package fdbkv_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/pkg/kv"
	"settee/pkg/kv/fdbkv"
	"settee/pkg/kv/kvtest"
)

func TestMain(m *testing.M) {
	// The client's thread runs until the process ends.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/apple/foundationdb/bindings/go/src/fdb._Cfunc_fdb_run_network"))
}

// cluster returns the cluster file of the cluster that the tests use.
func cluster(t *testing.T) string {
	t.Helper()
	file := os.Getenv("SETTEE_TEST_FDB")
	require.NotEmpty(t, file, "SETTEE_TEST_FDB names no cluster file; scripts/test-fdb starts a cluster and sets it")
	return file
}

// randomPrefix returns a new prefix.
func randomPrefix() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return "settee test " + hex.EncodeToString(b[:]) + "/"
}

// open opens a store by its URL and closes it when t ends.
func open(t *testing.T, clusterFile, prefix string) kv.Database {
	t.Helper()
	u := url.URL{Scheme: "fdb", Path: clusterFile, RawQuery: url.Values{"prefix": {prefix}}.Encode()}
	db, err := kv.Open(t.Context(), u.String(), kv.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// everything is the range of all keys of a store.
var everything = kv.KeyRange{End: []byte{0xff}}

// empty opens a store with a new prefix, which is cleared when t ends.
func empty(t *testing.T) (db kv.Database, prefix string) {
	t.Helper()
	return emptyOn(t, cluster(t))
}

func emptyOn(t *testing.T, clusterFile string) (db kv.Database, prefix string) {
	t.Helper()
	prefix = randomPrefix()
	db = open(t, clusterFile, prefix)
	t.Cleanup(func() {
		require.NoError(t, db.Transact(context.Background(), func(tx kv.Transaction) error {
			tx.ClearRange(everything)
			return nil
		}))
	})
	return db, prefix
}

func TestConformance(t *testing.T) {
	t.Parallel()
	file := ownClusterFile(t) // the suite uses up all watches for a while
	kvtest.Run(t, func(t *testing.T) kv.Database {
		db, _ := emptyOn(t, file)
		return db
	})
}

func TestURL(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage.cluster")
	require.NoError(t, os.WriteFile(garbage, []byte("not a cluster\n"), 0o600))
	for raw, want := range map[string]string{
		"fdb://etc/fdb.cluster":                   "three slashes",
		"fdb://u:secret@/etc/fdb.cluster":         "no user",
		"fdb:///etc/fdb.cluster#x":                "%23",
		"fdb:///etc/fdb.cluster?prefix=%zz":       "invalid URL escape",
		"fdb:etc/%zz":                             "invalid URL escape",
		"fdb:///etc/fdb.cluster?prefx=a":          `unknown parameter "prefx"`,
		"fdb:?prefix=a&prefix=b":                  "prefix is given twice",
		"fdb:?prefix=%ff":                         "FoundationDB's own",
		"fdb:?max_watches=0":                      "max_watches",
		"fdb:?max_watches=1000001":                "from 1 to 1000000",
		"fdb:?max_watches=many":                   `max_watches is "many"`,
		"fdb://" + dir + "/none.cluster":          dir + "/none.cluster cannot be read: no such file",
		"fdb://localhost" + dir + "/none%201":     dir + "/none 1 cannot be read: no such file",
		"fdb:no/such/file":                        "/no/such/file cannot be read: no such file",
		"fdb://" + dir:                            dir + " cannot be read: is a directory",
		"fdb://" + garbage + "?prefix=settee":     "cluster file " + garbage,
		"fdb:?prefix=" + fmt.Sprintf("%1001d", 0): "more than 1000",
	} {
		_, err := kv.Open(t.Context(), raw, kv.Options{})
		require.ErrorContains(t, err, want, raw)
		require.NotContains(t, err.Error(), "secret")
	}
	_, err := fdbkv.Open(t.Context(), garbage, fdbkv.Options{MaxWatches: -1})
	require.ErrorContains(t, err, "not -1")
}

func TestDefaultClusterFile(t *testing.T) {
	t.Setenv("FDB_CLUSTER_FILE", cluster(t))
	db, err := kv.Open(t.Context(), "fdb:?prefix="+url.QueryEscape(randomPrefix()), kv.Options{})
	require.NoError(t, err)
	require.NoError(t, db.Close())

	dir := t.TempDir()
	t.Setenv("FDB_CLUSTER_FILE", filepath.Join(dir, "elsewhere"))
	_, err = kv.Open(t.Context(), "fdb:", kv.Options{})
	require.ErrorContains(t, err, filepath.Join(dir, "elsewhere"))

	t.Setenv("FDB_CLUSTER_FILE", "")
	t.Chdir(dir)
	raw, err := os.ReadFile(cluster(t))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile("fdb.cluster", raw, 0o600))
	db, err = kv.Open(t.Context(), "fdb:", kv.Options{})
	require.NoError(t, err)
	require.NoError(t, db.Close())
}

// silent returns a cluster file with the address of a server that accepts connections and never answers.
func silent(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	file := filepath.Join(t.TempDir(), "silent.cluster")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "test:test@%s\n", listener.Addr()), 0o600))
	return file
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	file := silent(t)
	_, err := fdbkv.Open(t.Context(), file, fdbkv.Options{Timeout: 200 * time.Millisecond})
	require.ErrorContains(t, err, "did not answer within 200ms")
	require.ErrorContains(t, err, file)

	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = kv.Open(ctx, "fdb://"+file, kv.Options{})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, file)

	ctx, cancel = context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err = kv.Open(ctx, "fdb://"+file, kv.Options{})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, file)
}

// TestSharedConnection: stores on one cluster file share its watches, and the last one closes the connection.
func TestSharedConnection(t *testing.T) {
	t.Parallel()
	file := ownClusterFile(t)
	first, err := fdbkv.Open(t.Context(), file, fdbkv.Options{Prefix: []byte(randomPrefix()), MaxWatches: 5})
	require.NoError(t, err)
	second, err := fdbkv.Open(t.Context(), file, fdbkv.Options{Prefix: []byte(randomPrefix()), MaxWatches: 5})
	require.NoError(t, err)
	_, err = fdbkv.Open(t.Context(), file, fdbkv.Options{})
	require.ErrorContains(t, err, "max_watches=5")
	require.NoError(t, first.Close())
	require.NoError(t, second.Transact(t.Context(), func(tx kv.Transaction) error {
		_, err := tx.Get([]byte("k")).Await()
		return err
	}))
	require.NoError(t, second.Close())
	third, err := fdbkv.Open(t.Context(), file, fdbkv.Options{Prefix: []byte(randomPrefix())})
	require.NoError(t, err)
	require.NoError(t, third.Close())
}

// ownClusterFile returns a copy of the cluster file, which gets a connection of its own.
func ownClusterFile(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(cluster(t))
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "own.cluster")
	require.NoError(t, os.WriteFile(file, raw, 0o600))
	return file
}
