package fdbjobs

import "sync/atomic"

// Claims are the claims of one process in a queue, since its layer was opened.
type Claims struct {
	// Made is the number of claims. Empty of them took no job.
	Made, Empty int64
	// Jobs is the number of jobs that claims took.
	Jobs int64
}

// claimCounts counts claims.
type claimCounts struct{ made, empty, jobs atomic.Int64 }

// note counts a claim that took some jobs.
func (c *claimCounts) note(jobs int) {
	c.made.Add(1)
	c.jobs.Add(int64(jobs))
	if jobs == 0 {
		c.empty.Add(1)
	}
}

// Claims returns how often this process has looked for jobs to take, and how many it has taken. A claim that takes the
// last ready job is followed by an empty one, which begins to wait, if there is still an acceptor.
func (q *Queue) Claims() Claims {
	c := &q.claimer.counts
	return Claims{Made: c.made.Load(), Empty: c.empty.Load(), Jobs: c.jobs.Load()}
}
