package fdbjobs

import (
	"context"
	"time"

	"settee/pkg/kv"
)

const (
	// afterWatch limits the random pause of a claimer between a change and its claim. A claimer pauses if it took no job
	// after the change before: there may be other claimers, and a ready job wakes all of them. With the pause most of them
	// find the job taken, instead of a conflict. The claimer that took the job does not pause.
	afterWatch = 50 * time.Millisecond
	// idlePause limits the pause if other claimers take jobs: to idlePause for each process that accepts jobs, and to
	// maxIdlePause. The pause becomes eight times as long with each change in a row after which the claimer took no job. So
	// while there are few jobs, a few claimers take them. The others together look about twice in idlePause, however many
	// they are. They take the jobs for which the few have no room.
	idlePause    = 150 * time.Millisecond
	maxIdlePause = 10 * time.Second
)

// idle is what a claimer without jobs waits for.
type idle struct {
	watch kv.Watch
	next  time.Time // when the next job is due; zero if none is scheduled
}

// idle returns what to wait for after a claim, or nil if it has taken jobs.
func (c *claimer) idle(found *view) *idle {
	if found.watch == nil {
		return nil
	}
	i := &idle{watch: found.watch}
	if found.next != 0 {
		left := unixTime(found.next).Sub(c.queue.layer.now())
		if !kv.Exclusive(c.queue.layer.db) {
			// Times are whole seconds. With a random part of one claimers do not all wake at that moment.
			left += time.Duration(found.random.Int64N(int64(time.Second)))
		}
		i.next = time.Now().Add(left)
	}
	return i
}

func (i *idle) cancel() {
	if i != nil {
		i.watch.Cancel()
	}
}

// pause waits between a change and the claim after it, or until the next job is due, or requests change.
func (i *idle) pause(ctx context.Context, c *claimer) {
	longest := c.longestPause()
	if longest == 0 {
		return
	}
	pause := time.Duration(c.queue.layer.draw().Int64N(int64(longest)))
	if !i.next.IsZero() {
		pause = min(pause, time.Until(i.next))
	}
	c.queue.layer.pause(ctx, pause, c.wake)
}

// longestPause returns the limit of the pause after a change.
func (c *claimer) longestPause() time.Duration {
	switch {
	case c.misses == 0:
		return 0
	case c.partition.claimers <= 1: // no other claimer has taken jobs lately
		return afterWatch
	}
	return min(afterWatch<<min(3*(c.misses-1), 10), max(afterWatch, idlePause*time.Duration(c.queue.layer.claimers())), maxIdlePause)
}
