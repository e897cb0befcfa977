package jobs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
	"settee/replicator"
)

// A mirror follows the watch of its source's server, which tells it of databases that were created and deleted:
//
//	("mirrors", server, mirror)          -> "": a continuous mirror. Its first run adds the server's watch
//	("mirror_news", mirror, database)    -> (type, token): the latest news of a database that the mirror has not looked at
//	("mirror_pokes", mirror)             -> int64: changes with news, and when there is room for another first run
//	("mirror_ended", mirror)             -> "": its databases are to be dropped, see Store.dropMirrors
//
// A row in mirrors may be left of a mirror that is gone or has another source now: whoever reads it checks that.

// The types of news.
const (
	NewsCreated = "created"
	NewsDeleted = "deleted"
	// NewsMissed, of the database "", says that the watch may have missed news: the mirror looks at all databases.
	NewsMissed = "missed"
)

// News says what happened to a database.
type News struct{ Database, Type string }

// IsMirror reports whether the job is a mirror.
func (j *Job) IsMirror() bool { return j.Args.Replication != nil && j.Args.Replication.Mirror != nil }

// Mirror returns the job id of the mirror that has made the job, or "" if none has.
func (j *Job) Mirror() string {
	id, _ := replicator.MirrorOf(j.ID)
	return id
}

func (s *Store) mirrorsKey(server, mirror string) []byte {
	return s.space.Pack("mirrors", server, mirror)
}

func (s *Store) mirrorPokesKey(mirror string) []byte { return s.space.Pack("mirror_pokes", mirror) }

func (s *Store) mirrorNewsKey(mirror, database string) []byte {
	return s.space.Pack("mirror_news", mirror, database)
}

func (s *Store) mirrorEndedKey(mirror string) []byte { return s.space.Pack("mirror_ended", mirror) }

