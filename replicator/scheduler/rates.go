package scheduler

import (
	"context"
	"time"

	"settee/replicator/rates"
)

// recordTime is how long a record may take. It holds up the shutdown of a node whose store does not answer.
const recordTime = 2 * time.Second

// recordWork records what this node does, at the end of each slot, and a last time when ended is closed.
func (s *Server) recordWork(ctx context.Context, ended <-chan struct{}) {
	before := Counts{}
	save := func(at time.Time) {
		ctx, cancel := context.WithTimeout(ctx, recordTime)
		defer cancel()
		now := s.Counts()
		if err := s.opts.Jobs.Rates.Record(ctx, at, workBetween(now, before)); err != nil {
			s.opts.Log.Error().Err(err).Msg("what this node did could not be recorded, and is recorded later")
		}
		before = now
	}
	for {
		end := time.Now().Truncate(rates.FineSlot).Add(rates.FineSlot)
		timer := time.NewTimer(time.Until(end))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-ended:
			timer.Stop()
			save(time.Now())
			return
		case <-timer.C:
			save(end.Add(-1))
		}
	}
}

// workBetween returns what a node did between two moments.
func workBetween(now, before Counts) rates.Work {
	stats := now.Stats
	stats.Subtract(before.Stats)
	return rates.Work{
		DocCounts: stats.DocCounts,
		Starts:    now.Starts - before.Starts, Stops: now.Stops - before.Stops, Crashes: now.Crashes - before.Crashes,
		Completed: now.Completed - before.Completed, Failed: now.Failed - before.Failed,
		BytesReceived: now.BytesReceived - before.BytesReceived, BytesSent: now.BytesSent - before.BytesSent,
	}
}
