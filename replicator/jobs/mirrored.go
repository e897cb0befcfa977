package jobs

import (
	"encoding/json"
	"fmt"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
	"settee/replicator"
)

// Each database that a mirror knows is a job in every state: also one that waits for its turn, which is pending with tagTurn, and
// one that is gone, which is finished with tagGone. What people and the mirror's run ask of them follows from these jobs
// (derivation.go):
//
//	index        key                                 value                        has a database
//	mirrored     mirror, database                    state, definition, instance  each
//	mirror_time  mirror, "turn", turn, database      "", definition, ""           that waits
//	mirror_time  mirror, "behind", since, database   the same                     whose target may lack changes
//	mirror_time  mirror, "failing", since, database  the same                     whose latest run failed
//	mirror_time  mirror, "gone", time, database      the same                     that is to be deleted at the target then
//
// mirror is the mirror's job id, definition a hash of JobArgs.Definition, and instance MirrorTarget.Instance of a target that has
// what the source had. Each entry of the index mirrored adds to tallies of its mirror: 1 to the one with the name of its state, and
// its DocCounts to the others.

// The elements of mirror_time.
const (
	timeTurn    = "turn"
	timeBehind  = "behind"
	timeFailing = "failing"
	timeGone    = "gone"
)

// The names of tallies other than states.
const (
	sumDocsRead      = "docs_read"
	sumDocsWritten   = "docs_written"
	sumWriteFailures = "doc_write_failures"
	sumAcknowledged  = "acknowledged" // databases whose replications fail and that are acknowledged
)

// mirroredState is the part of a state that the entries of a mirror's database follow from.
type mirroredState struct {
	State    replicator.State        `json:"state"`
	Fault    *replicator.Fault       `json:"fault"`
	Stats    replicator.DocCounts    `json:"stats"`
	Behind   *replicator.Behind      `json:"behind"`
	Parked   *replicator.Parked      `json:"parked"`
	Target   replicator.MirrorTarget `json:"target"`
	Mirrored *replicator.MirroredJob `json:"mirrored"`
}

// mirroredFacts are what these entries need of a state.
type mirroredFacts struct {
	ended            string // "" or one of the states failed and elsewhere: how it ends, if it has ended
	first            bool
	failing, behind  int64
	parked           int64 // since when; also if it was woken
	turn, gone, lost int64
	instance         string

	docsRead, docsWritten, writeFailures int64
}

// maxInstanceSize is the maximum size of an instance in an entry in bytes. Others are not compared.
const maxInstanceSize = 100

// facts returns the facts of a state, none if no mirror has made its job.
func (s *mirroredState) facts() *mirroredFacts {
	m := s.Mirrored
	if m == nil {
		return nil
	}
	f := &mirroredFacts{
		first: m.FirstRun, failing: storedTime(m.FailingSince), turn: m.Turn, gone: storedTime(m.GoneAt), lost: storedTime(m.Lost),
		docsRead: s.Stats.DocsRead, docsWritten: s.Stats.DocsWritten, writeFailures: s.Stats.DocWriteFailures,
	}
	switch {
	case s.State == replicator.StateFailed && s.Fault.Is(replicator.FaultCollision):
		f.ended = string(replicator.MirroredElsewhere)
	case s.State == replicator.StateFailed:
		f.ended = string(replicator.MirroredFailed)
	}
	if s.Behind != nil {
		f.behind = storedTime(s.Behind.Since)
	}
	if s.Parked != nil {
		f.parked = storedTime(s.Parked.Since)
	}
	if len(s.Target.Instance) <= maxInstanceSize {
		f.instance = s.Target.Instance
	}
	return f
}

// elements returns the facts as they are stored.
func (f *mirroredFacts) elements() tuple.Tuple {
	if f == nil {
		return tuple.Tuple{}
	}
	return tuple.Tuple{
		f.ended, f.first, f.failing, f.behind, f.parked, f.turn, f.gone, f.lost, f.instance, f.docsRead, f.docsWritten, f.writeFailures,
	}
}

// parseMirroredFacts reads what elements has returned.
func parseMirroredFacts(e tuple.Tuple) *mirroredFacts {
	var f mirroredFacts
	if !rows.Store(e, &f.ended, &f.first, &f.failing, &f.behind, &f.parked, &f.turn, &f.gone, &f.lost, &f.instance,
		&f.docsRead, &f.docsWritten, &f.writeFailures) {
		return nil
	}
	return &f
}

