package worker

import (
	"cmp"
	"context"
	"sync"
	"time"

	"settee/replicator"
)

// databases are the source and the target of a run.
type databases struct{ source, target *peer }

func (d *databases) close() {
	d.source.db.Close()
	d.target.db.Close()
}

// said returns what both databases said of themselves when they were opened, now.
func (d *databases) said() *replicator.Ends {
	of := func(p *peer) replicator.End {
		return replicator.NewEnd(p.info.DocCount, p.info.DocDelCount, p.info.UpdateSeq)
	}
	return &replicator.Ends{At: time.Now().UTC().Truncate(time.Second), Source: of(d.source), Target: of(d.target)}
}

// onBoth calls do for both databases in parallel. If both fail, it returns the source's error.
func (d *databases) onBoth(ctx context.Context, do func(context.Context, *peer) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var other sync.WaitGroup
	var targetErr error
	other.Go(func() { targetErr = do(ctx, d.target) })
	sourceErr := do(ctx, d.source)
	if sourceErr != nil {
		cancel()
	}
	other.Wait()
	return cmp.Or(sourceErr, targetErr)
}
