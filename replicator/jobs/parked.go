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

// The rows of parked jobs, see "Parked jobs" in the package's doc comment:
//
//	("parked", server, database, job id) -> (ask, woken, update_seq[, target server, target database, identity, instance, lost])
//	("asks", server, ask, job id)        -> database
//
// The members behind update_seq are ParkedRow.Target and ParkedRow.Lost, in seconds since the Unix epoch. A row whose target is
// not compared lacks them.
//
// server is the key of who answers for the job's source, see replicator.Endpoint.Route. A change that this server tells to a
// login of another job wakes the job, too: its own login has read the database when it was parked, which is a day ago at
// most. A job that may not read it any more is woken once, and is not parked again.
//
// ask is when to ask the source next whether it has changes, in seconds since the Unix epoch. It is 0 in a row without a
// key in asks. [Run.Parking] writes the rows. Whatever writes a state that does not name the row clears it, and so does the removal of the job.

const (
	// FirstAsk is how long after [Run.Parking] a source without a feed is asked for changes.
	FirstAsk = 5 * time.Second
	// LastAsk is how long it takes at most until a source is asked again.
	LastAsk = 5 * time.Minute

	// maxServerSize and maxDatabaseSize limit the names in keys, which also have a job id, and maxUpdateSeqSize limits
	// a value. All are in bytes.
	maxServerSize    = fdbjobs.MaxNameSize
	maxDatabaseSize  = 1_000
	maxUpdateSeqSize = 20_000
	// maxTargetSize is the maximum size of what a row has of a target, in bytes. Larger ones are not compared.
	maxTargetSize = 4_000
)

// errCannotPark is returned for a source whose names or sequences are too large for the rows of a parked job.
var errCannotPark = errors.New("the job cannot be parked")

// ParkedRow is the row of a job that is parked, or whose run is about to park it.
type ParkedRow struct {
	// Server and Database are the job's source: who answers, and the name of the database, see replicator.Endpoint.Route.
	Server, Database string
	JobID            string
	// UpdateSeq is the JSON text of the source's update_seq before the run's last look for changes, "" if it is not known.
	UpdateSeq string
	// Ask is when to ask the source for changes, in whole seconds. It is zero if it need not be asked.
	Ask time.Time
	// Woken reports whether the source has changed since, or the target has lost what it had. The row stays until the job's next
	// run begins.
	Woken bool
	// Target is the target that the run has left with everything; zero if it is not compared. Lost is zero, or the time when the target was
	// last known to have everything, in whole seconds: it has lost that since ([Watches.WakeLost]).
	Target replicator.ParkedTarget
	Lost   time.Time
}

// parkedRows are the rows of parked jobs, and the rows of the servers of their sources (watched.go).
type parkedRows struct{ *core }

func (s *parkedRows) parkedKey(of source, jobID string) []byte {
	return s.space.Pack("parked", of.server, of.database, jobID)
}

func (s *parkedRows) askKey(server string, ask int64, jobID string) []byte {
	return s.space.Pack("asks", server, ask, jobID)
}

func (r ParkedRow) source() source { return source{r.Server, r.Database} }

// ask returns Ask as it is stored.
func (r ParkedRow) ask() int64 { return storedTime(r.Ask) }

// value returns the value of the row.
func (r ParkedRow) value() []byte {
	value := tuple.Tuple{r.ask(), r.Woken, r.UpdateSeq}
	if t := r.Target; t != (replicator.ParkedTarget{}) {
		value = append(value, t.Server, t.Database, t.Identity, t.Instance, storedTime(r.Lost))
	}
	return value.Pack()
}

