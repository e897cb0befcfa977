package replication

import (
	"fmt"
	"math"
	"net/http"

	"settee/frontend/internal/web"
	"settee/pkg/config"
	"settee/replicator"
	"settee/replicator/shares"
)

// share is a replicator database, or a user of transient replications, in _scheduler/shares.
type share struct {
	Database *string `json:"database"`
	User     *string `json:"user"`
	Shares   float64 `json:"shares"`
	Usage    float64 `json:"usage"` // seconds
	// The number of its jobs in each state.
	Running   int64   `json:"running"`
	Pending   int64   `json:"pending"`
	Scheduled int64   `json:"scheduled"`
	Parked    int64   `json:"parked"`
	Paused    int64   `json:"paused"`
	Crashing  int64   `json:"crashing"`
	Ran       float64 `json:"ran"`
	Entitled  float64 `json:"entitled"`
	// Of a paused database, if they are known.
	PausedSince  *string `json:"paused_since,omitempty"`
	SharesBefore float64 `json:"shares_before,omitempty"`
}

func shareOf(s shares.Share) share {
	return share{
		Database: orNull(s.Database), User: orNull(s.User), Shares: sharesOf(s.Weight),
		Usage: s.Usage.Seconds(), Running: s.Jobs[replicator.ShownRunning], Pending: s.Jobs[replicator.ShownPending],
		Scheduled: s.Jobs[replicator.ShownScheduled], Parked: s.Jobs[replicator.ShownParked],
		Paused: s.Jobs[replicator.ShownPaused], Crashing: s.Jobs[replicator.ShownCrashing],
		Ran: s.Ran, Entitled: s.Entitled, PausedSince: timeText(s.PausedSince), SharesBefore: sharesOf(s.Before),
	}
}

// sharesOf returns the shares that a weight is made of, a whole number.
func sharesOf(weight float64) float64 { return math.Round(weight * config.DefaultShares) }

// ListShares answers _scheduler/shares, which CouchDB does not have: how much of the running time of the last hour
// each replicator database had, and how much it was entitled to.
func (e *Endpoints) ListShares(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	list, err := e.Jobs.Shares.List(ctx)
	if err != nil {
		return fmt.Errorf("reading the shares of replicator databases: %w", err)
	}
	rows := make([]share, len(list))
	for i, s := range list {
		rows[i] = shareOf(s)
	}
	return web.Respond(w, r, http.StatusOK, struct {
		TotalRows int     `json:"total_rows"`
		Shares    []share `json:"shares"`
	}{len(rows), rows})
}
