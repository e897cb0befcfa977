package worker

import "time"

// recurring is work that is done again and again. It has a goroutine only while it is done: thousands of runs wait for
// changes.
type recurring struct {
	timer *time.Timer
	doing chan struct{} // holds a token while the work is done; a mutex would hold up the time of a test
	over  bool
}

// recur does work after some time, and again whenever that has called again.
func recur(first time.Duration, do func(again func(time.Duration))) *recurring {
	w := &recurring{doing: make(chan struct{}, 1)}
	defer w.enter()()
	w.timer = time.AfterFunc(first, func() {
		defer w.enter()()
		if !w.over {
			do(w.in)
		}
	})
	return w
}

func (w *recurring) enter() (leave func()) {
	w.doing <- struct{}{}
	return func() { <-w.doing }
}

// in does the work again after d instead of when it was due.
func (w *recurring) in(d time.Duration) { w.timer.Reset(d) }

// end waits until the work is no longer done.
func (w *recurring) end() {
	defer w.enter()()
	w.over = true
	w.timer.Stop()
}

// atWhole returns the time until d from now, or less: the runs of a node do periodic work together, at whole seconds,
// because waking up costs more than most of that work.
func atWhole(d time.Duration) time.Duration {
	now := time.Now()
	if due := down(now.Add(d), time.Second); due.After(now) {
		return due.Sub(now)
	}
	return d
}
