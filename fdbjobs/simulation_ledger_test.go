package fdbjobs_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/turnstile"
)

// ledger knows what was committed, and finds what must not be.
type ledger struct {
	s        *simulation
	books    []*book
	commits  int
	holdings map[string]*holding // by lock
}

// book is the ledger of one type.
type book struct {
	typ     *fdbjobs.Type // without faults
	entries map[string]*entry
}

// entry is what is known of a job.
type entry struct {
	id      string
	row     fdbjobs.JobRow
	args    int       // of the latest add
	state   string    // that the last holder ended it with
	updated time.Time // when a holder was last heard of
	// ended says for each status how many commits there were when it last was over.
	ended map[fdbjobs.Status]int
}

// had reports whether the job had a status at a commit or at one after it.
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

// waiting is a call of Wait.
type waiting struct {
	name    string
	process *simProcess
	book    *book
	ids     []string
	since   int // commits
	began   time.Time
	due     time.Time // when it has to be told; zero: nothing has happened
	removed string    // the job whose removal it is to be told of
}

func (w *waiting) String() string { return fmt.Sprintf("%s, which waits for %v", w.name, w.ids) }

func newLedger(s *simulation) *ledger {
	l := &ledger{s: s, holdings: map[string]*holding{}}
	layer := fdbjobs.OpenSeeded(s.store, prefix, [32]byte{})
	for _, name := range s.plan.types {
		l.books = append(l.books, &book{typ: layer.Type(name), entries: map[string]*entry{}})
	}
	return l
}

