package jobs

import (
	"time"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
	"settee/replicator"
)

// A mirror has a row for each database that it knows, and what people ask of it without reading all rows is kept beside
// them (see also mirrors.go):
//
//	("mirrored", mirror, database)              -> see mirroredRow
//	("mirror_waiting", mirror, turn, database)  -> "": databases whose jobs are to be added, in the order of their turns
//	("mirror_behind", mirror, since, database)  -> "": databases with changes that the target may not have
//	("mirror_failing", mirror, since, database) -> "": databases whose last run failed
//	("mirror_gone", mirror, time, database)     -> "": databases to delete at the target then
//	("mirror_sums", mirror, name)               -> int64: sums over the rows, see mirrorSums
//
// mirror is the mirror's job id, times are in seconds since the Unix epoch. [mirrorRows.setMirrored] alone writes these keys, so
// they agree. A row that has a job changes in the transaction that writes the state of the job, and it goes with the job.

// mirroredRow is the row of a database of a mirror. It is stored as a tuple of its fields.
type mirroredRow struct {
	state replicator.MirroredState
	// definition is JobArgs.Definition of the mirror's definition that the job follows. It is empty without a job.
	definition string
	// turn orders the databases that wait: lower numbers come first.
	turn int64
	// since is since when the target may lack changes, or when a database that is gone is deleted. It is 0 for a database
	// that is up to date.
	since int64
	// failing is since when the runs fail; 0 if they do not.
	failing int64
	// At mark the source had as many changes as will have been checked when goal revisions have been. 0: there is no mark.
	mark, goal int64
	docs       replicator.DocCounts // of the job's state
	reason     string               // why it fails
	// instance is MirrorTarget.Instance of the target that has what the row says; empty if it is not known.
	instance string
}

// mirrorRows are the rows of mirrors and of their databases.
type mirrorRows struct{ *core }

// maxMirroredReason is the maximum size of a reason in bytes.
const maxMirroredReason = 300

func (r *mirroredRow) pack() []byte {
	return tuple.Tuple{
		string(r.state), r.definition, r.turn, r.since, r.failing, r.mark, r.goal, r.docs.DocsRead, r.docs.DocsWritten, r.docs.DocWriteFailures,
		r.reason, r.instance,
	}.Pack()
}

func parseMirrored(value []byte) (*mirroredRow, error) {
	var r mirroredRow
	var state string
	err := rows.Scan("a database of a mirror", value, &state, &r.definition, &r.turn, &r.since, &r.failing, &r.mark, &r.goal,
		&r.docs.DocsRead, &r.docs.DocsWritten, &r.docs.DocWriteFailures, &r.reason, &r.instance)
	if err != nil {
		return nil, err
	}
	r.state = replicator.MirroredState(state)
	return &r, nil
}

// behind reports whether the target may lack changes of the database.
func (r *mirroredRow) behind() bool {
	switch r.state {
	case replicator.MirroredWaiting, replicator.MirroredStarting, replicator.MirroredCopying, replicator.MirroredFailing, replicator.MirroredFailed:
		return true
	}
	return false
}

func (r *mirroredRow) fails() bool {
	return r.state == replicator.MirroredFailing || r.state == replicator.MirroredFailed
}

// hasJob reports whether the database has a job.
func (r *mirroredRow) hasJob() bool {
	return r.state != replicator.MirroredWaiting && r.state != replicator.MirroredGone
}

// The names of sums other than the numbers of rows in a state, which have the names of the states.
const (
	sumDocsRead      = "docs_read"
	sumDocsWritten   = "docs_written"
	sumWriteFailures = "doc_write_failures"
)

// sums adds what the row counts, times n, to sums by name.
func (r *mirroredRow) sums(n int64, into map[string]int64) {
	if r == nil {
		return
	}
	into[string(r.state)] += n
	into[sumDocsRead] += n * r.docs.DocsRead
	into[sumDocsWritten] += n * r.docs.DocsWritten
	into[sumWriteFailures] += n * r.docs.DocWriteFailures
}

// indexed returns the keys of a row in the indexes.
func (s *mirrorRows) indexed(mirror, database string, r *mirroredRow) (keys [][]byte) {
	if r == nil {
		return nil
	}
	if r.state == replicator.MirroredWaiting {
		keys = append(keys, s.space.Pack("mirror_waiting", mirror, r.turn, database))
	}
	if r.behind() {
		keys = append(keys, s.space.Pack("mirror_behind", mirror, r.since, database))
	}
	if r.fails() {
		keys = append(keys, s.space.Pack("mirror_failing", mirror, r.failing, database))
	}
	if r.state == replicator.MirroredGone {
		keys = append(keys, s.space.Pack("mirror_gone", mirror, r.since, database))
	}
	return keys
}