// mirroredEntries returns the entries of the job of a mirror's database.
func mirroredEntries(f fdbjobs.Facts, mirror string, listed listedFacts, state stateFacts) []fdbjobs.Entry {
	m := state.mirrored
	if m == nil { // its state cannot be read
		m = &mirroredFacts{}
	}
	its := m.now(f, listed, state.definition == listed.definition)
	is, instance := its.State(), ""
	if is == replicator.MirroredCurrent {
		instance = m.instance
	}
	all := []fdbjobs.Entry{{
		Index: indexMirrored, Key: tuple.Tuple{mirror, listed.database}, Value: tuple.Tuple{string(is), listed.definition, instance}.Pack(),
		Adds: m.sums(is),
	}}
	if state.definition == listed.definition && is.NotCopied() && listed.acknowledged.Covers(state.needs) {
		all[0].Adds = append(all[0].Adds, fdbjobs.Add{Prefix: 1, Name: sumAcknowledged, N: 1})
	}
	at := func(what string, at int64, has bool) {
		if has {
			all = append(all, fdbjobs.Entry{
				Index: indexMirrorTime, Key: tuple.Tuple{mirror, what, at, listed.database},
				Value: tuple.Tuple{"", listed.definition, ""}.Pack(),
			})
		}
	}
	at(timeTurn, m.turn, is == replicator.MirroredWaiting)
	at(timeBehind, its.Behind, is.Lags())
	at(timeFailing, its.Failing, is.Fails())
	at(timeGone, m.gone, is == replicator.MirroredGone)
	return all
}

// now returns what the state of the database follows from. The definition may be newer than the state of the job. A job that was
// woken, or whose target has lost what it had, has not run yet.
func (f *mirroredFacts) now(job fdbjobs.Facts, listed listedFacts, defined bool) *replicator.MirroredFacts {
	now := &replicator.MirroredFacts{
		Waits: job.Tag == tagTurn, Gone: job.Tag == tagGone, Paused: job.Tag == tagPaused, Parked: job.Tag == tagParked, Ended: job.Status == fdbjobs.Finished,
		Failed: f.ended == string(replicator.MirroredFailed), Elsewhere: f.ended == string(replicator.MirroredElsewhere),
		FirstRun: f.first, Failing: f.failing, Behind: f.behind,
	}
	since := func(at int64, is bool) {
		if is && (now.Behind == 0 || at < now.Behind) {
			now.Behind = at
		}
	}
	since(job.Scheduled, f.parked != 0 && !now.Parked && !now.Ended)
	since(listed.lost, listed.lost != 0 && listed.lost != f.lost)
	since(listed.added, !defined && now.Behind == 0)
	if !defined && !now.Ended {
		now.Failing = 0
	}
	return now
}

// sums returns what a database in a state adds to the tallies of its mirror.
func (f *mirroredFacts) sums(is replicator.MirroredState) []fdbjobs.Add {
	adds := []fdbjobs.Add{{Prefix: 1, Name: string(is), N: 1}}
	add := func(name string, n int64) {
		if n > 0 {
			adds = append(adds, fdbjobs.Add{Prefix: 1, Name: name, N: n})
		}
	}
	add(sumDocsRead, f.docsRead)
	add(sumDocsWritten, f.docsWritten)
	add(sumWriteFailures, f.writeFailures)
	return adds
}

// mirrorRows are the events of mirrors, and what follows from the jobs of their databases.
type mirrorRows struct{ *core }

// mirroredEntry is an entry of a mirror's database.
type mirroredEntry struct {
	id, database string
	at           int64 // of the index mirror_time
	state        replicator.MirroredState
	definition   int64
	instance     string
}

// mirrored reads up to limit databases of a mirror by name: those after one, or from the first one if after is empty.
func (s *mirrorRows) mirrored(tx kv.ReadTransaction, mirror, after string, limit int) kv.Future[[]mirroredEntry] {
	r := fdbjobs.EntryRange{Limit: limit}
	if after != "" {
		r.After = tuple.Tuple{after, replicator.ChildJobID(mirror, after)}
	}
	return s.readEntries(tx, indexMirrored, mirror, r, databaseOf)
}

// databaseOf is for entries of the index mirrored.
func databaseOf(e *mirroredEntry) []any { return []any{nil, &e.database} }

// mirrorTimes reads the databases of a mirror that the index mirror_time has, in its order.
func (s *mirrorRows) mirrorTimes(tx kv.ReadTransaction, mirror, what string, r fdbjobs.EntryRange) kv.Future[[]mirroredEntry] {
	r.Prefix = tuple.Tuple{what}
	return s.readEntries(tx, indexMirrorTime, mirror, r, func(e *mirroredEntry) []any { return []any{nil, nil, &e.at, &e.database} })
}

// readEntries reads entries. The prefix of r begins after the mirror. key returns where the elements of a key go.
func (s *mirrorRows) readEntries(
	tx kv.ReadTransaction, index, mirror string, r fdbjobs.EntryRange, key func(*mirroredEntry) []any,
) kv.Future[[]mirroredEntry] {
	r.Prefix = append(tuple.Tuple{mirror}, r.Prefix...)
	return kv.Map(s.jobs.Entries(tx, index, r), func(found []fdbjobs.Entry) ([]mirroredEntry, error) {
		out := make([]mirroredEntry, len(found))
		for i, row := range found {
			e, state := mirroredEntry{id: row.ID}, ""
			if !rows.Store(row.Key, key(&e)...) {
				return nil, fmt.Errorf("reading the index %q of a mirror's databases: %w", index, tuple.ErrMalformed)
			}
			if err := rows.Scan("a database of a mirror", row.Value, &state, &e.definition, &e.instance); err != nil {
				return nil, err
			}
			e.state = replicator.MirroredState(state)
			out[i] = e
		}
		return out, nil
	})
}

