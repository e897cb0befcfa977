package watch

import (
	"sync/atomic"
	"time"
)

// Counts are the watches of a node, and what they have done since it started.
type Counts struct {
	// Feeds is the number of watches that follow a feed, and Questioned of those that ask for each parked job. Others
	// are beginning.
	Feeds, Questioned int
	// Lag is how far the watch is behind that is furthest behind: the longest time since a feed has sent an update or a
	// heartbeat, since which a server has not answered, by which a question is late, or for which a due watch has waited for
	// a place on a node without room.
	Lag time.Duration

	// WakesFeed counts the jobs that were woken because a feed named their source, WakesQuestion because the source
	// answered a question so, or refused it, WakesSafety because a comparison found a change that no feed had named, and
	// WakesTarget because their target has lost what it had.
	WakesFeed, WakesQuestion, WakesSafety, WakesTarget int64
	// Questions counts the requests for the changes of one database.
	Questions int64
	// FeedFailures counts feeds that could not be opened or have broken off. A feed that this user may not read does not
	// count.
	FeedFailures int64
}

type counter struct {
	wakes                   [causes]atomic.Int64
	questions, feedFailures atomic.Int64
}

// cause is why jobs are woken.
type cause int

const (
	byFeed cause = iota
	byQuestion
	bySafety
	byTarget
	causes
)

// kind is how a watch hears of changes.
type kind int32

const (
	beginning kind = iota
	following
	asking
)

// Counts returns the counts so far.
func (w *Watcher) Counts() Counts {
	c := Counts{
		WakesFeed: w.counter.wakes[byFeed].Load(), WakesQuestion: w.counter.wakes[byQuestion].Load(),
		WakesSafety: w.counter.wakes[bySafety].Load(), WakesTarget: w.counter.wakes[byTarget].Load(),
		Questions: w.counter.questions.Load(), FeedFailures: w.counter.feedFailures.Load(),
	}
	if w.server.Full() {
		c.Lag = w.waited()
	}
	for _, one := range w.server.List() {
		c.Lag = max(c.Lag, one.late.lag())
		switch kind(one.kind.Load()) {
		case following:
			c.Feeds++
			if feed := one.feed.Load(); feed != nil {
				c.Lag = max(c.Lag, time.Since(feed.Heard()))
			}
		case asking:
			c.Questioned++
		case beginning:
		}
	}
	return c
}
