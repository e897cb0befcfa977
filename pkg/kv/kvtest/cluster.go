package kvtest

import (
	"context"
	"crypto/rand"
	"net/url"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/pkg/kv"
)

// ClusterVariable names the environment variable that holds the path of a
// FoundationDB cluster file, for tests to run there too (make test-fdb).
const ClusterVariable = "SETTEE_TEST_FDB"

// ClusterURL returns the URL of an empty store on the FoundationDB cluster that
// ClusterVariable names, or ok false if it names none. What is in the store is
// removed when t ends. The engine has to be in the binary: the build tag is fdb.
func ClusterURL(t testing.TB) (storeURL string, ok bool) {
	t.Helper()
	file := os.Getenv(ClusterVariable)
	if file == "" {
		return "", false
	}
	u := url.URL{Scheme: "fdb", Path: file, RawQuery: url.Values{"prefix": {"test-" + rand.Text() + "-"}}.Encode()}
	t.Cleanup(func() {
		db, err := kv.Open(context.Background(), u.String())
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		require.NoError(t, db.Transact(context.Background(), func(tx kv.Transaction) error {
			tx.ClearRange(kv.KeyRange{Begin: []byte{}, End: []byte{0xff}})
			return nil
		}))
	})
	return u.String(), true
}

// Cluster opens what ClusterURL returns. The caller closes it.
func Cluster(t testing.TB) (db kv.Database, ok bool) {
	t.Helper()
	storeURL, ok := ClusterURL(t)
	if !ok {
		return nil, false
	}
	db, err := kv.Open(t.Context(), storeURL)
	require.NoError(t, err)
	return db, true
}

// NetworkThread is for goleak in the tests that use a cluster: FoundationDB's client
// has a thread for its network, which ends with the process.
var NetworkThread = goleak.IgnoreTopFunction("github.com/apple/foundationdb/bindings/go/src/fdb._Cfunc_fdb_run_network")
