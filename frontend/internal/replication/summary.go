package replication

import (
	"fmt"
	"net/http"

	"settee/frontend/internal/web"
	"settee/replicator"
	"settee/replicator/jobs"
)

// inSummary is the most jobs in each list of a summary.
const inSummary = 20

// Summary answers _scheduler/summary, which CouchDB does not have: how many jobs there are, since when they wait for a
// slot, and which ones may need an operator.
func (e *Endpoints) Summary(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	counts, err := e.Jobs.Lists.Counts(ctx)
	if err != nil {
		return fmt.Errorf("counting the replication jobs: %w", err)
	}
	t, attention := e.telling(r), map[jobs.Order][]listedJob{}
	for _, order := range []jobs.Order{jobs.ByCrash, jobs.ByStuck, jobs.ByRefusal} {
		list, err := e.Jobs.Lists.List(ctx, jobs.Filter{}, jobs.ListOptions{Limit: inSummary, Order: order})
		if err != nil {
			return fmt.Errorf("listing the replication jobs that need attention: %w", err)
		}
		attention[order] = listedAll(list.Jobs, t)
	}
	mirrors, err := e.Jobs.Lists.ListMirrors(ctx, inSummary)
	if err != nil {
		return fmt.Errorf("listing the mirrors: %w", err)
	}
	oldest, err := e.Jobs.Lists.OldestDue(ctx)
	if err != nil {
		return fmt.Errorf("reading since when replication jobs wait: %w", err)
	}
	return web.Respond(w, r, http.StatusOK, struct {
		Jobs      map[replicator.ShownState]int64 `json:"jobs"`
		Turn      int64                           `json:"turn,omitempty"`
		Gone      int64                           `json:"gone,omitempty"`
		OldestDue *string                         `json:"oldest_due,omitempty"`
		Databases int64                           `json:"databases"`
		Users     int64                           `json:"users"`
		Crashing  []listedJob                     `json:"crashing"`
		Stuck     []listedJob                     `json:"stuck"`
		Refused   []listedJob                     `json:"refused"`
		Mirrors   []listedJob                     `json:"mirrors"`
	}{counts.Jobs, counts.Turn, counts.Gone, timeText(oldest), counts.Databases, counts.Users, attention[jobs.ByCrash], attention[jobs.ByStuck], attention[jobs.ByRefusal], listedAll(mirrors, t)})
}
