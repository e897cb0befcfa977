package replication

import (
	"fmt"
	"net/http"

	"settee/frontend/internal/web"
	"settee/replicator"
	"settee/replicator/jobs"
)

// inSummary is the most mirrors in a summary.
const inSummary = 20

// waiting says why jobs wait that are due, as the condition of each does.
type waiting struct {
	Reason  replicator.Reason `json:"reason"`
	Message string            `json:"message"`
}

// slots are the slots of live nodes that take jobs.
type slots struct {
	Used  int64 `json:"used"`
	Total int   `json:"total"`
}

// Summary answers _scheduler/summary, which CouchDB does not have: how many jobs there are in each state, since when
// they wait for a slot, and the mirrors.
func (e *Endpoints) Summary(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	counts, err := e.Jobs.Lists.Counts(ctx)
	if err != nil {
		return fmt.Errorf("counting the replication jobs: %w", err)
	}
	mirrors, err := e.Jobs.Lists.List(ctx, jobs.Filter{Mirrors: true}, jobs.ListOptions{Limit: inSummary})
	if err != nil {
		return fmt.Errorf("listing the mirrors: %w", err)
	}
	t := e.telling(r)
	var why *waiting
	if !counts.Due.IsZero() {
		why = new(waiting)
		why.Reason, why.Message = t.cluster.Waiting()
	}
	return web.Respond(w, r, http.StatusOK, struct {
		Jobs      map[replicator.ShownState]int64 `json:"jobs"`
		Mirrored  map[replicator.ShownState]int64 `json:"mirrored,omitempty"`
		Turn      int64                           `json:"turn,omitempty"`
		Gone      int64                           `json:"gone,omitempty"`
		OldestDue *string                         `json:"oldest_due,omitempty"`
		Waiting   *waiting                        `json:"waiting,omitempty"`
		Slots     slots                           `json:"slots"`
		Databases int64                           `json:"databases"`
		Users     int64                           `json:"users"`
		Mirrors   []listedJob                     `json:"mirrors"`
	}{counts.Jobs, counts.Mirrored, counts.Turn, counts.Gone, timeText(counts.Due), why,
		slots{t.cluster.InUse(counts.Jobs[replicator.ShownRunning]), t.cluster.Slots}, counts.Databases, counts.Users, listedAll(mirrors.Jobs, t)})
}
