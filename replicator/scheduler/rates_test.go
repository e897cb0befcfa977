package scheduler_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/replicator"
	"settee/replicator/jobs"
	"settee/replicator/rates"
)

// A node records what it does at the end of each slot, and when it shuts down, and counts nothing twice.
func TestRates(t *testing.T) {
	inLab(t, jobs.Options{}, nil, func(l *lab) {
		began := time.Now().Truncate(rates.FineSlot)
		recorded := func() (sum rates.Work) {
			t.Helper()
			steps, err := l.jobs.Rates.Read(l.Context(), rates.FineSlot, began, rates.FineSlot, 30)
			require.NoError(l, err)
			for _, w := range steps {
				sum.Add(w)
			}
			return sum
		}
		id := l.put(repdb, "one", "")
		l.in(id, replicator.StateCompleted)
		time.Sleep(rates.FineSlot)
		synctest.Wait()
		time.Sleep(time.Second) // for repeated transactions
		synctest.Wait()
		assert.Equal(l, rates.Work{Starts: 1, Completed: 1}, recorded())
		l.peers.on("GET a.example/db", missing)
		l.crashes(l.put(repdb, "two", `, "doc_ids": ["x"]`), 1)
		l.end()
		assert.Equal(l, rates.Work{Starts: 2, Completed: 1, Crashes: 1}, recorded())
		l.start()
	})
}
