package jobs

import (
	"encoding/json"
	"hash/fnv"
	"time"

	"settee/fdbjobs"
	"settee/fdbjobs/upkeep"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
	"settee/replicator"
)

// What follows from a replication job, see [fdbjobs.Derivation]. Times are in seconds since the Unix epoch.
//
//	index        key                     has a job                                                  is read by
//	marks        mark, time              with a mark, at most once each: see below                  [Lists.List], [Lists.Waits]
//	named        kind, name              with the name of a host or a database, at most four times  searches, see search.go
//	mirrors      server                  that is a continuous mirror of a server, and not ended     its watch, lists of mirrors
//	mirrored     mirror, database        that a mirror has made                                     its run and summary, lists
//	mirror_time  mirror, what, time, database   the same, at most twice: see mirrored.go            its run and summary, lists
//	needs        problem, since          that needs a person; also if it has ended                  [Lists.Problems], [Lists.FirstOf]
//	needy        owner                   that needs a person                                        [Lists.Problems], for paused owners
//
// The marks are those of replicator.MarkType, and the times:
//
//	MarkFailing           JobState.CrashingSince
//	MarkStuck             JobState.StuckSince
//	MarkBehind            JobState.BehindSince
//	MarkDocumentsRefused  JobState.RefusedAt, of a job that has not ended
//	MarkAcknowledged      the end of an acknowledgement that has one: upkeep removes it then
//
// The marks except the last, needs and needy follow from the state. A job has none of them while its document is paused, and while it
// has a new definition that has not run yet: its state then describes the definition before. A job with an acknowledgement that covers
// what it needs a person for is not in needs and needy. As failing or stuck it comes after all other jobs: acknowledgedLater is added to
// the time. A problem has six elements, see problem.
// Tallies of needs: "jobs" of each problem; of the whole index, and of each owner in needy, one named by the hash of each problem.
const (
	indexMarks      = "marks"
	indexNamed      = "named"
	indexMirrors    = "mirrors"
	indexMirrored   = "mirrored"
	indexMirrorTime = "mirror_time"
	indexNeeds      = "needs"
	indexNeedy      = "needy"
)

// acknowledgedLater is added to the times of jobs that are acknowledged, in seconds. No other time is as late.
const acknowledgedLater = 1 << 40

const tallyJobs = "jobs"

// Derivations says what follows from the jobs of the queue [QueueName], and that those of upkeep are not listed. It is for
// [fdbjobs.Options].
func Derivations() map[string]fdbjobs.Derivation {
	return map[string]fdbjobs.Derivation{QueueName: {
		OfListed: func(_ int64, listed json.RawMessage) []byte { return factsOfListed(listed).pack() },
		OfState:  func(_ int64, state json.RawMessage) []byte { return factsOfState(state).pack() },
		Entries:  func(_ int64, f fdbjobs.Facts) []fdbjobs.Entry { return entriesOf(f) },
		Due:      dueTags,
	}, upkeep.Queue: {Unlisted: true}}
}

// listedFacts are what the entries of a job need of what lists show of it.
type listedFacts struct {
	definition int64  // a hash of JobArgs.Definition
	mirrors    string // JobArgs.MirrorServer of a continuous mirror
	database   string // JobArgs.MirroredDatabase
	added      int64  // JobArgs.Added
	lost       int64  // JobArgs.Lost
	// source and target are the hosts.
	source, target string
	names          []name
	acknowledged   *replicator.Acknowledgement // without By and Note
}

// factsOfListed returns the facts of a summary ([Job.summary]), none if it cannot be read.
func factsOfListed(listed json.RawMessage) *listedFacts {
	var args struct {
		Definition   string                      `json:"definition"`
		MirrorServer string                      `json:"mirror_server"`
		Database     string                      `json:"mirrored_database"`
		Added        time.Time                   `json:"added"`
		Lost         time.Time                   `json:"lost"`
		Replication  *replicator.Replication     `json:"replication"`
		Acknowledged *replicator.Acknowledgement `json:"acknowledged"`
	}
	if json.Unmarshal(listed, &args) != nil {
		return nil
	}
	f := listedFacts{
		definition: hashOf(args.Definition), database: args.Database, added: storedTime(args.Added), lost: storedTime(args.Lost),
		names: namesOf(args.Replication), acknowledged: args.Acknowledged,
	}
	if args.Replication != nil {
		f.source, f.target = args.Replication.Source.Host(), args.Replication.Target.Host()
		if args.Replication.Continuous {
			f.mirrors = args.MirrorServer
		}
	}
	return &f
}

// hashOf returns a hash of a definition.
func hashOf(definition string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(definition)) // never fails
	return int64(h.Sum64())
}

func (f *listedFacts) pack() []byte {
	if f == nil {
		return nil
	}
	names := tuple.Tuple{}
	for _, n := range f.names {
		names = append(names, n.kind, n.text)
	}
	acknowledged := tuple.Tuple{}
	if a := f.acknowledged; a != nil {
		acknowledged = tuple.Tuple{string(a.Kind), string(a.Code), storedTime(a.At), storedTime(a.Until)}
	}
	return tuple.Tuple{f.definition, f.mirrors, f.database, f.added, f.lost, f.source, f.target, names, acknowledged}.Pack()
}

