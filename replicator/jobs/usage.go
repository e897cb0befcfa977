package jobs

import (
	"time"

	"settee/pkg/kv"
)

// Each write of a job's state charges the job's owner for the time that the job has run since the last write. The time is
// also added to a sum of the last hour (entitled.go).

// The sums of times of an owner (entitled.go).
const (
	timesRan      = "ran"
	timesEntitled = "entitled"
)

// usageRows are the rows of owners: what their jobs have run, and their pauses (pauses.go).
type usageRows struct{ *core }

// charge is the running time that one write of the state charges an owner for.
type charge struct {
	owner string
	at    time.Time
	ran   time.Duration // since the last charge
}

// charge adds a charge in the transaction that writes the state. It conflicts with nothing.
func (s *usageRows) charge(tx kv.Transaction, c charge) {
	if c.ran > 0 {
		s.jobs.Charge(tx, c.owner, c.ran.Milliseconds())
		s.addTime(tx, timesRan, c.at, c.owner, c.ran)
	}
}

func (s *usageRows) addTime(tx kv.Transaction, sum string, at time.Time, owner string, d time.Duration) {
	if ms := d.Milliseconds(); ms > 0 {
		tx.Add(s.space.Pack("times", sum, sliceOf(at), owner), ms)
	}
}

func sliceOf(t time.Time) int64 { return t.Unix() / int64(sliceLength/time.Second) }
