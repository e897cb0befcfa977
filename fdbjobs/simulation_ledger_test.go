//go:build !race

package fdbjobs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"settee/fdbjobs"
	"settee/fdbjobs/internal/turnstile"
	"settee/pkg/kv"
	"settee/pkg/kv/check"
)

// ledger records what was committed, and checks it.
type ledger struct {
	layer    *fdbjobs.Layer
	s        *simulation
	books    []*book
	commits  int
	holdings map[string]*holding // by lock
	writing  map[string]*intent  // by lock: what a holder writes now, in its own transaction or another holder's
}

// book is the ledger of one queue.
type book struct {
	queue   *fdbjobs.Queue // without faults
	entries map[string]*entry
}

// entry is what is known of a job.
type entry struct {
	id      string
	row     fdbjobs.JobRow
	args    int       // of the latest add
	state   string    // written by the last holder at the end
	updated time.Time // last update of a holder
	// ended has, for each status, the number of commits when the job last left it.
	ended map[fdbjobs.Status]int
}

// had reports whether the job had a status at a commit or after it.
func (e *entry) had(status fdbjobs.Status, since int) bool {
	return e.row.Status == status || e.ended[status] > since
}

// holding is one claim of one job.
type holding struct {
	entry      *entry
	process    string
	at         time.Time
	args       int
	generation int64
	held       *fdbjobs.Held // once it was handed out
	by         *simProcess
}

// waiting is a pending call of Wait.
type waiting struct {
	name    string
	process *simProcess
	book    *book
	id      string
	since   int // number of commits
	began   time.Time
	due     time.Time // when it must return; zero: nothing has happened
	removed bool      // the job was removed
	anew    bool      // it was added again after a removal
}

func (w *waiting) String() string { return fmt.Sprintf("%s, which waits for %q", w.name, w.id) }

func newLedger(s *simulation) *ledger {
	l := &ledger{s: s, holdings: map[string]*holding{}, writing: map[string]*intent{}}
	layer := fdbjobs.Open(s.store, prefix, fdbjobs.Options{Seed: [32]byte{1}, Derive: s.plan.derive()})
	l.layer = layer
	for _, name := range s.plan.queues {
		l.books = append(l.books, &book{queue: layer.Queue(name), entries: map[string]*entry{}})
	}
	return l
}

func (l *ledger) book(name string) *book {
	return l.books[slices.IndexFunc(l.books, func(b *book) bool { return b.queue.Name() == name })]
}

func (b *book) entry(id string) *entry {
	e := b.entries[id]
	if e == nil {
		e = &entry{id: id, row: fdbjobs.JobRow{Status: fdbjobs.Removed}, ended: map[fdbjobs.Status]int{}}
		b.entries[id] = e
	}
	return e
}

var fencePrefix = []byte("fence/")

// checkEvery is the number of commits between two full checks, and followEvery between two checks of what follows from jobs.
const (
	checkEvery  = 97
	followEvery = 7
)

