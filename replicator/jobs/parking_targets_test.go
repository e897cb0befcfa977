package jobs_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"settee/replicator"
	"settee/replicator/jobs"
)

// loseTarget empties the target of a random job: somebody deletes it and creates it again. The caller holds mu.
func (w *parkWorld) loseTarget() {
	ids := slices.Sorted(maps.Keys(w.places))
	id := ids[w.random.IntN(len(ids))]
	w.targets[id]++
	w.copied[id] = 0
}

// loseLast empties some targets whose jobs may be parked by now, and which no later change wakes.
func (w *parkWorld) loseLast() {
	w.pause(10 * time.Second)
	w.mu.Lock()
	defer w.mu.Unlock()
	for range 3 {
		w.loseTarget()
	}
}

// targetOf returns what the target of a job is now.
func (w *parkWorld) targetOf(jobID string) replicator.ParkedTarget {
	w.mu.Lock()
	defer w.mu.Unlock()
	return replicator.ParkedTarget{Server: "http://b.example/", Database: jobID, Instance: fmt.Sprint(1 + w.targets[jobID])}
}

// lookAtTargets wakes the jobs whose targets are no longer the noted ones, each eight seconds.
func (w *parkWorld) lookAtTargets(store *jobs.Store, server string, looked *time.Time) error {
	if time.Since(*looked) < 8*time.Second {
		return nil
	}
	const page = 3
	for after, more := (jobs.ParkedRow{}), true; more; {
		rows, err := store.Watches.ParkedOf(w.Context(), server, after, page)
		if err != nil {
			return err
		}
		var lost []jobs.ParkedRow
		for _, row := range rows {
			if after = row; !row.Woken && row.Target.Lost(replicator.TargetNow{Instance: w.targetOf(row.JobID).Instance}) {
				row.Lost = time.Now()
				lost = append(lost, row)
			}
		}
		w.pause(100 * time.Millisecond) // a job may run and park again meanwhile
		if err := w.dies("looking at targets"); err != nil {
			return err
		}
		n, err := store.Watches.WakeLost(w.Context(), lost)
		if err != nil {
			return err
		}
		for range n {
			w.count("woken by a look at its target")
		}
		more = len(rows) == page
	}
	*looked = time.Now()
	return nil
}
