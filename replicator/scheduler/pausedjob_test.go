package scheduler_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"settee/replicator"
	"settee/replicator/jobs"
)

// A node stops the run of a job whose document is paused, and goes on with it when the document is resumed. A run says in
// the history why it was stopped.
func TestPausedDocuments(t *testing.T) {
	inLab(t, jobs.Options{}, nil, func(l *lab) {
		id := l.put(repdb, "d", `, "continuous": true`)
		l.in(id, replicator.StateRunning)
		time.Sleep(10 * time.Second) // the run, too, knows that it has begun: the result of the write may have been unknown
		l.put(repdb, "d", `, "continuous": true, "paused": true`)
		job := l.until(id, func(j *jobs.Job) bool { return j.Condition() == replicator.StatePending && j.State.Runs == 1 })
		assert.Equal(l, "the document is paused", job.State.History[0].Reason)
		time.Sleep(time.Hour)
		assert.Equal(l, replicator.StatePending, l.get(id).Condition())
		l.put(repdb, "d", `, "continuous": true`)
		job = l.in(id, replicator.StateRunning)
		assert.Equal(l, []string{"started", "stopped", "started", "added"}, eventsOf(job))

		time.Sleep(10 * time.Second)
		l.end()
		l.end = func() {}
		job = l.get(id)
		assert.Equal(l, replicator.StatePending, job.Condition())
		assert.Equal(l, "its node stops", job.State.History[0].Reason)
	})
}

func eventsOf(job *jobs.Job) []string {
	var types []string
	for _, e := range job.State.History {
		types = append(types, e.Type)
	}
	return types
}
