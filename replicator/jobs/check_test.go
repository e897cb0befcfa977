package jobs_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
	"settee/pkg/kv/check"
	"settee/pkg/tuple"
	"settee/replicator"
	"settee/replicator/jobs"
)

// checkerOf returns a checker of a store that notes what it says.
func checkerOf(b *bundle, repair bool, said *[]string) *check.Checker {
	return &check.Checker{DB: b.db, Repair: repair, Report: func(f check.Fault) error {
		*said = append(*said, f.What)
		return nil
	}}
}

// TestCheckNamesFaults plants faults of each kind of rows. The check names them, and repairs the indexes.
func TestCheckNamesFaults(t *testing.T) {
	t.Parallel()
	b := setup(t)
	job := b.replicate(`"continuous": true`)
	run := b.accept()
	require.NoError(t, run.Update(t.Context(), func(s *replicator.JobState) { s.Activity = &replicator.Activity{Doing: replicator.DoingCopying} }))
	require.NoError(t, run.Crash(t.Context(), time.Now().Add(time.Hour), 1, replicator.TextFault("", "no")))
	b.replicate(`"doc_ids": ["stuck"]`)
	require.NoError(t, b.accept().Update(t.Context(), func(s *replicator.JobState) {
		s.Activity, s.NoProgressSince = &replicator.Activity{Doing: replicator.DoingReading}, time.Now().Add(-time.Hour)
	}))
	for i := range 2 {
		b.replicate(fmt.Sprintf(`"continuous": true, "doc_ids": ["%d"]`, i))
		b.park()
	}
	rows := b.parkedRows()
	parked := rows[0]
	row := func(jobID string) func(kv.Transaction) []byte {
		return at("parked", sourceServer, sourceDatabase, jobID)
	}
	question := at("asks", sourceServer, parked.Ask.Unix(), parked.JobID)
	faults := func(repair bool) (said []string) {
		require.NoError(t, jobs.Check(t.Context(), checkerOf(b, repair, &said), b.layer))
		return said
	}
	require.Empty(t, faults(false))
	const primary, derived = false, true
	for _, c := range []struct {
		name     string
		key      func(tx kv.Transaction) []byte
		value    []byte // nil: no value
		says     string
		repaired bool
	}{
		{"a reservation for no job", at("replication_ids", "id"), []byte("none"), "a replication id of the job \"none\", which does not exist", derived},
		{"failures of no tuple", at("records", job.ID, "failures"), []byte{0xfe}, "the failures of a job: the value", primary},
		{"a failure without a number", at("records", job.ID, "failure", 1), []byte(`{}`), "which has none", primary},
		{"a failure of no JSON", at("records", job.ID, "failure", 1), []byte(`x`), "a failure: the value", primary},
		{"failures of no job", at("records", "none", "failures"), tuple.Tuple{1, "t", 1}.Pack(), "the failures of a job of the job \"none\", which does not exist", primary},
		{"lags of no JSON", at("records", job.ID, "lags"), []byte("x"), "the lags of a mirror: the value", primary},
		{"lags of no job", at("records", "none", "lags"), []byte(`{}`), "the lags of a mirror of the job \"none\"", primary},
		{"a run of no job", at("records", "none", "run", 1), []byte(`{}`), "a run of the job \"none\"", primary},
		{"a run of no JSON", at("records", job.ID, "run", 1), []byte(`[]`), "a run: the value", primary},
		{"a run too many", at("records", job.ID, "run", jobs.MaxRuns), []byte(`{}`), "unknown key", primary},
		{"a record of another kind", at("records", job.ID, "other"), []byte(`{}`), "unknown key", primary},
		{"an end of no job", at("records", "none", "life"), []byte(`x`), "the life that has ended of the job \"none\"", primary},
		{"an end of no JSON", at("records", job.ID, "state"), []byte(`x`), "the end of a job: the value", primary},
		{"a parked job without its question", question, nil, "the question for the job", derived},
		{"a question for another database", question, []byte("other"), "the question for the job", derived},
		{"a question for no job", at("asks", sourceServer, 1, "none"), []byte("db"), "a question for the job \"none\", which has none then", derived},
		{"a question at another time", at("asks", sourceServer, 1, parked.JobID), []byte(sourceDatabase), "which has none then", derived},
		{"a server without its watch", at("watched", sourceServer), nil, "a parked job of a server that is not watched", derived},
		{"a watch without its job", at("watched", "http://other/"), []byte{}, "the watch of a server does not exist or has ended", derived},
		{"a counter of no watch", at("watched", "http://third/", "parks"), make([]byte, 8), "a counter of a server that is not watched", derived},
		{"a counter of no number", at("watched", sourceServer, "parks"), []byte(`x`), "how often jobs were parked: the value", primary},
		{"a row of no job", row("none"), tuple.Tuple{0, false, ""}.Pack(), "a parked job \"none\", which does not exist", derived},
		{"a row of a job that is not parked", row(job.ID), tuple.Tuple{0, false, ""}.Pack(), "or does not name the row", derived},
		{"a row of no tuple", row(parked.JobID), []byte(`x`), "a parked job: the value", primary},
		{"a parked job that was woken", row(parked.JobID), tuple.Tuple{parked.Ask.Unix(), true, ""}.Pack(), "the job is parked, and its source has changed", derived},
		{"a parked job without its row", row(rows[1].JobID), nil, "the job is parked, and no change of its source would wake it", derived},
		{"a pause of an owner that is not paused", at("paused", "a|b"), tuple.Tuple{1, 1.0}.Pack(), "which is not paused", derived},
		{"a pause of no tuple", at("paused", "a|b"), []byte(`x`), "when a database was paused: the value", primary},
		{"a deleted database of no owner", at("deleted", "x"), []byte(`x`), "a deleted database: the value", primary},
		{"a sum of no number", at("times", "ran", 1, "x"), []byte(`x`), "the time of an owner: the value", primary},
		{"work of no tuple", at("rates", 1, 1, "x"), []byte(`x`), "what a process did: the value", primary},
		{"an unknown kind of rows", at("other"), []byte(`x`), "unknown key", primary},
	} {
		var key, before []byte
		require.NoError(t, b.db.Transact(t.Context(), func(tx kv.Transaction) (err error) {
			key = c.key(tx)
			if before, err = tx.Get(key).Await(); c.value == nil {
				tx.Clear(key)
			} else {
				tx.Set(key, c.value)
			}
			return err
		}))
		assert.Contains(t, strings.Join(faults(false), "\n"), c.says, c.name)
		assert.Contains(t, strings.Join(faults(true), "\n"), c.says, c.name)
		if c.repaired {
			assert.Empty(t, faults(false), c.name)
			continue
		}
		assert.Contains(t, strings.Join(faults(false), "\n"), c.says, c.name)
		require.NoError(t, b.db.Transact(t.Context(), func(tx kv.Transaction) error {
			if before == nil {
				tx.Clear(key)
			} else {
				tx.Set(key, before)
			}
			return nil
		}))
	}
}

