package jobs

import (
	"encoding/json"
	"hash/fnv"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
	"settee/replicator"
)

// What follows from a replication job, see [fdbjobs.Derivation]. Times are in seconds since the Unix epoch.
//
//	index        key                     has a job                                                  is read by
//	crashing     since                   that crashes, with JobState.CrashingSince                  [ByCrash], [Lists.Waits]
//	stuck        since                   without progress, with JobState.StuckSince                 [ByStuck], [Lists.Waits]
//	behind       since                   whose target lacks changes, with JobState.BehindSince      [ByLag], [Lists.Waits]
//	refused      time                    that has not ended, with JobState.RefusedAt                [ByRefusal]
//	named        kind, name              with the name of a host or a database, at most four times  searches, see search.go
//	mirrors      server                  that is a continuous mirror of a server, and not ended     its watch, lists of mirrors
//	mirrored     mirror, database        that a mirror has made                                     its run and summary, lists
//	mirror_time  mirror, what, time, database   the same, at most twice: see mirrored.go            its run and summary, lists
//
// The first four follow from the state. A job is in none of them while its document is paused, and while it has a new definition
// that has not run yet: its state then describes the definition before.
const (
	indexCrashing   = "crashing"
	indexStuck      = "stuck"
	indexBehind     = "behind"
	indexRefused    = "refused"
	indexNamed      = "named"
	indexMirrors    = "mirrors"
	indexMirrored   = "mirrored"
	indexMirrorTime = "mirror_time"
)

// Derivations says what follows from the jobs of the queue [QueueName]. It is for [fdbjobs.Options].
func Derivations() map[string]fdbjobs.Derivation {
	return map[string]fdbjobs.Derivation{QueueName: {
		OfListed: func(_ int64, listed json.RawMessage) []byte { return factsOfListed(listed).pack() },
		OfState:  func(_ int64, state json.RawMessage) ([]byte, []int64) { return factsOfState(state).pack() },
		Entries:  func(_ int64, f fdbjobs.Facts) []fdbjobs.Entry { return entriesOf(f) },
	}}
}

// listedFacts are what the entries of a job need of what lists show of it.
type listedFacts struct {
	definition int64  // a hash of JobArgs.Definition
	mirrors    string // JobArgs.MirrorServer of a continuous mirror
	database   string // JobArgs.MirroredDatabase
	added      int64  // JobArgs.Added
	lost       int64  // JobArgs.Lost
	names      []name
}

// factsOfListed returns the facts of a summary ([Job.summary]), none if it cannot be read.
func factsOfListed(listed json.RawMessage) *listedFacts {
	var args struct {
		Definition   string                  `json:"definition"`
		MirrorServer string                  `json:"mirror_server"`
		Database     string                  `json:"mirrored_database"`
		Added        time.Time               `json:"added"`
		Lost         time.Time               `json:"lost"`
		Replication  *replicator.Replication `json:"replication"`
	}
	if json.Unmarshal(listed, &args) != nil {
		return nil
	}
	f := listedFacts{
		definition: hashOf(args.Definition), database: args.Database, added: storedTime(args.Added), lost: storedTime(args.Lost),
		names: namesOf(args.Replication),
	}
	if args.Replication != nil && args.Replication.Continuous {
		f.mirrors = args.MirrorServer
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
	return tuple.Tuple{f.definition, f.mirrors, f.database, f.added, f.lost, names}.Pack()
}

func parseListedFacts(packed []byte) (f listedFacts) {
	var names tuple.Tuple
	if rows.Scan("facts", packed, &f.definition, &f.mirrors, &f.database, &f.added, &f.lost, &names) != nil {
		return listedFacts{}
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
	mirrored                         *mirroredFacts
}

// factsOfState returns the facts of a state, none if it cannot be read.
func factsOfState(text json.RawMessage) *stateFacts {
	var state struct {
		Definition    string    `json:"definition"`
		CrashingSince time.Time `json:"crashing_since"`
		StuckSince    time.Time `json:"stuck_since"`
		BehindSince   time.Time `json:"behind_since"`
		RefusedAt     time.Time `json:"refused_at"`
		mirroredState
	}
	if json.Unmarshal(text, &state) != nil {
		return nil
	}
	return &stateFacts{
		hashOf(state.Definition), storedTime(state.CrashingSince), storedTime(state.StuckSince), storedTime(state.BehindSince),
		storedTime(state.RefusedAt), state.mirroredState.facts(),
	}
}

// pack returns the facts as they are stored, and the amounts.
func (f *stateFacts) pack() ([]byte, []int64) {
	if f == nil {
		return nil, nil
	}
	mirrored, amounts := f.mirrored.elements()
	return tuple.Tuple{f.definition, f.crashing, f.stuck, f.behind, f.refused, mirrored}.Pack(), amounts
}

func parseStateFacts(packed []byte) (f stateFacts) {
	var mirrored tuple.Tuple
	if rows.Scan("facts", packed, &f.definition, &f.crashing, &f.stuck, &f.behind, &f.refused, &mirrored) != nil {
		return stateFacts{}
	}
	f.mirrored = parseMirroredFacts(mirrored)
	return f
}

// entriesOf returns what follows from a job. It is the table above.
func entriesOf(f fdbjobs.Facts) (all []fdbjobs.Entry) {
	at := func(index string, seconds int64, is bool) {
		if seconds != 0 && is {
			all = append(all, fdbjobs.Entry{Index: index, Key: tuple.Tuple{seconds}})
		}
	}
	listed := parseListedFacts(f.Listed)
	state := parseStateFacts(f.State)
	if state.definition == listed.definition && f.Tag != tagPaused {
		at(indexCrashing, state.crashing, true)
		at(indexStuck, state.stuck, true)
		at(indexBehind, state.behind, true)
		at(indexRefused, state.refused, f.Status != fdbjobs.Finished)
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
