package lifecycle_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/cmd/settee/internal/lifecycle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const grace = 10 * time.Second

var errBroken = errors.New("broken")

// program runs parts in a bubble, and records the order of events.
type program struct {
	*testing.T
	parts  []lifecycle.Part
	failed chan error
	signal context.CancelFunc // the first signal
	linger time.Duration      // between leaving and draining
	ended  chan error

	mu     sync.Mutex
	events []string
}

// bubble runs a test in a bubble of its own.
func bubble(t *testing.T, test func(p *program)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(&program{T: t, failed: make(chan error, 1), ended: make(chan error, 1)}) })
}

func (p *program) note(event string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, event)
}

// seen returns the events since the last call.
func (p *program) seen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	events := p.events
	p.events = nil
	return events
}

// add adds a part that starts, drains and stops at once.
func (p *program) add(name string) *lifecycle.Part {
	p.parts = append(p.parts, lifecycle.Part{
		Start: func(context.Context) error { p.note("start " + name); return nil },
		Drain: func() { p.note("drain " + name) },
		Stop:  func(context.Context) error { p.note("stop " + name); return nil },
	})
	return &p.parts[len(p.parts)-1]
}

// run starts the program and returns when it waits.
func (p *program) run() {
	ctx, cancel := context.WithCancel(p.Context())
	p.signal = cancel
	go func() {
		p.ended <- lifecycle.Run(ctx, p.parts, lifecycle.Options{
			Failed: p.failed,
			Grace:  func() time.Duration { return grace },
			Ending: func() context.Context {
				p.note("ending")
				ctx, cancel := context.WithTimeout(context.Background(), p.linger)
				context.AfterFunc(ctx, cancel)
				return ctx
			},
			CutOff: func() { p.note("cut off") },
		})
	}()
	synctest.Wait()
}

func TestOrder(t *testing.T) {
	bubble(t, func(p *program) {
		p.add("a")
		p.add("b")
		p.parts = append(p.parts, lifecycle.Part{})
		p.add("c")
		p.run()
		require.Equal(t, []string{"start a", "start b", "start c"}, p.seen())
		p.signal()
		require.NoError(t, <-p.ended)
		assert.Equal(t, []string{"ending", "drain c", "drain b", "drain a", "stop c", "stop b", "stop a"}, p.seen())
	})
}

// Parts leave when the program is told to end, and are drained when its time is over or one of them fails.
func TestLeave(t *testing.T) {
	bubble(t, func(p *program) {
		p.linger = time.Minute
		for _, name := range []string{"a", "b"} {
			p.add(name).Leave = func() { p.note("leave " + name) }
		}
		p.run()
		p.signal()
		time.Sleep(p.linger - 1)
		require.Equal(t, []string{"start a", "start b", "ending", "leave b", "leave a"}, p.seen())
		require.NoError(t, <-p.ended)
		require.Equal(t, []string{"drain b", "drain a", "stop b", "stop a"}, p.seen())
	})
}

func TestFailureWhileLeaving(t *testing.T) {
	bubble(t, func(p *program) {
		p.linger = time.Minute
		p.add("a").Leave = func() { p.note("leave a") }
		p.run()
		p.signal()
		synctest.Wait()
		p.failed <- errBroken
		require.ErrorIs(t, <-p.ended, errBroken)
		require.Equal(t, []string{"start a", "ending", "leave a", "drain a", "stop a"}, p.seen())
	})
}

func TestStartFails(t *testing.T) {
	bubble(t, func(p *program) {
		p.add("a")
		p.add("b")
		p.add("c").Start = func(context.Context) error { return errBroken }
		p.add("d")
		p.run()
		require.ErrorIs(t, <-p.ended, errBroken)
		assert.Equal(t, []string{"start a", "start b", "drain b", "drain a", "stop b", "stop a"}, p.seen())
		p.signal()
	})
}

// A signal ends a start that takes long.
func TestSignalDuringStart(t *testing.T) {
	bubble(t, func(p *program) {
		p.add("a")
		p.add("b").Start = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		p.run()
		require.Equal(t, []string{"start a"}, p.seen())
		p.signal()
		require.ErrorIs(t, <-p.ended, context.Canceled)
		assert.Equal(t, []string{"drain a", "stop a"}, p.seen())
	})
}

