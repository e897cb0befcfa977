package replication

import (
	"fmt"
	"net/http"

	"settee/frontend/internal/web"
	"settee/pkg/audit"
)

// AuditParameters are the parameters that Audit reads.
var AuditParameters = web.Parameters(func(q *web.Query) { readAudit(q) })

// readAudit reads which changes are listed: those of one job, if there is a job id, and at most how many.
func readAudit(q *web.Query) (jobID string, limit int) {
	return q.Text("job_id"), min(q.Count("limit", defaultLimit), audit.Kept)
}

// Audit answers _scheduler/audit, which CouchDB does not have: the latest changes that users have made to jobs and settings, the
// newest first.
func (e *Endpoints) Audit(w http.ResponseWriter, r *http.Request) error {
	q := web.NewQuery(r)
	jobID, limit := readAudit(q)
	if q.Err != nil {
		return q.Err
	}
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	found, err := e.Jobs.Lists.Audit(ctx, jobID, limit)
	if err != nil {
		return fmt.Errorf("reading the changes of users: %w", err)
	}
	return web.Respond(w, r, http.StatusOK, struct {
		Changes []audit.Entry `json:"changes"`
	}{found})
}
