package jobs

import (
	"errors"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/check"
	"settee/pkg/tuple"
)

// checker checks the rows of the package.
type checker struct {
	*core
	parking *parkedRows
	records *jobRecords
}

// entry is a row with the elements of its key after the first one.
type entry struct {
	*check.Page
	kv.KeyValue
	key tuple.Tuple
}

func (e entry) unknown() (func() error, error) {
	e.Fault(e.Key, nil, "unknown key")
	return nil, nil
}

func (e entry) unreadable(what string) (func() error, error) {
	e.Fault(e.Key, nil, "%s: the value is not one that settee writes", what)
	return nil, nil
}

// peek starts reading a job that another row belongs to. Its result is nil if the job does not exist. A job whose row cannot
// be read, which is a fault of the job layer, has no Status and no State.
func peek(tx kv.ReadTransaction, queue *fdbjobs.Queue, jobID string) kv.Future[*fdbjobs.Job] {
	read := queue.Read(tx, jobID)
	return kv.Func[*fdbjobs.Job](func() (*fdbjobs.Job, error) {
		job, err := read.Await()
		if errors.Is(err, tuple.ErrMalformed) {
			return &fdbjobs.Job{ID: jobID}, nil
		}
		return job, err
	})
}

// ofJob checks that a job exists. If the row is derived, it goes otherwise.
func (k checker) ofJob(e entry, jobID string, derived bool, what string) (func() error, error) {
	job := peek(e, k.jobs, jobID)
	return func() error {
		there, err := job.Await()
		switch {
		case err != nil || there != nil:
		case derived:
			e.Stray(e.Key, "%s of the job %q, which does not exist", what, jobID)
		default:
			e.Fault(e.Key, nil, "%s of the job %q, which does not exist", what, jobID)
		}
		return err
	}, nil
}
