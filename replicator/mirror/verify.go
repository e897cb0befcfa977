package mirror

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"settee/pkg/retry"
	"settee/replicator"
	"settee/replicator/jobs"
	"settee/replicator/worker"
)

const (
	// verifiedAtOnce is the number of databases that a mirror compares at a time.
	verifiedAtOnce = 2
	// verifyWait is the time after which a revision that is missing is asked about again.
	verifyWait = 10 * time.Second
	// verifyPause is the time after which a mirror that has not copied everything once looks again whether it has.
	verifyPause = 5 * time.Second
)

// keepVerified compares the two servers when it is time for that, or somebody asks, until ctx ends. A comparison that a restart of the
// run interrupts is started again.
func (m *mirror) keepVerified(ctx context.Context) {
	for ctx.Err() == nil {
		if err := m.awaitVerify(ctx); err != nil {
			return
		}
		verified, err := m.verify(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = m.writeProgress(ctx, func(p *replicator.MirrorProgress) { p.Verified, p.Verifying = verified, time.Time{} })
		}
		if err != nil && ctx.Err() == nil {
			m.Log.Error().Err(err).Msg("the servers of a mirror could not be compared, which is tried again")
			_ = retry.Wait(ctx, verifyPause)
		}
	}
}

// awaitVerify waits until the servers are to be compared. It returns ctx's error if that ends before.
func (m *mirror) awaitVerify(ctx context.Context) error {
	for {
		m.mu.Lock()
		due, again := m.progress.VerifyDue(m.r.Mirror, m.Run.Job().Args.Added), !m.progress.Verifying.IsZero()
		m.mu.Unlock()
		if again { // a run before this one was interrupted
			due = time.Now()
		}
		var timer <-chan time.Time
		if !due.IsZero() {
			wait := max(0, time.Until(due))
			if wait == 0 {
				copied, err := m.copied(ctx)
				if err == nil && copied {
					return nil
				}
				wait = verifyPause
			}
			timer = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-m.verifyNow:
			return nil
		case <-timer:
		}
	}
}

// copied reports whether each database has been copied once, as far as its job could.
func (m *mirror) copied(ctx context.Context) (bool, error) {
	m.mu.Lock()
	looked := !m.progress.LastLook.IsZero()
	m.mu.Unlock()
	summary, err := m.Run.Summary(ctx)
	return looked && summary.States[replicator.MirroredWaiting]+summary.States[replicator.MirroredStarting]+summary.States[replicator.MirroredPaused] == 0, err
}

// verify compares all databases that the mirror knows. An error is the store's.
func (m *mirror) verify(ctx context.Context) (*replicator.MirrorVerified, error) {
	v := &verification{mirror: m, found: replicator.MirrorVerified{Began: time.Now()}}
	if err := m.writeProgress(ctx, func(p *replicator.MirrorProgress) { p.Verifying = v.found.Began }); err != nil {
		return nil, err
	}
	for after := ""; ; {
		known, err := m.Run.Databases(ctx, after, knownAtOnce)
		if err != nil {
			return nil, err
		}
		v.comparePage(ctx, known)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if len(known) < knownAtOnce {
			break
		}
		after = known[len(known)-1].Database
	}
	v.found.Ended = time.Now()
	level := zerolog.InfoLevel
	if !v.found.Equal() {
		level = zerolog.WarnLevel
	}
	m.Log.WithLevel(level).Int64("databases", v.found.Databases).Int64("different", v.found.Different).Int64("failed", v.found.Failed).
		Msg("the servers of a mirror were compared")
	return &v.found, nil
}

// verification is a comparison of the two servers.
type verification struct {
	*mirror
	mu    sync.Mutex
	found replicator.MirrorVerified
}

// comparePage compares some databases, several at a time.
func (v *verification) comparePage(ctx context.Context, known []jobs.MirroredDatabase) {
	var comparing sync.WaitGroup
	defer comparing.Wait()
	places := make(chan struct{}, verifiedAtOnce)
	for _, d := range known {
		if d.State == replicator.MirroredGone {
			continue
		}
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		comparing.Go(func() {
			defer func() { <-places }()
			v.compare(ctx, d.Database)
		})
	}
}

// compare compares a database.
func (v *verification) compare(ctx context.Context, database string) {
	child := v.r.Child(database)
	settings := v.Worker
	settings.ReportInterval = time.Minute
	counts, err := worker.Verify(ctx, worker.Verification{
		Replication: child, Wait: verifyWait, Found: func(worker.Difference) error { return nil },
	}, settings)
	same := true
	if err == nil && child.Mirrored.Security {
		same, err = worker.SameSecurity(ctx, child, settings)
	}
	if ctx.Err() != nil {
		return
	}
	reason, failed := "", false
	switch {
	case lacksTarget(err):
		reason = "the target does not have the database"
	case err != nil:
		reason, failed = v.Run.Redact(err).Error(), true
	case !counts.Equal():
		reason = fmt.Sprintf("the target lacks %d revisions", counts.MissingAtTarget)
	case !same:
		reason = "the _security objects differ"
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.found.Revisions += counts.Checked
	v.found.Missing += counts.MissingAtTarget
	v.found.Add(database, reason, failed, time.Now())
}

// lacksTarget reports whether an error says that there is no such database at the target.
func lacksTarget(err error) bool {
	failure, is := errors.AsType[*worker.Error](err)
	return is && failure.Fault.Is(replicator.FaultDatabaseMissing) && failure.Fault.Side == replicator.SideTarget
}
