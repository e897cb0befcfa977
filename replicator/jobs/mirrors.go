package jobs

import (
	"errors"
	"fmt"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
	"settee/replicator"
)

// A mirror follows the watch of its source's server, which tells it of databases that were created and deleted:
//
//	("mirror_news", mirror, database)    -> (type, token): the latest news of a database that the mirror has not looked at
//	("mirror_pokes", mirror)             -> int64: changes with news, and when there is room for another first run
//	("mirror_ended", mirror)             -> "": its databases are to be dropped, see Upkeep.dropMirrors
//
// The continuous mirrors of a server are in the index "mirrors" (derivation.go). The first run of one adds the server's watch
// (watched.go).

// The types of news.
const (
	NewsCreated = "created"
	NewsDeleted = "deleted"
	// NewsMissed, of the database "", says that the watch may have missed news: the mirror looks at all databases.
	NewsMissed = "missed"
)

// News says what happened to a database.
type News struct{ Database, Type string }

func (s *mirrorRows) mirrorPokesKey(mirror string) []byte {
	return s.space.Pack("mirror_pokes", mirror)
}

func (s *mirrorRows) mirrorNewsKey(mirror, database string) []byte {
	return s.space.Pack("mirror_news", mirror, database)
}

func (s *mirrorRows) mirrorEndedKey(mirror string) []byte {
	return s.space.Pack("mirror_ended", mirror)
}