// parseValue reads the value of the row.
func (r *ParkedRow) parseValue(raw []byte) error {
	const short, whole = 3, 8
	value, err := tuple.Unpack(raw)
	var ask, lost int64
	ok := err == nil && (len(value) == short || len(value) == whole) &&
		rows.As(value[0], &ask) && rows.As(value[1], &r.Woken) && rows.As(value[2], &r.UpdateSeq)
	if ok && len(value) == whole {
		t := &r.Target
		ok = rows.As(value[3], &t.Server) && rows.As(value[4], &t.Database) && rows.As(value[5], &t.Identity) &&
			rows.As(value[6], &t.Instance) && rows.As(value[7], &lost)
	}
	if !ok {
		return fmt.Errorf("reading a parked job: %w", errors.Join(err, tuple.ErrMalformed))
	}
	r.Ask, r.Lost = readTime(ask), readTime(lost)
	return nil
}

// parseParked parses a row.
func (s *parkedRows) parseParked(pair kv.KeyValue) (r ParkedRow, err error) {
	if err := rows.ScanKey("a parked job", s.space, pair.Key, nil, &r.Server, &r.Database, &r.JobID); err != nil {
		return r, err
	}
	err = r.parseValue(pair.Value)
	return r, err
}

// readParked reads the row of a job. The result is nil if there is none.
func (s *parkedRows) readParked(tx kv.ReadTransaction, of source, jobID string) kv.Future[*ParkedRow] {
	if of == (source{}) {
		return kv.Known[*ParkedRow](nil)
	}
	key := s.parkedKey(of, jobID)
	return kv.Map(tx.Get(key), func(value []byte) (*ParkedRow, error) {
		if value == nil {
			return nil, nil
		}
		row, err := s.parseParked(kv.KeyValue{Key: key, Value: value})
		return &row, err
	})
}

// again reads rows as they are now. Those that are gone are nil.
func (s *parkedRows) again(tx kv.ReadTransaction, some []ParkedRow) ([]*ParkedRow, error) {
	return kv.Each(some, func(row ParkedRow) kv.Future[*ParkedRow] { return s.readParked(tx, row.source(), row.JobID) })
}

// setParked replaces a row of the same job and source, nil if there is none.
func (s *parkedRows) setParked(tx kv.Transaction, old *ParkedRow, next ParkedRow) {
	if old != nil && old.ask() != 0 && old.ask() != next.ask() {
		tx.Clear(s.askKey(old.Server, old.ask(), old.JobID))
	}
	if next.ask() != 0 {
		tx.Set(s.askKey(next.Server, next.ask(), next.JobID), []byte(next.Database))
	}
	tx.Set(s.parkedKey(next.source(), next.JobID), next.value())
}

// place is where the row of a parked job is. A job with the zero source has none.
type place struct {
	source
	jobID string
}

// unpark clears the rows of jobs that are there.
func (s *parkedRows) unpark(tx kv.Transaction, all ...place) error {
	found, err := kv.Each(all, func(at place) kv.Future[*ParkedRow] { return s.readParked(tx, at.source, at.jobID) })
	for _, row := range found {
		if row == nil {
			continue
		}
		if row.ask() != 0 {
			tx.Clear(s.askKey(row.Server, row.ask(), row.JobID))
		}
		tx.Clear(s.parkedKey(row.source(), row.JobID))
	}
	return err
}

// unparkExcept clears the rows of a job for sources that are not keep.
func (s *parkedRows) unparkExcept(tx kv.Transaction, jobID string, keep source, sources ...source) error {
	var left []place
	for _, of := range sources {
		if of != keep {
			left = append(left, place{of, jobID})
		}
	}
	return s.unpark(tx, left...)
}

// waitsForChange reports whether the row that a state names is there, and was not woken.
func (s *parkedRows) waitsForChange(tx kv.Transaction, state *replicator.JobState, jobID string) (bool, error) {
	row, err := s.readParked(tx, sourceOf(state.Parked), jobID).Await()
	return row != nil && !row.Woken, err
}

// lostSince returns since when the target of a parked job has lost what it had, as its row says. The zero time means that it has
// not, or that there is no row.
func (s *parkedRows) lostSince(tx kv.ReadTransaction, of source, jobID string) (time.Time, error) {
	row, err := s.readParked(tx, of, jobID).Await()
	if err != nil || row == nil {
		return time.Time{}, err
	}
	return row.Lost, nil
}
