package fdbjobs_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/faultkv"
	"settee/pkg/kv/memkv"
)

// TestRandom lets processes add, remove, process, lose and wait for jobs at random,
// on a store with all faults. After each step all
// invariants hold; in the end every job has been finished or removed, and everyone
// who waited was told.
func TestRandom(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { newWorld(t, seed).run() })
		})
	}
}

const (
	worldTimeout = 12 * time.Second
	worldJobs    = 25
	worldOwners  = 4
)

type world struct {
	t         *testing.T
	store     *bundle   // without faults
	processes []*bundle // with faults

	mu      sync.Mutex // guards what follows
	random  *rand.Rand
	holders int
	ended   int // jobs that were finished
	halted  int // runs that lost their job
	died    int
}

func newWorld(t *testing.T, seed uint64) *world {
	db := openMem(t, memkv.Options{})
	w := &world{t: t, store: newBundle(t, db), random: rand.New(rand.NewPCG(seed, 1))}
	w.store.setTimeout(t, worldTimeout)
	for i := range byte(3) {
		faulty := faultkv.Wrap(db, faultkv.Options{Seed: seed<<8 | uint64(i), Rates: faultkv.Rates{
			faultkv.Conflict: 0.05, faultkv.UnknownCommitted: 0.1, faultkv.UnknownNotCommitted: 0.05,
			faultkv.TooOld: 0.01, faultkv.Delay: 0.05,
			faultkv.LostWatch: 0.05, faultkv.LateWatch: 0.1, faultkv.SpuriousWatch: 0.1,
		}})
		p := &bundle{db: faulty, layer: fdbjobs.OpenSeeded(faulty, prefix, [32]byte{byte(seed), i})}
		p.jobs = p.layer.Type("work")
		t.Cleanup(p.layer.Close)
		w.processes = append(w.processes, p)
	}
	return w
}

func (w *world) intN(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.IntN(n)
}

func (w *world) pause(most time.Duration) { <-time.After(time.Duration(w.intN(int(most)))) }

func (w *world) id() string { return fmt.Sprint("job ", w.intN(worldJobs)) }

func (w *world) process() *bundle { return w.processes[w.intN(len(w.processes))] }

// note counts something, and finds everything in order.
func (w *world) note(counter *int) {
	if counter != nil {
		w.mu.Lock()
		*counter++
		w.mu.Unlock()
	}
	w.store.check(w.t)
}

func (w *world) run() {
	ctx, cancel := context.WithCancel(context.Background())
	var changing, working, waiting sync.WaitGroup
	for _, p := range w.processes {
		p.monitor(w.t)
		for range 4 {
			working.Go(func() { w.acceptor(ctx, p) })
		}
	}
	for range 4 {
		changing.Go(w.adder)
	}
	changing.Go(w.remover)
	for range 60 {
		waiting.Go(w.waiter)
	}
	changing.Wait()
	for w.store.count(w.t, fdbjobs.Pending, fdbjobs.Running) > 0 {
		after(time.Second)
	}
	waiting.Wait()
	cancel()
	working.Wait()
	w.store.check(w.t)
	assert.NotZero(w.t, w.ended)
	assert.NotZero(w.t, w.halted)
	assert.NotZero(w.t, w.died)
}

func (w *world) adder() {
	for i := range 40 {
		w.pause(4 * time.Second)
		p := w.process()
		n := w.intN(1 << 30)
		p.add(w.t, fdbjobs.Spec{
			ID: w.id(), Owner: fmt.Sprint("owner ", w.intN(worldOwners)),
			Scheduled: time.Now().Add(time.Duration(w.intN(30)-15) * time.Second),
			Args:      text(fmt.Sprintf(`{"n":%d}`, n)), Token: fmt.Sprint(n, i),
		})
		w.note(nil)
	}
}

func (w *world) remover() {
	for range 25 {
		w.pause(10 * time.Second)
		w.process().remove(w.t, w.id())
		w.note(nil)
	}
}

// waiter waits for some job that is there.
func (w *world) waiter() {
	w.pause(3 * time.Minute)
	p, id := w.process(), w.id()
	job, err := p.jobs.Wait(w.t.Context(), id)
	if errors.Is(err, fdbjobs.ErrNotFound) {
		return
	}
	if assert.NoError(w.t, err) {
		assert.Equal(w.t, id, job.ID)
	}
}

func (w *world) acceptor(ctx context.Context, p *bundle) {
	for ctx.Err() == nil {
		opts := fdbjobs.AcceptOptions{Count: 1 + w.intN(3), Wait: time.Duration(w.intN(10)-2) * time.Second}
		if w.intN(4) == 0 {
			opts.Latest = time.Now().Add(time.Duration(w.intN(10)) * time.Second)
		}
		// Now and then it gives up, whether or not a job is on the way.
		waiting, cancel := context.WithCancel(ctx)
		if w.intN(3) == 0 {
			time.AfterFunc(time.Duration(w.intN(int(3*time.Second))), cancel)
		}
		held, err := p.jobs.Accept(waiting, opts)
		cancel()
		if !errors.Is(err, context.Canceled) {
			assert.NoError(w.t, err) //nolint:testifylint // require would end the wrong goroutine
		}
		w.note(nil)
		var running sync.WaitGroup
		for _, h := range held {
			running.Go(func() { w.hold(h) })
		}
		running.Wait()
		w.pause(100 * time.Millisecond)
	}
}

// hold processes a job to some end.
func (w *world) hold(h *fdbjobs.Held) {
	w.mu.Lock()
	w.holders++
	name := fmt.Sprint("holder ", w.holders)
	w.mu.Unlock()
	ctx := context.Background()
	for range w.intN(5) {
		w.pause(h.Heartbeat())
		err := h.Update(ctx, text(`{"s":1}`), w.fence(h.Job().ID, name))
		w.note(nil)
		if errors.Is(err, fdbjobs.ErrHalt) {
			w.note(&w.halted)
			return
		}
		require.NoError(w.t, err)
	}
	var err error
	switch w.intN(10) {
	default:
		if err = h.Finish(ctx, text(`{"s":2}`), w.fence(h.Job().ID, name)); err == nil {
			w.note(&w.ended)
		}
	case 0, 1:
		err = h.Resubmit(ctx, time.Now().Add(time.Duration(w.intN(20)-10)*time.Second), nil)
	case 2:
		w.note(&w.died)
	case 3: // sleeps for so long that it must have lost the job
		<-time.After(2 * worldTimeout)
		require.ErrorIs(w.t, context.Cause(h.Context()), fdbjobs.ErrHalt)
		err = h.Update(ctx, nil, nil)
		require.ErrorIs(w.t, err, fdbjobs.ErrHalt)
	}
	if errors.Is(err, fdbjobs.ErrHalt) {
		w.note(&w.halted)
		return
	}
	require.NoError(w.t, err)
	w.note(nil)
}

// fence refuses the write of a holder after another's, of the same job.
func (w *world) fence(id, holder string) func(kv.Transaction) error {
	return func(tx kv.Transaction) error {
		key := []byte("fence/" + id)
		value, err := tx.Get(key).Await()
		if err != nil {
			return err
		}
		holders := strings.Split(string(value), ",")
		if holders[len(holders)-1] == holder {
			return nil
		}
		if slices.Contains(holders, holder) {
			return fmt.Errorf("%s of %s writes after %s", holder, id, value)
		}
		tx.Set(key, append(append(value, ','), holder...))
		return nil
	}
}