// TestCheckRepairsIndexes clears the entries of each index. The check of the job layer writes them again.
func TestCheckRepairsIndexes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.replicate(`"continuous": true`)
	run := b.accept()
	require.NoError(t, run.Update(t.Context(), func(s *replicator.JobState) { s.Activity = &replicator.Activity{Doing: replicator.DoingCopying} }))
	require.NoError(t, run.Crash(t.Context(), time.Now().Add(time.Hour), 1, replicator.TextFault("", "no")))
	b.replicate(`"doc_ids": ["stuck"]`)
	require.NoError(t, b.accept().Update(t.Context(), func(s *replicator.JobState) {
		s.Activity, s.NoProgressSince = &replicator.Activity{Doing: replicator.DoingReading}, time.Now().Add(-time.Hour)
		s.Stats.DocWriteFailures = 1
	}))
	for _, mark := range []replicator.MarkType{
		replicator.MarkFailing, replicator.MarkStuck, replicator.MarkBehind, replicator.MarkDocumentsRefused,
	} {
		require.NotEmpty(t, b.times(mark), mark)
	}
	for _, index := range []string{"marks", "named"} {
		all := b.entries(index)
		require.NotEmpty(t, all, index)
		require.NoError(t, b.db.Transact(t.Context(), func(tx kv.Transaction) error {
			pairs, err := tx.GetRange(kv.PrefixRange([]byte("jobs")), kv.RangeOptions{}).Slice()
			for _, pair := range pairs {
				if bytes.Contains(pair.Key, tuple.Tuple{jobs.QueueName, index}.Pack()) {
					tx.Clear(pair.Key)
				}
			}
			return err
		}))
		require.Empty(t, b.entries(index))
		var said []string
		require.NoError(t, b.layer.Check(t.Context(), checkerOf(b, true, &said)))
		require.Len(t, said, len(all))
		require.Equal(t, all, b.entries(index))
	}
}

// at returns a function that returns a key.
func at(elements ...any) func(kv.Transaction) []byte {
	return func(kv.Transaction) []byte { return tuple.NewSubspace("replicator").Pack(elements...) }
}
