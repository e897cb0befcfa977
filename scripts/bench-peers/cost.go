package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"settee/internal/servers"
)

// A cost is the time that something took, and the processor time of all processes for it.
type cost struct{ wall, processor time.Duration }

func (c cost) perSecond(n int) float64 { return float64(n) / c.wall.Seconds() }

// measure returns the cost of f.
func measure(f func() error) (cost, error) {
	before, err := servers.ProcessorTime(os.Getpid())
	if err != nil {
		return cost{}, err
	}
	began := time.Now()
	if err := f(); err != nil {
		return cost{}, err
	}
	wall := time.Since(began)
	after, err := servers.ProcessorTime(os.Getpid())
	return cost{wall, after - before}, err
}

// measureSync returns the median of the times in which a few bytes are written to the end of a file and synced.
func measureSync(ctx context.Context) (time.Duration, error) {
	file, err := os.CreateTemp("", "bench-peers-")
	if err != nil {
		return 0, err
	}
	defer func() { _, _ = file.Close(), os.Remove(file.Name()) }()
	var all []time.Duration
	for len(all) < 1000 && ctx.Err() == nil {
		began := time.Now()
		_, err := file.Write(make([]byte, 100))
		if err := errors.Join(err, file.Sync()); err != nil {
			return 0, err
		}
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	return all[len(all)/2], context.Cause(ctx)
}