func (l *ledger) book(name string) *book {
	return l.books[slices.IndexFunc(l.books, func(b *book) bool { return b.typ.Name() == name })]
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

// checkEvery is how many commits there are between two checks of everything.
const checkEvery = 97

// committed is called after a commit, before anything else happens.
func (l *ledger) committed(ctx context.Context, keys [][]byte) {
	l.commits++
	by, _ := ctx.Value(intentKey{}).(*intent)
	who := turnstile.NameOf(ctx)
	if by != nil && slices.ContainsFunc(keys, func(k []byte) bool { return bytes.HasPrefix(k, fencePrefix) }) {
		l.fenced(who, by)
	}
	for _, b := range l.books {
		var ids []string
		for _, key := range keys {
			if id := b.typ.JobOf(key); id != "" && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
		slices.Sort(ids)
		for _, id := range ids {
			if err := l.read(func(tx kv.ReadTransaction) error { return l.changed(tx, b, id, who, by) }); err != nil {
				l.s.fail("%s commits: %s %q: %v", who, b.typ.Name(), id, err)
			}
		}
	}
	if l.commits%checkEvery == 0 {
		l.checkAll()
	}
}

func (l *ledger) read(fn func(tx kv.ReadTransaction) error) error {
	return l.s.store.Transact(context.Background(), func(tx kv.Transaction) error { return fn(tx.Snapshot()) })
}

// fenced is a commit of what a holder adds to an update: it is made only while the job
// is held, and once if it ends the job.
func (l *ledger) fenced(who string, by *intent) {
	h := l.holdings[by.lock]
	if by.written++; by.ends && by.written > 1 {
		l.s.fail("%s commits its last words for %q twice", who, h.entry.id)
	}
}

// changed checks what a commit did to a job.
func (l *ledger) changed(tx kv.ReadTransaction, b *book, id, who string, by *intent) error {
	e := b.entry(id)
	now, err := b.typ.ReadRow(tx, id)
	if err != nil {
		return err
	}
	if err := b.typ.CheckPlaces(tx, e.row, now); err != nil {
		return err
	}
	before := e.row
	l.s.trace.add(who, "commits:", change{id, before, now})
	if err := l.allowed(e, now, who, by); err != nil {
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

// allowed says what is wrong with a change of a job, if anything is.
func (l *ledger) allowed(e *entry, now fdbjobs.JobRow, who string, by *intent) error {
	does := ""
	if by != nil {
		does = by.does
	}
	if (does == adds || does == removes) && !slices.Contains(by.ids, e.id) {
		return fmt.Errorf("a job of somebody else's")
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
	case does == holds:
		return l.written(e, now, by)
	case does == monitors && from == fdbjobs.Running && to == fdbjobs.Pending:
		return l.requeued(e, now)
	case does == expires && from == fdbjobs.Finished && to == fdbjobs.Removed:
		l.s.counts["expired"]++
		return nil
	case does == "" && from == fdbjobs.Pending && to == fdbjobs.Running:
		return l.claimed(e, now, who)
	case does == "" && e.row.Waits && to == fdbjobs.Pending && !now.Waits:
		if now.Scheduled > time.Now().Unix() {
			return fmt.Errorf("ready before its time")
		}
		return nil
	case does == "" && from == fdbjobs.Running && to == fdbjobs.Pending:
		h := l.holdings[e.row.Lock]
		if h.held != nil || h.process != processOf(who) {
			return fmt.Errorf("given back by a claimer that does not have it")
		}
		l.s.counts["given back"]++
		return nil
	}
	return fmt.Errorf("not what somebody may do who %s", does)
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

// claimed: a job is taken under a lock that nobody had, and not twice.
func (l *ledger) claimed(e *entry, now fdbjobs.JobRow, who string) error {
	if now.Lock == "" || l.holdings[now.Lock] != nil {
		return fmt.Errorf("a lock that is not new")
	}
	if now.Generation != e.row.Generation {
		return fmt.Errorf("another generation")
	}
	l.s.counts["claims"]++
	l.holdings[now.Lock] = &holding{
		entry: e, process: processOf(who), at: time.Now(), args: e.args, generation: now.Generation,
	}
	return nil
}

// written: a holder changes a job that runs under its lock.
func (l *ledger) written(e *entry, now fdbjobs.JobRow, by *intent) error {
	h := l.holdings[by.lock]
	if e.row.Status != fdbjobs.Running || e.row.Lock != by.lock || h.entry != e {
		return fmt.Errorf("written by one who does not hold it: %s", by.lock[:6])
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

// requeued: a monitor takes a job only from a holder that has given it up, unless that was
// frozen.
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
		return fmt.Errorf("taken from one who believes to hold it")
	}
	return nil
}

// tellWithin is how long it takes at most until a waiter knows: its watch may be lost,
// and the store slow.
const tellWithin = 30*time.Second + 15*time.Second

// expectTold notes which of those who wait for a job are to be told of a change: of its
// end whatever becomes of it, of its removal unless it is added again. Whether one that has
// just begun has subscribed yet cannot be seen.
func (l *ledger) expectTold(b *book, id string, before, now fdbjobs.Status) {
	for _, w := range l.s.waiters {
		if w.book != b || !slices.Contains(w.ids, id) {
			continue
		}
		if before == fdbjobs.Removed && w.removed == id {
			w.due, w.removed = time.Time{}, ""
		}
		if (now == fdbjobs.Finished || now == fdbjobs.Removed) && (w.due.IsZero() || w.removed != "") &&
			time.Since(w.began) > 10*time.Second && w.process.disturbed.Before(w.began) {
			w.due, w.removed = time.Now().Add(tellWithin), ""
			if now == fdbjobs.Removed {
				w.removed = id
			}
		}
	}
}

// monitoring is a running monitor.
type monitoring struct {
	process *simProcess
	book    *book
	began   time.Time
}

// requeueWithin is how much later than a timeout and a monitor's period a job may be queued
// that nobody updates: the store may be slow.
const requeueWithin = 4 * time.Second

// handWithin is how long it takes at most from a claim's commit until the job is handed to
// somebody or given back.
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

// lookForLateRun looks at a running job, of a type that a monitor has watched since a time;
// zero: there is none.
func (l *ledger) lookForLateRun(b *book, e *entry, watched time.Time) {
	h := l.holdings[e.row.Lock]
	for _, p := range l.s.processes {
		if p.String() == h.process && h.held == nil && p.disturbed.Before(h.at) && time.Since(h.at) > handWithin {
			l.s.fail("%s %q was claimed by %s, and nobody has it", b.typ.Name(), e.id, p)
		}
	}
	if watched.IsZero() {
		return
	}
	since := e.updated
	if watched.After(since) {
		since = watched
	}
	timeout := slices.Max(l.s.plan.timeouts)
	if late := time.Since(since) - timeout - timeout/6; late > requeueWithin {
		l.s.fail("%s %q has not been queued again %v after its timeout", b.typ.Name(), e.id, late)
	}
}

// watchedSince returns since when the monitor of a type has run that has done so undisturbed
// for the longest, the zero time if there is none.
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
	for _, b := range l.books {
		if err := l.read(b.typ.Check); err != nil {
			l.s.fail("after %d commits: %s: %v", l.commits, b.typ.Name(), err)
		}
	}
}

// drained reports whether all jobs have been finished or removed.
func (l *ledger) drained() bool { return l.left() == "" }

// left names the first job that has not.
func (l *ledger) left() string {
	for _, b := range l.books {
		for _, id := range b.ids() {
			if status := b.entries[id].row.Status; status == fdbjobs.Pending || status == fdbjobs.Running {
				return fmt.Sprintf("%s %q, %s", b.typ.Name(), id, describe(b.entries[id].row))
			}
		}
	}
	return ""
}
