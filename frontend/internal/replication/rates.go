package replication

import (
	"fmt"
	"net/http"
	"time"

	"settee/frontend/internal/web"
	"settee/replicator/rates"
)

// maxPoints is the most points of a plot.
const maxPoints = rates.SlotsKept

// rateColumns is the answer of _scheduler/rates: what all nodes did, in each step.
type rateColumns struct {
	Since            int64   `json:"since"` // seconds since the epoch
	Until            int64   `json:"until"`
	Step             int64   `json:"step"` // seconds
	DocsRead         []int64 `json:"docs_read"`
	DocsWritten      []int64 `json:"docs_written"`
	DocWriteFailures []int64 `json:"doc_write_failures"`
	Starts           []int64 `json:"starts"`
	Stops            []int64 `json:"stops"`
	Crashes          []int64 `json:"crashes"`
	Completed        []int64 `json:"completed"`
	Failed           []int64 `json:"failed"`
	BytesReceived    []int64 `json:"bytes_received"`
	BytesSent        []int64 `json:"bytes_sent"`
}

// plot is what a request for rates asks for, in seconds.
type plot struct {
	slot               time.Duration
	since, until, step int64
}

// readPlot reads since, until and step at a time. It widens the step to whole slots and to at most maxPoints, and the
// time to whole steps.
func readPlot(q *web.Query, at time.Time) plot {
	const fine, coarse = int64(rates.FineSlot / time.Second), int64(rates.CoarseSlot / time.Second)
	now := at.Unix()
	latest := (now - fine) / fine * fine // the nodes record a slot when it is over
	until := min(int64(q.Count("until", int(latest))), latest)
	since := max(int64(q.Count("since", int(max(until-3600, 0)))), now-rates.SlotsKept*coarse)
	step := min(int64(q.Count("step", 1)), rates.SlotsKept*coarse)
	switch {
	case step == 0:
		q.Refuse("Invalid value for integer parameter `step`: it must be at least 1")
	case since >= until:
		q.Refuse("`since` must be before `until`, and `until` within the last day")
	}
	if q.Err != nil {
		return plot{}
	}
	p := plot{slot: rates.FineSlot}
	step = max(step, (until-since+maxPoints-1)/maxPoints)
	length := fine
	if since-step < now-(rates.SlotsKept-1)*fine || step%coarse == 0 { // the first step may begin before since
		p.slot, length = rates.CoarseSlot, coarse
	}
	p.step = (step + length - 1) / length * length
	p.since = since / p.step * p.step
	if (until+p.step-1)/p.step-p.since/p.step > maxPoints {
		p.since += p.step
	}
	p.until = (until + p.step - 1) / p.step * p.step
	return p
}

// RateParameters are the parameters that Rates reads.
var RateParameters = web.Parameters(func(q *web.Query) { readPlot(q, time.Now()) })

// Rates answers _scheduler/rates, which CouchDB does not have.
func (e *Endpoints) Rates(w http.ResponseWriter, r *http.Request) error {
	q := web.NewQuery(r)
	p := readPlot(q, time.Now())
	if q.Err != nil {
		return q.Err
	}
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	n := int((p.until - p.since) / p.step)
	steps, err := e.Jobs.Rates.Read(ctx, p.slot, time.Unix(p.since, 0), time.Duration(p.step)*time.Second, n)
	if err != nil {
		return fmt.Errorf("reading the rates of the nodes: %w", err)
	}
	column := func(of func(rates.Work) int64) []int64 {
		out := make([]int64, n)
		for i, w := range steps {
			out[i] = of(w)
		}
		return out
	}
	return web.Respond(w, r, http.StatusOK, rateColumns{
		Since: p.since, Until: p.until, Step: p.step,
		DocsRead:         column(func(w rates.Work) int64 { return w.DocsRead }),
		DocsWritten:      column(func(w rates.Work) int64 { return w.DocsWritten }),
		DocWriteFailures: column(func(w rates.Work) int64 { return w.DocWriteFailures }),
		Starts:           column(func(w rates.Work) int64 { return w.Starts }),
		Stops:            column(func(w rates.Work) int64 { return w.Stops }),
		Crashes:          column(func(w rates.Work) int64 { return w.Crashes }),
		Completed:        column(func(w rates.Work) int64 { return w.Completed }),
		Failed:           column(func(w rates.Work) int64 { return w.Failed }),
		BytesReceived:    column(func(w rates.Work) int64 { return w.BytesReceived }),
		BytesSent:        column(func(w rates.Work) int64 { return w.BytesSent }),
	})
}
