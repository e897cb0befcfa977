package main

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/fdbjobs/upkeep"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/memkv"
	"settee/pkg/tuple"
	"settee/replicator/jobs"
)

// upkeepIDs are the ids of upkeep jobs in stores of all versions. This version has four more, for updates, mirrors, acknowledgements and changes by users.
var upkeepIDs = []string{"deleted databases", "expired replications", "replications of deleted databases", "unused uploads"}

// The upkeep jobs remove the rest of deleted databases, and uploads that nothing refers to. Jobs queued by an older
// version are run, and there are no others except the new ones.
func TestUpkeepOfAnOlderVersion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		db, err := memkv.Open(memkv.Options{})
		require.NoError(t, err)
		layer, space := fdbjobs.Open(db, []byte("jobs"), fdbjobs.Options{}), tuple.NewSubspace("docs")
		store, err := jobs.Open(ctx, db, layer, jobs.Options{Documents: space.Bytes()})
		require.NoError(t, err)
		docs := docstore.Open(db, space.Bytes(), docstore.Options{})
		rows := func() int {
			// Without what is kept of the creation and deletion of databases for _db_updates.
			begin, _ := space.Range()
			end, _ := space.Sub(4).Range()
			pairs, err := kv.TransactValue(ctx, db, func(tx kv.Transaction) ([]kv.KeyValue, error) {
				return tx.GetRange(kv.KeyRange{Begin: begin, End: end}, kv.RangeOptions{}).Slice()
			})
			require.NoError(t, err)
			return len(pairs)
		}
		database, err := docs.Create(ctx, "db")
		require.NoError(t, err)
		_, err = database.Upload(ctx, "doc", strings.NewReader("content"), docstore.UploadOptions{})
		require.NoError(t, err)
		kept := rows()
		for i := range 120 {
			made, err := docs.Create(ctx, fmt.Sprint("n", i))
			require.NoError(t, err)
			require.NoError(t, made.Delete(ctx))
		}
		queued := layer.Queue("upkeep")
		require.NoError(t, db.Transact(ctx, func(tx kv.Transaction) error {
			for _, id := range upkeepIDs {
				if err := queued.Add(tx, fdbjobs.Spec{ID: id}); err != nil {
					return err
				}
			}
			return nil
		}))

		ended := make(chan error)
		go func() {
			ended <- upkeep.Run(ctx, db, layer, upkeepTasks(docs, store.Upkeep), func(task string, err error) {
				t.Errorf("%s: %v", task, err)
			})
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, kept, rows())
		time.Sleep(docstore.UploadLife + 2*documentUpkeepEvery)
		synctest.Wait() // tasks may be due at this very moment
		assert.Equal(t, 1, rows(), "the database")

		require.NoError(t, db.Transact(ctx, func(tx kv.Transaction) error {
			for _, id := range upkeepIDs {
				job, err := queued.Get(tx, id)
				require.NoError(t, err)
				assert.True(t, job.Scheduled.After(time.Now()), id)
			}
			all := int64(0)
			counts, _, err := queued.Counts(tx, fdbjobs.Selection{
				Parts: []fdbjobs.Part{{Status: fdbjobs.Pending}, {Status: fdbjobs.Running}, {Status: fdbjobs.Finished}},
			})
			for _, n := range counts {
				all += n
			}
			assert.Equal(t, int64(len(upkeepIDs)+4), all)
			return err
		}))
		layer.Close()
		require.ErrorIs(t, <-ended, fdbjobs.ErrClosed)
		docs.Close()
		require.NoError(t, db.Close())
	})
}
