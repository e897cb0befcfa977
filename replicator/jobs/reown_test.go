package jobs_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
	"settee/replicator"
)

// A watch goes to the owner with the fewest watches, of the owners of its jobs, while it waits for a place.
func TestReown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	parks := func(user, server, members string) {
		b.Helper()
		_, err := b.store.Requests.Replicate(b.Context(), b.definition(`"continuous": true`+members), &user)
		require.NoError(b, err)
		run := b.accept()
		require.NoError(b, run.Parking(b.Context(), replicator.Parked{Server: server, Database: "db", UpdateSeq: `"7-x"`}))
		_, err = run.Park(b.Context(), nil)
		require.NoError(b, err)
	}
	owner := func() (owner string) {
		b.Helper()
		require.NoError(b, b.db.Transact(b.Context(), func(tx kv.Transaction) error {
			watch, err := b.store.Watches.Queue.Read(tx, sourceServer).Await()
			owner = watch.Owner
			return err
		}))
		return owner
	}
	parks("ann", sourceServer, "")
	parks("ann", "http://c.example/", `, "create_target": true`)
	require.NoError(b, b.store.Watches.Reown(b.Context(), sourceServer))
	assert.Equal(b, "user:ann", owner(), "nobody else needs it")
	parks("bob", sourceServer, "")
	assert.Equal(b, "user:ann", owner())
	b.db.on.Store(true)
	for range 3 {
		require.NoError(b, b.store.Watches.Reown(b.Context(), sourceServer))
		assert.Equal(b, "user:bob", owner())
	}
}
