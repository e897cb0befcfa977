package main

import "settee/pkg/kv"

// slowTransaction logs a transaction that is repeated for long, and counts it.
func (n *node) slowTransaction(t kv.Slow) {
	if !t.Again {
		n.slow.Add(1)
	}
	n.log.Warn().Str("transaction", t.Name).Float64("seconds", t.Took.Seconds()).Int("runs", t.Runs).Err(t.Err).
		Msg("a transaction has been repeated for a long time; the error is the last run's")
}