// liveMirror returns a job if it is a mirror that has not ended, and nil otherwise. A job whose args cannot be opened is
// live, and has none.
func (s *Store) liveMirror(tx kv.ReadTransaction, id string) (*Job, error) {
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

// mirrorsAtOnce is the maximum number of mirrors of a server that one transaction reads.
const mirrorsAtOnce = 50

// Mirrors returns up to limit mirrors whose sources are a server, in the order of their job ids: those after one. It
// forgets those that are gone or have another source.
func (s *Store) Mirrors(ctx context.Context, server, after string, limit int) (found []*Job, more bool, err error) {
	limit = min(max(limit, 1), mirrorsAtOnce)
	all := rows.Range(s.space.Sub("mirrors", server))
	if after != "" {
		all.Begin = kv.KeyAfter(s.mirrorsKey(server, after))
	}
	err = s.db.Transact(ctx, func(tx kv.Transaction) error {
		found, more = nil, false
		pairs, err := tx.Snapshot().GetRange(all, kv.RangeOptions{Limit: limit}).Slice()
		if err != nil {
			return err
		}
		more = len(pairs) == limit
		for _, pair := range pairs {
			id, err := rows.LastString(s.space.Sub("mirrors", server), pair.Key)
			if err != nil {
				return fmt.Errorf("reading the mirrors of a server: %w", err)
			}
			job, err := s.liveMirror(tx, id)
			switch {
			case err != nil:
				return err
			case job == nil || job.IsMirror() && MirrorServer(job.Args.Replication) != server:
				tx.Clear(pair.Key)
			case job.IsMirror():
				found = append(found, job)
			}
		}
		return nil
	})
	return found, more, err
}

// ListMirrors returns up to limit continuous mirrors that have not ended, by their sources, with their summaries.
func (s *Store) ListMirrors(ctx context.Context, limit int) (found []*Job, err error) {
	all := rows.Range(s.space.Sub("mirrors"))
	for more := true; more && len(found) < limit; {
		page, next, err := s.pageOfMirrors(ctx, all, min(limit-len(found), mirrorsAtOnce))
		if err != nil {
			return nil, err
		}
		found, all.Begin, more = append(found, page...), next, next != nil
	}
	return found, nil
}

// pageOfMirrors reads the mirrors of up to limit rows, and returns where the next rows begin, nil if there are none.
func (s *Store) pageOfMirrors(ctx context.Context, all kv.KeyRange, limit int) (found []*Job, next []byte, err error) {
	err = s.db.Transact(ctx, func(tx kv.Transaction) error {
		found, next = nil, nil
		now := tx.Snapshot()
		pairs, err := now.GetRange(all, kv.RangeOptions{Limit: limit}).Slice()
		if err != nil {
			return err
		}
		for i, pair := range pairs {
			e, err := s.space.Unpack(pair.Key)
			var server, id string
			if err != nil || len(e) != 3 || !rows.As(e[1], &server) || !rows.As(e[2], &id) {
				return fmt.Errorf("reading a mirror: %w", errors.Join(err, tuple.ErrMalformed))
			}
			if i+1 == limit {
				next = kv.KeyAfter(pair.Key)
			}
			job, err := s.liveMirror(now, id)
			if err != nil {
				return err
			}
			if job == nil || !job.IsMirror() || MirrorServer(job.Args.Replication) != server {
				continue // whoever reads the mirrors of the server forgets the row
			}
			if job, err = s.summed(now)(s.withPause(now, job, nil)); err != nil {
				return err
			}
			found = append(found, job)
		}
		return nil
	})
	return found, next, err
}

// MirrorServer returns the URL of the server that a mirror's source is, as [replicator.Endpoint.Server] returns it for its
// databases.
func MirrorServer(r *replicator.Replication) string {
	server, _, _ := r.Child("x").Source.Server()
	return server
}

// Tell tells the mirrors of a server of news. The databases must differ. More than newsAtOnce news are told in several
// transactions. It may be repeated.
func (s *Store) Tell(ctx context.Context, server string, news []News) error {
	for after := ""; ; {
		mirrors, more, err := s.Mirrors(ctx, server, after, mirrorsAtOnce)
		if err != nil {
			return err
		}
		for _, mirror := range mirrors {
			if err := s.tell(ctx, mirror, news); err != nil {
				return err
			}
			after = mirror.ID
		}
		if !more || len(mirrors) == 0 {
			return nil
		}
	}
}

// newsAtOnce is the maximum number of news that one transaction writes.
const newsAtOnce = 500

func (s *Store) tell(ctx context.Context, mirror *Job, news []News) error {
	selected := make([]News, 0, len(news))
	for _, n := range news {
		if n.Type == NewsMissed || len(n.Database) <= maxDatabaseSize && mirror.Args.Replication.Selects(n.Database) {
			selected = append(selected, n)
		}
	}
	token := rand.Text()
	for begin := 0; begin < len(selected); begin += newsAtOnce {
		part := selected[begin:min(begin+newsAtOnce, len(selected))]
		err := s.db.Transact(ctx, func(tx kv.Transaction) error {
			if live, err := s.liveMirror(tx, mirror.ID); err != nil || live == nil {
				return err
			}
			s.tellIn(tx, mirror.ID, token, part...)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// firstFailures is the number of failures in a summary.
const firstFailures = 5

// MirrorSummary sums up the databases of a mirror, in a few reads, whatever their number.
func (s *Store) MirrorSummary(ctx context.Context, mirror string) (replicator.MirrorSummary, error) {
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (replicator.MirrorSummary, error) {
		return s.mirrorSummary(tx.Snapshot(), mirror, time.Now())
	})
}

func (s *Store) mirrorSummary(tx kv.ReadTransaction, mirror string, now time.Time) (m replicator.MirrorSummary, err error) {
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
func (s *Store) mirrorTimes(name, mirror string, reading kv.RangeResult) ([]timedDatabase, error) {
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
func (s *Store) mirrorSum(tx kv.ReadTransaction, mirror, name string) kv.Future[int64] {
	reading := tx.Get(s.mirrorSumKey(mirror, name))
	return kv.Func[int64](func() (int64, error) { return rows.AwaitInt(reading) })
}

// endMirror notes that a mirror has ended, or is no mirror any more. Upkeep drops its databases.
func (s *Store) endMirror(tx kv.Transaction, job *Job) error {
	tx.Set(s.mirrorEndedKey(job.ID), nil)
	if job.Args.Replication != nil && job.IsMirror() {
		tx.Clear(s.mirrorsKey(MirrorServer(job.Args.Replication), job.ID))
	}
	err := s.upkeep.Add(tx, fdbjobs.Spec{ID: mirrorsTask})
	if errors.Is(err, kv.ErrUnreadable) {
		return nil // the transaction ends several mirrors
	}
	return err
}

// dropMirrored clears the row of a job that is removed, if a mirror has made it.
func (s *Store) dropMirrored(tx kv.Transaction, job *Job) error {
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

const mirrorsTask = "databases of mirrors that have ended"

// dropAtOnce is the maximum number of databases of a mirror that one transaction drops.
const dropAtOnce = 50

// dropMirrors drops the databases of mirrors that have ended: the rows, and the jobs. It may be interrupted anywhere.
// Nothing happens at the target.
func (s *Store) dropMirrors(ctx context.Context) error {
	space := s.space.Sub("mirror_ended")
	for after := []byte(nil); ; {
		pairs, err := kv.TransactValue(ctx, s.db, func(tx kv.Transaction) ([]kv.KeyValue, error) {
			all := rows.Range(space)
			if after != nil {
				all.Begin = kv.KeyAfter(after)
			}
			return tx.Snapshot().GetRange(all, kv.RangeOptions{Limit: dropAtOnce}).Slice()
		})
		if err != nil || len(pairs) == 0 {
			return err
		}
		for _, pair := range pairs {
			id, err := rows.LastString(space, pair.Key)
			if err != nil {
				return fmt.Errorf("reading a mirror that has ended: %w", err)
			}
			if err := s.DropMirror(ctx, id); err != nil {
				return fmt.Errorf("dropping the databases of the mirror %q: %w", id, err)
			}
			after = pair.Key
		}
	}
}

// DropMirror drops the databases of a mirror if it has ended, as upkeep does.
func (s *Store) DropMirror(ctx context.Context, mirror string) error {
	limit := dropAtOnce
	for done := false; !done; {
		var err error
		done, err = kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (bool, error) {
			var until time.Time
			if limit > 1 {
				until = time.Now().Add(removeTime)
			}
			done, err := s.dropSome(tx, mirror, limit)
			return done, kv.InTime(until, err)
		})
		if kv.TooMuch(err) && limit > 1 {
			limit, done = limit/2, false
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// dropSome drops some databases of a mirror, and reports whether there are no more, or the mirror lives.
func (s *Store) dropSome(tx kv.Transaction, mirror string, limit int) (done bool, err error) {
	// A mirror that was added again brings the rows in line with its own definition.
	live, err := s.liveMirror(tx, mirror)
	if err != nil {
		return false, err
	}
	if live != nil {
		tx.Clear(s.mirrorEndedKey(mirror))
		return true, nil
	}
	found, err := s.mirroredRows(tx, mirror, "", limit)
	if err != nil {
		return false, err
	}
	for _, row := range found {
		if err := s.dropDatabase(tx, mirror, row.Database, nil); err != nil {
			return false, err
		}
	}
	if len(found) == limit {
		return false, nil
	}
	s.clearMirror(tx, mirror)
	return true, nil
}

// clearMirror clears what is left of a mirror without databases.
func (s *Store) clearMirror(tx kv.Transaction, mirror string) {
	tx.ClearRange(rows.Range(s.space.Sub("mirror_sums", mirror)))
	tx.ClearRange(rows.Range(s.space.Sub("mirror_news", mirror)))
	tx.Clear(s.mirrorPokesKey(mirror))
	tx.Clear(s.mirrorEndedKey(mirror))
}

// dropDatabase ends the job of a mirror's database, if there is one. The row becomes next, or goes if next is nil.
func (s *Store) dropDatabase(tx kv.Transaction, mirror, database string, next *mirroredRow) error {
	row, err := s.readMirrored(tx, mirror, database).Await()
	if err != nil || row == nil {
		return err
	}
	if row.hasJob() {
		job, err := s.readChild(tx, replicator.ChildJobID(mirror, database))
		if err != nil {
			return err
		}
		if job != nil {
			if err := s.removeJob(tx, job); err != nil {
				return err
			}
		}
	}
	s.setMirrored(tx, mirror, database, row, next)
	return nil
}

// readChild reads the job of a mirror's database, also if its replicator database is gone. It returns nil if there is none.
func (s *Store) readChild(tx kv.ReadTransaction, id string) (*Job, error) {
	raw, err := s.jobs.Get(tx, id)
	if errors.Is(err, fdbjobs.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	job, err := s.parse(raw)
	if errors.Is(err, fdbjobs.ErrSealed) {
		return job, nil
	}
	return job, err
}

// clearMirrorsOf clears the rows of all mirrors of a replicator database whose jobs were removed.
func (s *Store) clearMirrorsOf(tx kv.Transaction, instance string) {
	for _, name := range []string{
		"mirrored", "mirror_waiting", "mirror_behind", "mirror_failing", "mirror_gone", "mirror_sums", "mirror_news", "mirror_pokes",
		"mirror_ended",
	} {
		key := s.space.Pack(name, instance+"|")
		tx.ClearRange(kv.PrefixRange(key[:len(key)-1])) // without the byte that ends the string
	}
}

// tellIn writes news of a mirror. The token differs from the token of earlier news.
func (s *Store) tellIn(tx kv.Transaction, mirror, token string, news ...News) {
	for _, n := range news {
		tx.Set(s.mirrorNewsKey(mirror, n.Database), tuple.Tuple{n.Type, token}.Pack())
	}
	tx.Add(s.mirrorPokesKey(mirror), 1)
}

// summed returns a function that sums up the databases of a job that is a mirror, and returns the job and the error.
func (s *Store) summed(tx kv.ReadTransaction) func(*Job, error) (*Job, error) {
	return func(job *Job, err error) (*Job, error) {
		if err != nil || !job.IsMirror() {
			return job, err
		}
		if job.Status == fdbjobs.Finished && job.State.Mirror != nil && job.State.Mirror.Summary != nil {
			job.Summary = job.State.Mirror.Summary // its rows go
			return job, nil
		}
		summary, err := s.mirrorSummary(tx, job.ID, time.Now())
		job.Summary = &summary
		return job, err
	}
}

// mirrored returns the pageRead of the jobs of a mirror, by database, or by since when their runs fail. A position has the
// number of that time instead of an owner, and the database instead of an id.
func (s *Store) mirrored(mirror string, order Order) pageRead {
	return func(tx kv.ReadTransaction, _ listing, after fdbjobs.Position, n int) (out page, err error) {
		found, err := s.mirroredPlaces(tx, mirror, order, after, n)
		if err != nil {
			return out, err
		}
		ids := make([]string, len(found))
		for i, d := range found {
			ids[i] = replicator.ChildJobID(mirror, d.database)
		}
		list, err := s.jobs.Index().ListIDs(tx, ids...)
		if err != nil {
			return out, err
		}
		owners := map[string]ownership{}
		for i, raw := range list {
			out.after = fdbjobs.Position{Owner: strconv.FormatInt(found[i].at, 10), ID: found[i].database}
			job, err := s.indexedJob(tx, raw, owners)
			if err != nil {
				return out, err
			}
			if job == nil {
				out.passed++ // the database waits, or is gone
				continue
			}
			out.jobs, out.places = append(out.jobs, job), append(out.places, out.after)
		}
		out.more = len(found) == n
		return out, nil
	}
}

// mirroredPlaces reads up to n databases of a mirror after a position.
func (s *Store) mirroredPlaces(
	tx kv.ReadTransaction, mirror string, order Order, after fdbjobs.Position, n int,
) (found []timedDatabase, err error) {
	if order != ByCrash {
		stored, err := s.mirroredRows(tx, mirror, after.ID, n)
		for _, d := range stored {
			found = append(found, timedDatabase{0, d.Database})
		}
		return found, err
	}
	index := s.space.Sub("mirror_failing", mirror)
	all := rows.Range(index)
	if after != (fdbjobs.Position{}) {
		at, err := strconv.ParseInt(after.Owner, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("listing the jobs of a mirror: the start key has no time: %w", err)
		}
		all.Begin = kv.KeyAfter(index.Pack(at, after.ID))
	}
	return s.mirrorTimes("mirror_failing", mirror, tx.GetRange(all, kv.RangeOptions{Limit: n}))
}