// liveMirror returns a job if it is a mirror that has not ended, and nil otherwise. A job whose args cannot be opened is
// live, and has none.
func (s *mirrorRows) liveMirror(tx kv.ReadTransaction, id string) (*Job, error) {
	job, err := s.read(tx, id)
	switch {
	case errors.Is(err, fdbjobs.ErrSealed):
		return job, nil
	case errors.Is(err, ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case job.Status == fdbjobs.Finished || !job.IsMirror():
		return nil, nil
	}
	return job, nil
}

// firstFailures is the number of failures in a summary.
const firstFailures = 5

// mirrorSummary sums up the databases of a mirror, in a few reads, whatever their number.
func (s *mirrorRows) mirrorSummary(tx kv.ReadTransaction, mirror string, now time.Time) (m replicator.MirrorSummary, err error) {
	space := s.space.Sub("mirror_sums", mirror)
	sums := tx.GetRange(rows.Range(space), kv.RangeOptions{})
	behind := tx.GetRange(rows.Range(s.space.Sub("mirror_behind", mirror)), kv.RangeOptions{Limit: 1})
	failing := tx.GetRange(rows.Range(s.space.Sub("mirror_failing", mirror)), kv.RangeOptions{Limit: firstFailures})
	pairs, err := sums.Slice()
	if err != nil {
		return m, err
	}
	m.States, m.Failures = map[replicator.MirroredState]int64{}, []replicator.MirroredFailure{}
	for _, pair := range pairs {
		name, err := rows.LastString(space, pair.Key)
		if err != nil {
			return m, fmt.Errorf("reading the sums of a mirror: %w", err)
		}
		n, err := rows.ParseInt(pair.Value)
		if err != nil {
			return m, fmt.Errorf("reading the sums of a mirror: %w", err)
		}
		switch name {
		case sumDocsRead:
			m.DocsRead = n
		case sumDocsWritten:
			m.DocsWritten = n
		case sumWriteFailures:
			m.DocWriteFailures = n
		case string(replicator.MirroredGone):
			m.States[replicator.MirroredGone] = n
		default:
			m.States[replicator.MirroredState(name)] = n
			m.Known += n
		}
	}
	oldest, err := s.mirrorTimes("mirror_behind", mirror, behind)
	if err != nil {
		return m, err
	}
	for _, row := range oldest {
		m.Behind, m.BehindDatabase = time.Unix(row.at, 0).UTC(), row.database
		m.Lag = max(now.Unix()-row.at, 0)
	}
	failed, err := s.mirrorTimes("mirror_failing", mirror, failing)
	if err != nil {
		return m, err
	}
	reads := make([]kv.Future[*mirroredRow], len(failed))
	for i, row := range failed {
		reads[i] = s.readMirrored(tx, mirror, row.database)
	}
	found, err := kv.All(reads)
	if err != nil {
		return m, err
	}
	for i, row := range found {
		if row != nil {
			m.Failures = append(m.Failures, replicator.MirroredFailure{
				Database: failed[i].database, JobID: replicator.ChildJobID(mirror, failed[i].database),
				Since: time.Unix(failed[i].at, 0).UTC(), Reason: row.reason,
			})
		}
	}
	return m, nil
}

// timedDatabase is a row of an index of a mirror's databases by a number.
type timedDatabase struct {
	at       int64
	database string
}

// mirrorTimes reads rows of an index.
func (s *mirrorRows) mirrorTimes(name, mirror string, reading kv.RangeResult) ([]timedDatabase, error) {
	pairs, err := reading.Slice()
	if err != nil {
		return nil, err
	}
	out, index := make([]timedDatabase, len(pairs)), s.space.Sub(name, mirror)
	for i, pair := range pairs {
		e, err := index.Unpack(pair.Key)
		if err != nil || len(e) != 2 || !rows.As(e[0], &out[i].at) || !rows.As(e[1], &out[i].database) {
			return nil, fmt.Errorf("reading an index of a mirror's databases: %w", errors.Join(err, tuple.ErrMalformed))
		}
	}
	return out, nil
}

// mirrorSum reads one sum of a mirror.
func (s *mirrorRows) mirrorSum(tx kv.ReadTransaction, mirror, name string) kv.Future[int64] {
	reading := tx.Get(s.mirrorSumKey(mirror, name))
	return kv.Func[int64](func() (int64, error) { return rows.AwaitInt(reading) })
}

// endMirror notes that a mirror has ended, or is no mirror any more. Upkeep drops its databases.
func (s *mirrorRows) endMirror(tx kv.Transaction, job *Job) error {
	tx.Set(s.mirrorEndedKey(job.ID), nil)
	err := s.upkeep.Add(tx, fdbjobs.Spec{ID: mirrorsTask})
	if errors.Is(err, kv.ErrUnreadable) {
		return nil // the transaction ends several mirrors
	}
	return err
}

// dropMirrored clears the row of a job that is removed, if a mirror has made it.
func (s *mirrorRows) dropMirrored(tx kv.Transaction, job *Job) error {
	mirror, is := replicator.MirrorOf(job.ID)
	if !is || job.Args.MirroredDatabase == "" {
		return nil
	}
	row, err := s.readMirrored(tx, mirror, job.Args.MirroredDatabase).Await()
	if err == nil && row != nil && row.hasJob() {
		s.setMirrored(tx, mirror, job.Args.MirroredDatabase, row, nil)
	}
	return err
}

// clearMirror clears what is left of a mirror without databases.
func (s *mirrorRows) clearMirror(tx kv.Transaction, mirror string) {
	tx.ClearRange(rows.Range(s.space.Sub("mirror_sums", mirror)))
	tx.ClearRange(rows.Range(s.space.Sub("mirror_news", mirror)))
	tx.Clear(s.mirrorPokesKey(mirror))
	tx.Clear(s.mirrorEndedKey(mirror))
}

// clearMirrorsOf clears the rows of all mirrors of a replicator database whose jobs were removed.
func (s *mirrorRows) clearMirrorsOf(tx kv.Transaction, instance string) {
	for _, name := range []string{
		"mirrored", "mirror_waiting", "mirror_behind", "mirror_failing", "mirror_gone", "mirror_sums", "mirror_news", "mirror_pokes",
		"mirror_ended",
	} {
		key := s.space.Pack(name, instance+"|")
		tx.ClearRange(kv.PrefixRange(key[:len(key)-1])) // without the byte that ends the string
	}
}

// tellIn writes news of a mirror. The token differs from the token of earlier news.
func (s *mirrorRows) tellIn(tx kv.Transaction, mirror, token string, news ...News) {
	for _, n := range news {
		tx.Set(s.mirrorNewsKey(mirror, n.Database), tuple.Tuple{n.Type, token}.Pack())
	}
	tx.Add(s.mirrorPokesKey(mirror), 1)
}

const mirrorsTask = "databases of mirrors that have ended"

// mirrorsAtOnce is the maximum number of mirrors of a server that one transaction reads.
const mirrorsAtOnce = 50
