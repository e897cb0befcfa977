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

// ClusterVariable is the name of the environment variable with the path of a FoundationDB cluster file, to run tests
// there too (make test-fdb).
const ClusterVariable = "SETTEE_TEST_FDB"

// ClusterURL returns the URL of an empty store on the FoundationDB cluster in ClusterVariable. ok is false if that is
// not set. The store is cleared when t ends. The engine must be in the binary: the build tag is fdb.
func ClusterURL(t testing.TB) (storeURL string, ok bool) {
	t.Helper()
	file := os.Getenv(ClusterVariable)
	if file == "" {
		return "", false
	}
	u := url.URL{Scheme: "fdb", Path: file, RawQuery: url.Values{"prefix": {"test-" + rand.Text() + "-"}}.Encode()}
	t.Cleanup(func() {
		db, err := kv.Open(context.Background(), u.String(), kv.Options{})
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		require.NoError(t, db.Transact(context.Background(), func(tx kv.Transaction) error {
			tx.ClearRange(kv.KeyRange{Begin: []byte{}, End: []byte{0xff}})
			return nil
		}))
	})
	return u.String(), true
}

// Cluster opens the store of ClusterURL. The caller closes it.
func Cluster(t testing.TB) (db kv.Database, ok bool) {
	t.Helper()
	storeURL, ok := ClusterURL(t)
	if !ok {
		return nil, false
	}
	db, err := kv.Open(t.Context(), storeURL, kv.Options{})
	require.NoError(t, err)
	return db, true
}

// NetworkThread is an option of goleak for tests that use a cluster: the network thread of FoundationDB's client ends
// with the process.
var NetworkThread = goleak.IgnoreTopFunction("github.com/apple/foundationdb/bindings/go/src/fdb._Cfunc_fdb_run_network")