// committed is called after a commit, before anything else happens.
func (l *ledger) committed(ctx context.Context, keys, added [][]byte) {
	l.commits++
	by, _ := ctx.Value(intentKey{}).(*intent)
	actor := turnstile.NameOf(ctx)
	written, again := 0, false
	for _, key := range keys {
		if lock, ok := bytes.CutPrefix(key, fencePrefix); ok {
			again = l.fenced(actor, string(lock)) || again
			written++
		}
	}
	if written > 1 {
		l.s.counts["shared"]++
		if again {
			l.s.counts["shared, reported unknown"]++
		}
	}
	for _, b := range l.books {
		var ids []string
		for _, key := range keys {
			if id := b.queue.JobOf(key); id != "" && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
		slices.Sort(ids)
		first := b.firstDelayed()
		for _, id := range ids {
			if err := l.read(func(tx kv.ReadTransaction) error { return l.changed(tx, b, id, actor, by) }); err != nil {
				l.s.fail("%s commits: %s %q: %v", actor, b.queue.Name(), id, err)
			}
		}
		if !slices.ContainsFunc(added, b.queue.Wakes) {
			l.woken(b, ids, first, actor)
		}
	}
	if l.commits%checkEvery == 0 {
		l.checkAll()
	}
	if l.commits%followEvery == 0 {
		l.checkFollows()
	}
}

// woken checks a commit that wakes no claimer: until it, there was a job that was delayed for at most as long as those
// that it has delayed. first is when the first of them was scheduled.
func (l *ledger) woken(b *book, ids []string, first int64, actor string) {
	for _, id := range ids {
		switch e := b.entries[id]; {
		case !e.row.Waits:
		case e.row.Scheduled < first:
			l.s.fail("%s delays %s %q before all other jobs, and wakes no claimer", actor, b.queue.Name(), id)
		default:
			l.s.counts["delayed, wake nobody"]++
		}
	}
}

// firstDelayed returns the time of the first delayed job.
func (b *book) firstDelayed() int64 {
	first := int64(math.MaxInt64)
	for _, e := range b.entries {
		if e.row.Waits {
			first = min(first, e.row.Scheduled)
		}
	}
	return first
}

func (l *ledger) read(fn func(tx kv.ReadTransaction) error) error {
	return l.s.store.Transact(context.Background(), func(tx kv.Transaction) error { return fn(tx.Snapshot()) })
}

// fenced is a commit of what a holder adds to an update: it is made only while the job is held, and once if it ends the
// job. It reports whether the same call has committed before.
func (l *ledger) fenced(actor, lock string) (again bool) {
	h, by := l.holdings[lock], l.writing[lock]
	switch {
	case by == nil || h.process != processOf(actor):
		l.s.fail("%s commits what the holder of %q adds to no call", actor, h.entry.id)
		return false
	case by.fails:
		l.s.fail("%s commits for %q what has failed", actor, h.entry.id)
	}
	by.written++
	if by.ends && by.written > 1 {
		l.s.fail("%s commits the end of %q twice", actor, h.entry.id)
	}
	return by.written > 1
}

// changed checks what a commit did to a job.
func (l *ledger) changed(tx kv.ReadTransaction, b *book, id, actor string, by *intent) error {
	e := b.entry(id)
	by = l.writer(e, actor, by)
	now, err := b.queue.ReadRow(tx, id)
	if err != nil {
		return err
	}
	if err := b.queue.CheckKeys(tx, e.row, now); err != nil {
		return err
	}
	before := e.row
	l.s.trace.add(actor, "commits:", change{id, before, now})
	if before.Status == fdbjobs.Pending && now.Status == fdbjobs.Running {
		if paused, err := b.queue.Paused(tx, now.Owner); err != nil || paused {
			return errors.Join(err, fmt.Errorf("taken, and its owner %q is paused", now.Owner))
		}
	}
	if err := l.allowed(e, now, actor, by); err != nil {
		return fmt.Errorf("%s -> %s: %w", describe(before), describe(now), err)
	}
	if now.Status != before.Status {
		e.ended[before.Status] = l.commits
		l.expectTold(b, id, before.Status, now.Status)
	}
	if now.Sequence != before.Sequence {
		e.updated = time.Now()
	}
	e.row = now
	if by != nil {
		by.committed[id] = true
	}
	return nil
}

// writer returns what a commit for by intends with a job: what its holder writes, if the holder's process commits. A
// process commits the writes of its holders together, in the transaction of one of them.
func (l *ledger) writer(e *entry, actor string, by *intent) *intent {
	if by != nil && by.does != holds || e.row.Status != fdbjobs.Running {
		return by
	}
	if writes := l.writing[e.row.Lock]; writes != nil && l.holdings[e.row.Lock].process == processOf(actor) {
		return writes
	}
	if by != nil && by.lock != e.row.Lock {
		return nil
	}
	return by
}

type change struct {
	id          string
	before, now fdbjobs.JobRow
}

func (c change) String() string {
	return fmt.Sprintf("%s: %s -> %s", c.id, describe(c.before), describe(c.now))
}

func describe(r fdbjobs.JobRow) string {
	out := string(r.Status)
	if r.Waits {
		out = "delayed"
	}
	if r.Lock != "" {
		out += " " + r.Lock[:6]
	}
	if r.Generation != 0 {
		out += fmt.Sprint(" generation ", r.Generation)
	}
	return out
}

// allowed returns what is wrong with a change of a job.
func (l *ledger) allowed(e *entry, now fdbjobs.JobRow, actor string, by *intent) error {
	does := ""
	if by != nil {
		does = by.does
	}
	if (does == adds || does == hastens || does == removes) && !slices.Contains(by.ids, e.id) {
		return fmt.Errorf("a job that the call does not name")
	}
	from, to := e.row.Status, now.Status
	switch {
	case does == adds:
		return l.added(e, now, by)
	case does == removes && to == fdbjobs.Removed:
		if from == fdbjobs.Running {
			l.s.counts["removed while running"]++
		}
		return nil
	case does == hastens && e.row.Waits && to == fdbjobs.Pending && !now.Waits:
		l.s.counts["hastened"]++
		return nil
	case does == holds:
		return l.written(e, now, by)
	case does == monitors && from == fdbjobs.Running && to == fdbjobs.Pending:
		return l.requeued(e, now)
	case does == rederives && from != fdbjobs.Removed && e.row.Same(now):
		l.s.counts["rederived"]++
		return nil
	case does == expires && from == fdbjobs.Finished && to == fdbjobs.Removed:
		l.s.counts["expired"]++
		return nil
	case does == "" && from == fdbjobs.Pending && to == fdbjobs.Running:
		return l.claimed(e, now, actor)
	case does == "" && e.row.Waits && to == fdbjobs.Pending && !now.Waits:
		if now.Scheduled > time.Now().Add(l.s.plan.clocks/2).Unix() {
			return fmt.Errorf("ready before its time")
		}
		return nil
	case does == "" && from == fdbjobs.Running && to == fdbjobs.Pending:
		h := l.holdings[e.row.Lock]
		if h.held != nil || h.process != processOf(actor) {
			return fmt.Errorf("given back by a claimer that does not have it")
		}
		l.s.counts["given back"]++
		return nil
	}
	return fmt.Errorf("not a change of an actor that %q", does)
}

func processOf(name string) string {
	process, _, _ := strings.Cut(name, "/")
	return process
}

func (l *ledger) added(e *entry, now fdbjobs.JobRow, by *intent) error {
	if e.args == by.n && e.row.Status != fdbjobs.Removed {
		return fmt.Errorf("added twice")
	}
	e.args = by.n
	l.s.counts["adds"]++
	switch {
	case e.row.Status != fdbjobs.Running && now.Status == fdbjobs.Pending:
		return nil
	case e.row.Status == fdbjobs.Running && now.Status == fdbjobs.Running &&
		now.Generation == e.row.Generation+1 && now.Lock == e.row.Lock && now.Sequence == e.row.Sequence:
		l.s.counts["added to a running job"]++
		return nil
	}
	return fmt.Errorf("not what adding does")
}

// claimed: a job is taken under a new lock, and not twice.
func (l *ledger) claimed(e *entry, now fdbjobs.JobRow, actor string) error {
	if now.Lock == "" || l.holdings[now.Lock] != nil {
		return fmt.Errorf("a lock that is not new")
	}
	if now.Generation != e.row.Generation {
		return fmt.Errorf("another generation")
	}
	l.s.counts["claims"]++
	l.holdings[now.Lock] = &holding{
		entry: e, process: processOf(actor), at: time.Now(), args: e.args, generation: now.Generation,
	}
	return nil
}

// written: a holder changes only a job that runs under its lock.
func (l *ledger) written(e *entry, now fdbjobs.JobRow, by *intent) error {
	h := l.holdings[by.lock]
	if e.row.Status != fdbjobs.Running || e.row.Lock != by.lock || h.entry != e {
		return fmt.Errorf("written under the lock %s, which does not hold the job", by.lock[:6])
	}
	again := e.row.Generation != h.generation
	switch now.Status {
	case fdbjobs.Running:
		if by.ends || again || now.Lock != by.lock {
			return fmt.Errorf("not what an update does")
		}
		l.s.counts["updates"]++
	case fdbjobs.Finished:
		if !by.ends || again {
			return fmt.Errorf("finished though it was added again")
		}
		if by.args != e.args {
			return fmt.Errorf("finished with args %d, and the latest are %d", by.args, e.args)
		}
		e.state = by.state
		l.s.counts["finishes"]++
	case fdbjobs.Pending:
		if !by.ends && !again {
			return fmt.Errorf("queued by an update")
		}
		l.s.counts["resubmits"]++
	default:
		return fmt.Errorf("not what a holder does")
	}
	by.done = by.ends && !again
	return nil
}

// requeued: a monitor takes a job only from a holder that has given it up, or was frozen.
func (l *ledger) requeued(e *entry, now fdbjobs.JobRow) error {
	l.s.counts["requeues"]++
	if now.Lock != "" {
		return fmt.Errorf("its holder may still write")
	}
	if idle := time.Since(e.updated); idle < slices.Min(l.s.plan.timeouts) {
		return fmt.Errorf("requeued %v after its last update", idle)
	}
	h := l.holdings[e.row.Lock]
	if h.held != nil && !h.by.Dead() && h.by.disturbed.Before(e.updated) && h.held.Context().Err() == nil {
		return fmt.Errorf("taken from a holder that may still work on it")
	}
	return nil
}

// tellWithin is the longest time until a waiter returns: its watch may be lost, and the store slow.
const tellWithin = 30*time.Second + 15*time.Second

// expectTold records which waiters must return after a change: after the job's end or its removal, unless it is added
// again after a removal, from which on it counts its ends anew. It is not visible whether a waiter that has just begun
// has read the job yet.
func (l *ledger) expectTold(b *book, id string, before, now fdbjobs.Status) {
	for _, w := range l.s.waiters {
		if w.book != b || w.id != id {
			continue
		}
		if before == fdbjobs.Removed {
			w.due, w.anew, w.removed = time.Time{}, true, false
		}
		if (now == fdbjobs.Finished && !w.anew || now == fdbjobs.Removed) && (w.due.IsZero() || w.removed) &&
			time.Since(w.began) > 10*time.Second && w.process.disturbed.Before(w.began) {
			w.due, w.removed = time.Now().Add(tellWithin), now == fdbjobs.Removed
		}
	}
}

// monitoring is a running monitor.
type monitoring struct {
	process *simProcess
	book    *book
	began   time.Time
}

// requeueWithin is how much later than two timeouts an abandoned job may be queued, or three if timeouts differ: the store
// may be slow.
const requeueWithin = 4 * time.Second

// handWithin is the longest time from a claim's commit until the job is passed to an acceptor or resubmitted.
const handWithin = 10 * time.Second

// lookForLate finds what should have happened by now.
func (l *ledger) lookForLate() {
	now := time.Now()
	if now.Sub(l.s.looked) < 500*time.Millisecond {
		return
	}
	l.s.looked = now
	for _, w := range l.s.waiters {
		if !w.due.IsZero() && now.After(w.due) && !w.process.Frozen() {
			l.s.fail("%s has not been told in time", w)
		}
	}
	l.s.monitors = slices.DeleteFunc(l.s.monitors, func(m *monitoring) bool { return m.process.Dead() })
	for _, b := range l.books {
		watched := l.s.watchedSince(b)
		for _, id := range b.ids() {
			if e := b.entries[id]; e.row.Status == fdbjobs.Running {
				l.lookForLateRun(b, e, watched)
			}
		}
	}
}

// lookForLateRun checks a running job of a queue that a monitor has watched since a time. Zero means that there is no
// monitor.
func (l *ledger) lookForLateRun(b *book, e *entry, watched time.Time) {
	h := l.holdings[e.row.Lock]
	for _, p := range l.s.processes {
		if p.String() == h.process && h.held == nil && p.disturbed.Before(h.at) && time.Since(h.at) > handWithin {
			l.s.fail("%s %q was claimed by %s, and no acceptor has got it", b.queue.Name(), e.id, p)
		}
	}
	if watched.IsZero() {
		return
	}
	since := e.updated
	if watched.After(since) {
		since = watched
	}
	// Monitors may die one after the other. One with a shorter timeout than the holder's then begins anew.
	timeouts := time.Duration(1+len(l.s.plan.timeouts)) * slices.Max(l.s.plan.timeouts)
	if late := time.Since(since) - timeouts; late > requeueWithin {
		l.s.fail("%s %q has not been queued again %v after its timeout", b.queue.Name(), e.id, late)
	}
}

// watchedSince returns the start of the monitor of a queue that has run undisturbed for the longest, or the zero time.
func (s *simulation) watchedSince(b *book) (watched time.Time) {
	for _, m := range s.monitors {
		since := m.began
		if m.process.disturbed.After(since) {
			since = m.process.disturbed
		}
		if m.book == b && since.Before(time.Now()) && (watched.IsZero() || since.Before(watched)) {
			watched = since
		}
	}
	return watched
}

func (b *book) ids() []string {
	ids := make([]string, 0, len(b.entries))
	for id := range b.entries {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// checkAll checks all keys.
func (l *ledger) checkAll() {
	if err := check.Sound(context.Background(), l.s.store, l.layer.Check); err != nil {
		l.s.fail("after %d commits: %v", l.commits, err)
	}
	l.checkFollows()
}

// checkFollows derives from scratch what follows from the jobs.
func (l *ledger) checkFollows() {
	if err := l.read(func(tx kv.ReadTransaction) error { return followsFromScratch(tx, l.book(derivedQueue).queue) }); err != nil {
		l.s.fail("after %d commits: %v", l.commits, err)
	}
}

// drained reports whether all jobs have been finished or removed.
func (l *ledger) drained() bool { return l.left() == "" }

// left returns the first job that has not been finished or removed.
func (l *ledger) left() string {
	for _, b := range l.books {
		for _, id := range b.ids() {
			if status := b.entries[id].row.Status; status == fdbjobs.Pending || status == fdbjobs.Running {
				return fmt.Sprintf("%s %q, %s", b.queue.Name(), id, describe(b.entries[id].row))
			}
		}
	}
	return ""
}
