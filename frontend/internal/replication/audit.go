package replication

import (
	"fmt"
	"net/http"
	"slices"

	"settee/frontend/internal/web"
	"settee/pkg/audit"
)

// AuditParameters are the parameters that Audit reads.
var AuditParameters = web.Parameters(func(q *web.Query) { readAudit(q) })

// readAudit reads which changes are listed: those of one job, if there is a job id, those of a kind, if there is one, and at most how many.
func readAudit(q *web.Query) (jobID string, of audit.Kind, limit int) {
	if of = audit.Kind(q.Text("of")); of != "" && !slices.Contains(audit.Kinds, of) {
		q.Refuse("`of` must be one of %s", audit.Kinds)
	}
	return q.Text("job_id"), of, min(q.Count("limit", defaultLimit), audit.Kept)
}

// Audit answers _scheduler/audit, which CouchDB does not have: the latest changes that users have made to jobs and settings, the
// newest first.
func (e *Endpoints) Audit(w http.ResponseWriter, r *http.Request) error {
	q := web.NewQuery(r)
	jobID, of, limit := readAudit(q)
	if q.Err != nil {
		return q.Err
	}
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	found, err := e.Jobs.Lists.Audit(ctx, jobID, of, limit)
	if err != nil {
		return fmt.Errorf("reading the changes of users: %w", err)
	}
	return web.Respond(w, r, http.StatusOK, struct {
		Changes []audit.Entry `json:"changes"`
	}{found})
}