func parseListedFacts(packed []byte) (f listedFacts) {
	var names, acknowledged tuple.Tuple
	if rows.Scan("facts", packed, &f.definition, &f.mirrors, &f.database, &f.added, &f.lost, &f.source, &f.target, &names, &acknowledged) != nil {
		return listedFacts{}
	}
	var kind, code string
	var at, until int64
	if len(acknowledged) == 4 && rows.Store(acknowledged, &kind, &code, &at, &until) {
		f.acknowledged = &replicator.Acknowledgement{
			Kind: replicator.AttentionKind(kind), Code: replicator.FaultCode(code), At: readTime(at), Until: readTime(until),
		}
	}
	for ; len(names) >= 2; names = names[2:] {
		var n name
		if rows.As(names[0], &n.kind) && rows.As(names[1], &n.text) {
			f.names = append(f.names, n)
		}
	}
	return f
}

// stateFacts are what the entries of a job need of its state.
type stateFacts struct {
	definition                       int64 // a hash of JobState.Definition
	crashing, stuck, behind, refused int64 // seconds since the Unix epoch; 0: it does not, or is not
	// needs is why the job needs a person; its Since is in whole seconds.
	needs    replicator.Attention
	mirrored *mirroredFacts
}

// factsOfState returns the facts of a state, none if it cannot be read.
func factsOfState(text json.RawMessage) *stateFacts {
	var state struct {
		Definition    string                     `json:"definition"`
		StartTime     time.Time                  `json:"start_time"`
		LastUpdated   time.Time                  `json:"last_updated"`
		CrashingSince time.Time                  `json:"crashing_since"`
		StuckSince    time.Time                  `json:"stuck_since"`
		BehindSince   time.Time                  `json:"behind_since"`
		RefusedAt     time.Time                  `json:"refused_at"`
		Activity      json.RawMessage            `json:"activity"`
		Mirror        *replicator.MirrorProgress `json:"mirror"`
		mirroredState
	}
	if json.Unmarshal(text, &state) != nil {
		return nil
	}
	known := replicator.JobState{
		State: state.State, StartTime: state.StartTime, LastUpdated: state.LastUpdated, CrashingSince: state.CrashingSince,
		StuckSince: state.StuckSince, RefusedAt: state.RefusedAt, Fault: state.Fault, Mirror: state.Mirror,
	}
	if !state.StuckSince.IsZero() { // only then attention depends on the activity
		_ = json.Unmarshal(state.Activity, &known.Activity) // what cannot be read has no fault
	}
	return &stateFacts{
		hashOf(state.Definition), storedTime(state.CrashingSince), storedTime(state.StuckSince), storedTime(state.BehindSince),
		storedTime(state.RefusedAt), known.Attention(), state.mirroredState.facts(),
	}
}

// pack returns the facts as they are stored.
func (f *stateFacts) pack() []byte {
	if f == nil {
		return nil
	}
	var needs tuple.Tuple
	if n := f.needs; n.Kind != "" {
		needs = tuple.Tuple{string(n.Kind), string(n.Code), string(n.Side), n.Host, storedTime(n.Since)}
	}
	return tuple.Tuple{f.definition, f.crashing, f.stuck, f.behind, f.refused, needs, f.mirrored.elements()}.Pack()
}

func parseStateFacts(packed []byte) (f stateFacts) {
	var needs, mirrored tuple.Tuple
	if rows.Scan("facts", packed, &f.definition, &f.crashing, &f.stuck, &f.behind, &f.refused, &needs, &mirrored) != nil {
		return stateFacts{}
	}
	f.mirrored = parseMirroredFacts(mirrored)
	var kind, code, side string
	var since int64
	if len(needs) == 5 && rows.Store(needs, &kind, &code, &side, &f.needs.Host, &since) {
		f.needs.Kind, f.needs.Code, f.needs.Side = replicator.AttentionKind(kind), replicator.FaultCode(code), replicator.Side(side)
		f.needs.Since = readTime(since)
	}
	return f
}

// entriesOf returns what follows from a job. It is the table above.
func entriesOf(f fdbjobs.Facts) (all []fdbjobs.Entry) {
	at := func(mark replicator.MarkType, seconds int64, is bool) {
		if seconds != 0 && is {
			all = append(all, fdbjobs.Entry{Index: indexMarks, Key: tuple.Tuple{string(mark), seconds}})
		}
	}
	listed := parseListedFacts(f.Listed)
	state := parseStateFacts(f.State)
	if state.definition == listed.definition && f.Tag != tagPaused {
		later := int64(0)
		if acknowledged := listed.acknowledged.Covers(state.needs); acknowledged {
			later = acknowledgedLater
		} else {
			all = append(all, needsOf(f, state.needs.At(listed.source, listed.target))...)
		}
		at(replicator.MarkFailing, state.crashing+later, state.crashing != 0)
		at(replicator.MarkStuck, state.stuck+later, state.stuck != 0)
		at(replicator.MarkBehind, state.behind, true)
		at(replicator.MarkDocumentsRefused, state.refused, f.Status != fdbjobs.Finished)
	}
	if a := listed.acknowledged; a != nil {
		at(replicator.MarkAcknowledged, storedTime(a.Until), true)
	}
	if listed.mirrors != "" && f.Status != fdbjobs.Finished {
		all = append(all, fdbjobs.Entry{Index: indexMirrors, Key: tuple.Tuple{listed.mirrors}})
	}
	if mirror, is := replicator.MirrorOf(f.ID); is && listed.database != "" {
		all = append(all, mirroredEntries(f, mirror, listed, state)...)
	}
	for _, n := range listed.names {
		all = append(all, fdbjobs.Entry{Index: indexNamed, Key: tuple.Tuple{n.kind, n.text}})
	}
	return all
}
