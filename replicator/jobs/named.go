package jobs

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/levels"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
	"settee/replicator"
)

// People search for jobs by the hosts and databases of their sources and targets. So these are indexed:
//
//	("named", kind, name, job id) -> ""    kind: "database" or "host", see name
//
// A job has at most four rows. They are written and cleared in the transaction that writes or removes the job, once the
// store has NamesLevel, and follow from what lists show of the job ([fdbjobs.Spec].Listed). Jobs from before that get theirs
// from the conversion to the level (IndexNames). What namesOf returns must not change without another level: rows of
// names that it no longer returns would stay.
//
// A search is in search.go.

// NamesLevel is the level of a store (package levels) from which on jobs are indexed by name.
const NamesLevel int64 = 2

// maxIndexedName is the most bytes of a name in the index. Longer names are cut.
const maxIndexedName = 255

// The kinds of names, in the order of their keys.
const (
	nameOfDatabase = "database"
	nameOfHost     = "host"
)

var nameKinds = []string{nameOfDatabase, nameOfHost}

// name is the name of a host, without a port, or of a database. It is valid UTF-8 in lower case, and has at most
// maxIndexedName bytes.
type name struct{ kind, text string }

func (n name) compare(other name) int {
	if c := strings.Compare(n.kind, other.kind); c != 0 {
		return c
	}
	return strings.Compare(n.text, other.text)
}

// namesOf returns the names of a replication in the order of the index. It returns the same names for the replication of a
// summary ([Job.summary]), and none for nil.
func namesOf(r *replicator.Replication) (names []name) {
	if r == nil {
		return nil
	}
	for _, e := range []replicator.Endpoint{r.Source, r.Target} {
		host, database := replicator.Endpoint{URL: shownURL(e)}.Names()
		for _, n := range []name{{nameOfHost, host}, {nameOfDatabase, database}} {
			if n.text = indexedText(n.text); n.text != "" {
				names = append(names, n)
			}
		}
	}
	slices.SortFunc(names, name.compare)
	return slices.Compact(names)
}

// indexedText returns a text as a name has it.
func indexedText(text string) string {
	text = strings.ToLower(strings.ToValidUTF8(text, string(utf8.RuneError)))
	if len(text) <= maxIndexedName {
		return text
	}
	end := maxIndexedName
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

// firstName returns the first name of a job in the index that begins with a text, in lower case. It is the one by which a
// search finds the job: others of its names may begin with the text, too.
func (j *Job) firstName(lower string) (name, bool) {
	for _, n := range namesOf(j.Args.Replication) {
		if strings.HasPrefix(n.text, lower) {
			return n, true
		}
	}
	return name{}, false
}

// namesListed returns the names of a job from its summary. A job without one, or whose summary cannot be read, has none.
func namesListed(listed json.RawMessage) []name {
	var args struct {
		Replication *replicator.Replication `json:"replication"`
	}
	if listed == nil || json.Unmarshal(listed, &args) != nil {
		return nil
	}
	return namesOf(args.Replication)
}

// nameIndex is the index of jobs by name.
type nameIndex struct {
	*core
	levels *levels.Guard
	// allNamed is true once the index has had all jobs.
	allNamed atomic.Bool
}

func (s *nameIndex) namedKey(n name, jobID string) []byte {
	return s.space.Pack("named", n.kind, n.text, jobID)
}

// parseNamed parses the key of a row of the index without its first element. ok is false for other keys.
func parseNamed(e tuple.Tuple) (n name, jobID string, ok bool) {
	ok = len(e) == 3 && rows.As(e[0], &n.kind) && rows.As(e[1], &n.text) && rows.As(e[2], &jobID)
	return n, jobID, ok && slices.Contains(nameKinds, n.kind)
}

// keepsNames reports whether a transaction that writes jobs writes their names.
func (s *nameIndex) keepsNames(tx kv.Transaction) (bool, error) { return hasNamesLevel(s.levels, tx) }

// hasNamesLevel reports whether the store has NamesLevel, which a store without a guard has.
func hasNamesLevel(guard *levels.Guard, tx kv.Transaction) (bool, error) {
	if guard == nil {
		return true, nil
	}
	return guard.Reached(tx, NamesLevel)
}

// KeepsTimes returns the field Times of [docstore.Options] for a store with these levels: its rows have times from NamesLevel on.
func KeepsTimes(guard *levels.Guard) func(kv.Transaction) (bool, error) {
	return func(tx kv.Transaction) (bool, error) { return hasNamesLevel(guard, tx) }
}

// hasNames reports whether all jobs are in the index.
func (s *nameIndex) hasNames(tx kv.Transaction) (bool, error) {
	if s.levels == nil || s.allNamed.Load() {
		return true, nil
	}
	all, err := s.levels.Converted(tx, NamesLevel)
	if all { // for good
		s.allNamed.Store(true)
	}
	return all, err
}

// naming starts reading the names of a job before a transaction writes or removes it. The function that it returns gives the
// job the names of a definition, or none if that is nil. exists is false if the transaction has found no such job.
//
// The read is without a conflict, because the transaction reads the job's row with one.
func (s *nameIndex) naming(tx kv.Transaction, jobID string, exists bool) func(next *replicator.Replication) error {
	keeps, err := s.keepsNames(tx)
	if err != nil || !keeps {
		return func(*replicator.Replication) error { return err }
	}
	before := kv.Known[[]byte](nil)
	if exists {
		_, listed := s.jobs.Admin().Rows()
		before = tx.Snapshot().Get(listed.Pack(jobID))
	}
	return func(next *replicator.Replication) error {
		value, err := before.Await()
		if err == nil {
			s.rename(tx, jobID, namesListed(value), namesOf(next))
		}
		return err
	}
}

// rename replaces the names of a job in the index.
func (s *nameIndex) rename(tx kv.Transaction, jobID string, before, now []name) {
	for _, n := range before {
		if !slices.Contains(now, n) {
			tx.Clear(s.namedKey(n, jobID))
		}
	}
	for _, n := range now {
		if !slices.Contains(before, n) {
			tx.Set(s.namedKey(n, jobID), nil)
		}
	}
}

// unname removes jobs from the index that were removed.
func (s *nameIndex) unname(tx kv.Transaction, removed []*fdbjobs.Job) error {
	keeps, err := s.keepsNames(tx)
	if err != nil || !keeps {
		return err
	}
	for _, job := range removed {
		s.rename(tx, job.ID, namesListed(job.Listed), nil)
	}
	return nil
}

func (s *nameIndex) indexNames(tx kv.Transaction, from []byte, limit int) (next []byte, err error) {
	_, listed := s.jobs.Admin().Rows()
	// The conflict with writes of these jobs is what keeps their rows true.
	pairs, err := tx.GetRange(rows.From(listed, from), kv.RangeOptions{Limit: limit}).Slice()
	if err != nil {
		return nil, err
	}
	for _, pair := range pairs {
		jobID, err := rows.LastString(listed, pair.Key)
		if err != nil {
			return nil, fmt.Errorf("indexing replication jobs by name: %w", err)
		}
		s.rename(tx, jobID, nil, namesListed(pair.Value))
	}
	if len(pairs) < limit {
		return nil, nil
	}
	return kv.KeyAfter(pairs[len(pairs)-1].Key), nil
}
