package serverbudget

import "time"

// usedPart is the part of a rate that is used. Requests of one second are so spread over 1/usedPart seconds, 1.03, and may come to
// the server up to 30 ms late, by slack and by the network, without being more in any second than the rate.
const usedPart = 0.97

// slack is the time for which a rate makes up for what was not used, because timers are late. With 10 ms, 40 jobs on three nodes that
// shared two processors used 2 % less of 100 requests a second than one node did; with 15 ms, 0.8 % less.
const slack = 15 * time.Millisecond

// gate lets waiters through at a rate. The budget's mutex guards it.
type gate struct {
	queue
	rate   float64   // units a second; 0 if nothing passes
	free   bool      // there is no limit
	at     time.Time // when the next one may pass
	timer  *time.Timer
	passed float64 // units so far, without those that were given back
	waited bool    // something has waited since this was last cleared
}

// charge counts units that pass, or that are given back if cost is negative, and makes later ones wait for them.
func (g *gate) charge(now time.Time, cost float64) {
	g.passed += cost
	if g.free || g.rate == 0 {
		return
	}
	if earliest := now.Add(-slack); g.at.Before(earliest) {
		g.at = earliest
	}
	g.at = g.at.Add(time.Duration(cost / (usedPart * g.rate) * float64(time.Second)))
}

// open reports whether one may pass, and after which time it may; never if that is negative.
func (g *gate) open(now time.Time) (ok bool, after time.Duration) {
	switch {
	case g.free:
		return true, 0
	case g.rate == 0:
		return false, -1
	}
	after = g.at.Sub(now)
	return after <= 0, after
}

// pass lets through those who may, and sets a timer that calls again for the next ones.
func (g *gate) pass(again func()) {
	if g.timer != nil {
		g.timer.Stop()
	}
	for w := g.next(); w != nil; w = g.next() {
		now := time.Now()
		ok, after := g.open(now)
		if !ok {
			if after >= 0 {
				g.timer = time.AfterFunc(after, again)
			}
			g.waited = true
			return
		}
		g.charge(now, w.cost)
		g.serve()
		close(w.ready)
	}
}

// setRate changes the rate. A part of 0 of a limit lets nothing pass. A limit of 0 is none.
func (g *gate) setRate(limit, part int64) {
	before := g.rate
	g.free, g.rate = limit == 0, float64(part)
	switch now := time.Now(); {
	case g.rate == 0:
	case before == 0: // others may have used these units until now
		g.at = now.Add(time.Duration(float64(time.Second) / (usedPart * g.rate)))
	case g.at.After(now): // what was charged is paid at the new rate
		g.at = now.Add(time.Duration(float64(g.at.Sub(now)) * before / g.rate))
	}
}

// connections counts the requests under way, each of which uses a connection. The budget's mutex guards it.
type connections struct {
	requests, feeds queue // those that wait
	most            int64 // 0: none
	free            bool
	open            int64
	peak            int64 // since this was last cleared
	feeding         []*Flow
	waited          bool // as gate.waited
}

// pass gives free connections to those that wait. Feeds get at most half of all.
func (c *connections) pass() {
	for w := c.requests.next(); w != nil && (c.free || c.open < c.most); w = c.requests.next() {
		c.take(&c.requests, w)
	}
	for w := c.feeds.next(); w != nil && (c.free || c.open < c.most && int64(len(c.feeding)) < c.most/2); w = c.feeds.next() {
		c.feeding = append(c.feeding, w.flow)
		c.take(&c.feeds, w)
	}
	c.waited = c.waited || c.waiting() > 0
}

// waiting returns the number of requests that wait.
func (c *connections) waiting() int { return c.requests.length + c.feeds.length }

func (c *connections) take(q *queue, w *waiter) {
	q.serve()
	c.open++
	c.peak = max(c.peak, c.open)
	w.flow.held.Add(1)
	close(w.ready)
}
