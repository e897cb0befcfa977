package jobs

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
	"settee/replicator"
)

// needsOf returns the entries of a job that needs a person, none if it needs nobody.
func needsOf(f fdbjobs.Facts, needs replicator.Attention) []fdbjobs.Entry {
	if needs.Kind == "" {
		return nil
	}
	p := problem{Attention: needs}
	p.mirror, _ = replicator.MirrorOf(f.ID)
	if needs.Kind == replicator.NeedsRefused {
		p.day = dayOf(needs.Since)
	}
	key := p.key()
	return []fdbjobs.Entry{
		{
			Index: indexNeeds, Key: append(key, storedTime(needs.Since)),
			Adds: []fdbjobs.Add{{Prefix: len(key), Name: tallyJobs, N: 1}, {Name: hashOfProblem(key), N: 1}},
		},
		{Index: indexNeedy, Key: tuple.Tuple{f.Owner}, Adds: []fdbjobs.Add{{Prefix: 1, Name: hashOfProblem(key), N: 1}}},
	}
}

// problem is what the jobs of a problem have in common. Its Since does not belong to it.
type problem struct {
	replicator.Attention
	mirror string // the job id of the mirror whose databases these are
	day    int64  // of the latest refusal, in days since the Unix epoch: refusals are old after a while; 0 for other kinds
}

// problemSize is the number of elements of the key of a problem.
const problemSize = 6

func (p *problem) key() tuple.Tuple {
	return tuple.Tuple{string(p.Kind), string(p.Code), string(p.Side), p.Host, p.mirror, p.day}
}

func parseProblem(key tuple.Tuple) (p problem, err error) {
	var kind, code, side string
	if len(key) != problemSize || !rows.Store(key, &kind, &code, &side, &p.Host, &p.mirror, &p.day) {
		return p, fmt.Errorf("reading what jobs need attention for: %w", tuple.ErrMalformed)
	}
	p.Kind, p.Code, p.Side = replicator.AttentionKind(kind), replicator.FaultCode(code), replicator.Side(side)
	return p, nil
}

func dayOf(t time.Time) int64 { return t.Unix() / int64(24*time.Hour/time.Second) }

// isOld reports whether the refusals of a problem are so old that they need nobody.
func (p *problem) isOld(now time.Time) bool {
	return p.Kind == replicator.NeedsRefused && p.day <= dayOf(now.Add(-replicator.RefusedFor))
}

// hashOfProblem returns the name of the tallies of a problem.
func hashOfProblem(key tuple.Tuple) string {
	h := fnv.New64a()
	_, _ = h.Write(key.Pack()) // never fails
	return strconv.FormatUint(h.Sum64(), 16)
}

// Problem is what several jobs need a person for.
type Problem struct {
	replicator.Attention
	// Mirror is the job id of the mirror whose databases the jobs are, empty for other jobs.
	Mirror string
	Jobs   int64

	keys []tuple.Tuple // of the index: one for each day of refusals
}

// Problems returns what jobs need a person for, the problem with the most jobs first, from tallies. The jobs of paused databases and
// of deleted ones are not counted. Since is zero: see [Lists.FirstOf].
func (s *Lists) Problems(ctx context.Context) ([]Problem, error) {
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) ([]Problem, error) {
		counts, err := s.needCounts(tx.Snapshot())
		if err != nil {
			return nil, err
		}
		now, same := time.Now(), map[problem]*Problem{}
		for key, err := range s.jobs.TallyPrefixes(tx.Snapshot(), indexNeeds, problemSize) {
			if err != nil {
				return nil, err
			}
			p, err := parseProblem(key)
			if err != nil {
				return nil, err
			}
			n := counts[hashOfProblem(key)]
			if n <= 0 || p.isOld(now) {
				continue
			}
			p.day = 0
			if same[p] == nil {
				same[p] = &Problem{Attention: p.Attention, Mirror: p.mirror}
			}
			same[p].Jobs += n
			same[p].keys = append(same[p].keys, key)
		}
		all := make([]Problem, 0, len(same))
		for _, p := range same {
			all = append(all, *p)
		}
		slices.SortFunc(all, func(a, b Problem) int {
			return cmp.Or(cmp.Compare(b.Jobs, a.Jobs), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Side, b.Side),
				cmp.Compare(a.Host, b.Host), cmp.Compare(a.Mirror, b.Mirror))
		})
		return all, nil
	})
}

// needCounts returns the number of jobs of each problem by its hash, without those of quiet databases.
func (s *Lists) needCounts(tx kv.ReadTransaction) (map[string]int64, error) {
	q, err := s.readQuiet(tx)
	if err != nil {
		return nil, err
	}
	all := s.jobs.Tallies(tx, indexNeeds, tuple.Tuple{})
	quiet, err := kv.Each(slices.Collect(maps.Values(q)), func(o quietOwner) kv.Future[map[string]int64] {
		return s.jobs.Tallies(tx, indexNeedy, tuple.Tuple{o.name})
	})
	if err != nil {
		return nil, err
	}
	counts, err := all.Await()
	for _, of := range quiet {
		for hash, n := range of {
			counts[hash] -= n
		}
	}
	return counts, err
}

// FirstOf returns the first jobs of a problem, at most limit, by the time since when they have it, and since when the first one does.
func (s *Lists) FirstOf(ctx context.Context, p *Problem, limit int) (first []*Job, since time.Time, err error) {
	err = s.db.Transact(ctx, func(tx kv.Transaction) error {
		first, since = nil, time.Time{}
		rows, at, err := s.firstRows(tx.Snapshot(), p, limit)
		if err != nil || len(rows) == 0 {
			return err
		}
		since = at
		found, err := s.pages.ofIndex(tx.Snapshot(), rows, limit, whole)
		first = found.jobs
		return err
	})
	return first, since, err
}

// firstRows returns the rows of the first jobs of a problem, and since when the first one has it.
func (s *Lists) firstRows(tx kv.ReadTransaction, p *Problem, limit int) (first []indexRow, since time.Time, err error) {
	q, err := s.readQuiet(tx)
	if err != nil {
		return nil, since, err
	}
	for _, key := range p.keys {
		if len(first) == limit {
			break
		}
		err := s.eachTimed(tx, indexNeeds, fdbjobs.EntryRange{Prefix: key}, q, func(j timedJob) bool {
			if len(first) == 0 {
				since = readTime(j.at)
			}
			first = append(first, indexRow{id: j.id})
			return len(first) < limit
		})
		if err != nil {
			return nil, since, err
		}
	}
	return first, since, nil
}