// database reads one database of a mirror. The result is nil if the mirror does not know it.
func (s *mirrorRows) database(tx kv.ReadTransaction, mirror, database string) kv.Future[*mirroredEntry] {
	read := s.readEntries(tx, indexMirrored, mirror, fdbjobs.EntryRange{Prefix: tuple.Tuple{database}, Limit: 1}, databaseOf)
	return kv.Map(read, func(found []mirroredEntry) (*mirroredEntry, error) {
		if len(found) == 0 {
			return nil, nil
		}
		return &found[0], nil
	})
}

// firstFailures is the number of failures in a summary.
const firstFailures = 5

// mirrorSummary sums up the databases of a mirror, in a few reads, whatever their number.
func (s *mirrorRows) mirrorSummary(tx kv.ReadTransaction, mirror string) (m replicator.MirrorSummary, err error) {
	tallies := s.jobs.Tallies(tx, indexMirrored, tuple.Tuple{mirror})
	behind := s.mirrorTimes(tx, mirror, timeBehind, fdbjobs.EntryRange{Limit: 1})
	failing := s.mirrorTimes(tx, mirror, timeFailing, fdbjobs.EntryRange{Limit: firstFailures})
	if m, err = awaitSums(tallies); err != nil {
		return m, err
	}
	oldest, err := behind.Await()
	if err != nil {
		return m, err
	}
	for _, e := range oldest {
		m.Behind, m.BehindDatabase = time.Unix(e.at, 0).UTC(), e.database
	}
	failed, err := failing.Await()
	if err != nil {
		return m, err
	}
	found, err := kv.Each(failed, func(e mirroredEntry) kv.Future[*fdbjobs.Job] { return s.jobs.Read(tx, e.id) })
	if err != nil {
		return m, err
	}
	for i, raw := range found {
		if raw == nil {
			continue
		}
		var state replicator.JobState
		if err := json.Unmarshal(raw.State, &state); err != nil {
			return m, fmt.Errorf("reading the state of the replication job %q: %w", raw.ID, err)
		}
		m.Failures = append(m.Failures, replicator.MirroredFailure{
			Database: failed[i].database, JobID: failed[i].id, Since: time.Unix(failed[i].at, 0).UTC(), Reason: state.LastError(),
		})
	}
	return m, nil
}

// awaitSums returns the part of a summary that is in the tallies of a mirror.
func awaitSums(tallies kv.Future[map[string]int64]) (m replicator.MirrorSummary, err error) {
	sums, err := tallies.Await()
	if err != nil {
		return m, err
	}
	m.States, m.Failures = map[replicator.MirroredState]int64{}, []replicator.MirroredFailure{}
	m.DocsRead, m.DocsWritten, m.DocWriteFailures = sums[sumDocsRead], sums[sumDocsWritten], sums[sumWriteFailures]
	m.Acknowledged = sums[sumAcknowledged]
	for name, n := range sums {
		switch state := replicator.MirroredState(name); name {
		case sumDocsRead, sumDocsWritten, sumWriteFailures, sumAcknowledged:
		default:
			m.States[state] = n
			m.Known += n
		}
	}
	m.Known -= m.States[replicator.MirroredGone]
	return m, nil
}

// shownSummary sums up the databases of a mirror as people see it: with what is not known of its servers. Its pause is known.
func (s *mirrorRows) shownSummary(tx kv.ReadTransaction, mirror *Job) (*replicator.MirrorSummary, error) {
	summary, err := s.mirrorSummary(tx, mirror.ID)
	switch {
	case err != nil || mirror.Status == fdbjobs.Finished:
	case mirror.IsPaused(): // nothing is compared and copied, as somebody wants it
		summary.Behind, summary.BehindDatabase = time.Time{}, ""
	default:
		summary.KnownBehind(mirror.State.Mirror)
		summary.Unseen, err = s.unseen(tx, mirror)
	}
	return &summary, err
}

// unseen returns since when changes of a mirror's source may not be known; zero if its feed tells of them.
func (s *mirrorRows) unseen(tx kv.ReadTransaction, mirror *Job) (time.Time, error) {
	p, r := mirror.State.Mirror, mirror.Args.Replication
	if p == nil || p.By != replicator.ByList || r == nil || !r.Continuous {
		return time.Time{}, nil
	}
	server := mirror.Args.MirrorServer // a list does not have the whole source
	if server == "" {
		server = r.MirrorServer()
	}
	status, running, err := s.readWatch(tx, server)
	if !running {
		status = WatchStatus{}
	}
	return p.Unseen(status.Pause, time.Now()), err
}
