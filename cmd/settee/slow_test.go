package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/config"
	"settee/pkg/kv"
	"settee/pkg/kv/memkv"
)

// TestSlowTransactions: what the store reports of a transaction is logged each time, and counted once.
func TestSlowTransactions(t *testing.T) {
	t.Parallel()
	var store kv.Options
	engine := plantedEngine(func(opts kv.Options) (kv.Database, error) {
		store = opts
		return memkv.Open(memkv.Options{})
	})
	cfg, _, err := config.Load(config.Options{Store: engine})
	require.NoError(t, err)
	var log bytes.Buffer
	n := node{cfg: cfg, log: zerolog.New(&log)}
	require.NoError(t, n.openStore(t.Context()))
	require.NoError(t, n.db.Close())

	report := kv.Slow{Name: "jobs.(*Upkeep).removeAll", Took: 31500 * time.Millisecond, Runs: 7, Err: kv.ErrTransactionTooOld}
	store.Slow(report)
	assert.JSONEq(t, `{"level": "warn", "transaction": "jobs.(*Upkeep).removeAll", "seconds": 31.5, "runs": 7,
		"error": "kv: transaction is too old to perform reads or be committed (1007)",
		"message": "a transaction has been repeated for a long time; the error is the last run's"}`, log.String())
	report.Again = true
	store.Slow(report)
	assert.Equal(t, 2, bytes.Count(log.Bytes(), []byte("\n")))
	assert.Equal(t, int64(1), n.slow.Load())
}