func (s *mirrorRows) mirroredKey(mirror, database string) []byte {
	return s.space.Pack("mirrored", mirror, database)
}

func (s *mirrorRows) mirrorSumKey(mirror, name string) []byte {
	return s.space.Pack("mirror_sums", mirror, name)
}

// readMirrored reads a row. The result is nil if there is none.
func (s *mirrorRows) readMirrored(tx kv.ReadTransaction, mirror, database string) kv.Future[*mirroredRow] {
	return kv.Map(tx.Get(s.mirroredKey(mirror, database)), func(value []byte) (*mirroredRow, error) {
		if value == nil {
			return nil, nil
		}
		return parseMirrored(value)
	})
}

// setMirrored replaces a row, and what is kept beside it. old is the row as the transaction has read it. Either is nil if
// there is no row.
func (s *mirrorRows) setMirrored(tx kv.Transaction, mirror, database string, old, next *mirroredRow) {
	for _, key := range s.indexed(mirror, database, old) {
		tx.Clear(key)
	}
	for _, key := range s.indexed(mirror, database, next) {
		tx.Set(key, nil)
	}
	changes := map[string]int64{}
	old.sums(-1, changes)
	next.sums(1, changes)
	for name, n := range changes {
		if n != 0 {
			tx.AddOrClear(s.mirrorSumKey(mirror, name), n)
		}
	}
	first := func(r *mirroredRow) bool { return r != nil && (r.state == replicator.MirroredStarting || r.fails()) }
	if first(old) && (next == nil || next.state != old.state) {
		tx.Add(s.mirrorPokesKey(mirror), 1) // there may be room for another first run, or the mirror has completed
	}
	if next == nil {
		tx.Clear(s.mirroredKey(mirror, database))
	} else {
		tx.Set(s.mirroredKey(mirror, database), next.pack())
	}
}

// after returns the row after its job has come into a state, at a time. It does not change r.
func (r *mirroredRow) after(state *replicator.JobState, now int64) *mirroredRow {
	next := *r
	next.docs = state.Stats.DocCounts
	next.state = r.stateAfter(state)
	if !next.fails() {
		next.failing, next.reason = 0, ""
	} else {
		next.reason = cutReason(state.Error)
		if !r.fails() {
			next.failing = now
		}
	}
	switch {
	case !next.behind():
		next.since, next.mark, next.goal = 0, 0, 0
	case next.since == 0:
		next.since, next.mark, next.goal = now, 0, 0
	case next.state == replicator.MirroredCopying && state.Activity != nil: // before, the state has the counts of the run before
		next.advance(state, now)
	}
	return &next
}

func (r *mirroredRow) stateAfter(state *replicator.JobState) replicator.MirroredState {
	switch {
	case state.State == replicator.StateCompleted, state.State == replicator.StatePending && state.Parked != nil:
		return replicator.MirroredCurrent
	case state.State == replicator.StateFailed && state.ErrorCode == CollisionCode:
		return replicator.MirroredElsewhere
	case state.State == replicator.StateFailed:
		return replicator.MirroredFailed
	case state.State == replicator.StateCrashing:
		return replicator.MirroredFailing
	case state.State != replicator.StateRunning: // it was stopped, and goes on later
		return r.state
	case state.Activity != nil && state.Activity.Doing == replicator.DoingWaiting:
		return replicator.MirroredCurrent
	case r.state == replicator.MirroredStarting, r.fails() && (state.Activity == nil || len(state.Activity.Waiting) > 0 ||
		state.Activity.Doing == replicator.DoingStarting):
		return r.state // a run after a failure has to show that it goes on
	}
	return replicator.MirroredCopying
}

// advance moves since forward, as [replicator.Behind.Advanced] does.
func (r *mirroredRow) advance(state *replicator.JobState, now int64) {
	behind := &replicator.Behind{Since: time.Unix(r.since, 0), Goal: r.goal}
	if r.mark != 0 {
		behind.Mark = time.Unix(r.mark, 0)
	}
	behind = behind.Advanced(state, time.Unix(now, 0))
	r.since, r.mark, r.goal = behind.Since.Unix(), 0, behind.Goal
	if !behind.Mark.IsZero() {
		r.mark = behind.Mark.Unix()
	}
}

func cutReason(text string) string {
	if len(text) <= maxMirroredReason {
		return text
	}
	end := maxMirroredReason
	for end > 0 && text[end]&0xC0 == 0x80 { // within a character
		end--
	}
	return text[:end]
}