func TestPartFails(t *testing.T) {
	bubble(t, func(p *program) {
		errStop := errors.New("stopping failed, too")
		p.add("a").Stop = func(context.Context) error { p.note("stop a"); return errStop }
		p.add("b")
		p.run()
		p.failed <- errBroken
		err := <-p.ended
		require.EqualError(t, err, "broken\nstopping failed, too")
		require.ErrorIs(t, err, errBroken)
		assert.Equal(t, []string{"start a", "start b", "drain b", "drain a", "stop b", "stop a"}, p.seen())
		p.signal()
	})
}

// hang has Stop take until its context ends.
func (p *program) hang(part *lifecycle.Part, name string) {
	part.Stop = func(ctx context.Context) error { <-ctx.Done(); p.note("stop " + name); return ctx.Err() }
}

// All parts together have the grace period, and those after the first one that is cut off are stopped, too.
func TestGracePeriod(t *testing.T) {
	bubble(t, func(p *program) {
		p.add("a")
		p.hang(p.add("b"), "b")
		p.hang(p.add("c"), "c")
		p.run()
		p.seen()
		time.Sleep(time.Hour)
		began := time.Now()
		p.signal()
		require.NoError(t, <-p.ended)
		assert.Equal(t, grace, time.Since(began))
		assert.Equal(t, []string{"ending", "drain c", "drain b", "drain a", "stop c", "cut off", "stop b", "stop a"}, p.seen())
	})
}

// Cutting off a part hides neither why the program ended nor other failures.
func TestFailureAndGracePeriod(t *testing.T) {
	bubble(t, func(p *program) {
		errStop := errors.New("stopping failed")
		p.add("a").Stop = func(context.Context) error { return errStop }
		p.hang(p.add("b"), "b")
		p.run()
		p.failed <- errBroken
		require.EqualError(t, <-p.ended, "broken\nstopping failed")
		assert.Contains(t, p.seen(), "cut off")
		p.signal()
	})
}

// An error that looks like the end of the grace period is a failure before that.
func TestTimeoutWithinGracePeriod(t *testing.T) {
	bubble(t, func(p *program) {
		p.add("a").Stop = func(context.Context) error { return context.DeadlineExceeded }
		p.run()
		p.signal()
		require.ErrorIs(t, <-p.ended, context.DeadlineExceeded)
		assert.NotContains(t, p.seen(), "cut off")
	})
}

// A second signal ends the process while a part does not stop: the program stops catching signals before it drains.
func TestSecondSignal(t *testing.T) {
	bubble(t, func(p *program) {
		p.hang(p.add("a"), "a")
		p.run()
		p.signal()
		synctest.Wait() // a hangs
		assert.Equal(t, []string{"start a", "ending", "drain a"}, p.seen())
		require.NoError(t, <-p.ended)
	})
}

// A worker ends with the drain. What runs in the background is there until the parts after it have stopped. The
// signal itself ends neither.
func TestGoroutines(t *testing.T) {
	bubble(t, func(p *program) {
		loop := func(name string) func(context.Context) {
			return func(ctx context.Context) {
				p.note("begin " + name)
				<-ctx.Done()
				time.Sleep(time.Second) // the list waits for it
				p.note("end " + name)
			}
		}
		p.parts = append(p.parts, lifecycle.Background(loop("background")))
		p.add("a").Stop = func(context.Context) error {
			time.Sleep(time.Minute)
			p.note("stop a")
			return nil
		}
		p.parts = append(p.parts, lifecycle.Worker(loop("worker")))
		p.add("b").Drain = func() {
			time.Sleep(time.Minute)
			p.note("drain b")
		}
		p.run()
		p.seen()
		p.signal()
		require.NoError(t, <-p.ended)
		assert.Equal(t, []string{"ending", "drain b", "drain a", "stop b", "end worker", "stop a", "end background"}, p.seen())
	})
}

// A loop that was never started is not waited for.
func TestGoroutineNotStarted(t *testing.T) {
	bubble(t, func(p *program) {
		p.add("a").Start = func(context.Context) error { return errBroken }
		p.parts = append(p.parts, lifecycle.Worker(func(context.Context) { t.Error("it was started") }))
		p.run()
		require.ErrorIs(t, <-p.ended, errBroken)
		p.signal()
	})
}
