package main

import (
	"context"
	"fmt"
)

// work is what the nodes have done in a case, by their metrics.
type work struct {
	Requests float64 `json:"requests"` // to the endpoints
	Runs     float64 `json:"runs"`
	Claims   float64 `json:"claims"`
	Empty    float64 `json:"empty_claims"` // those of Claims that took no job
	Claimed  float64 `json:"claimed_jobs"`
	// jobs that were woken, by cause
	ByFeed      float64 `json:"woken_by_feed"`
	ByQuestions float64 `json:"woken_by_questions"`
	BySafety    float64 `json:"woken_by_safety_look"`
}

// each calls f with the name of the metric of each number.
func (w *work) each(f func(metric string, number *float64)) {
	f("couchdb_couch_replicator_requests_total", &w.Requests)
	f("couchdb_couch_replicator_jobs_starts_total", &w.Runs)
	f("settee_replicator_claims_total", &w.Claims)
	f("settee_replicator_empty_claims_total", &w.Empty)
	f("settee_replicator_claimed_jobs_total", &w.Claimed)
	const wakes = "settee_watch_wakes_total"
	f(wakes+`{cause="feed"}`, &w.ByFeed)
	f(wakes+`{cause="question"}`, &w.ByQuestions)
	f(wakes+`{cause="safety_look"}`, &w.BySafety)
}

// done returns what the running nodes have done since they started.
func (f *fleet) done(ctx context.Context) (all work, err error) {
	for _, node := range f.running() { // none with couchdb-alone
		metrics, err := node.Metrics(ctx)
		if err != nil {
			return work{}, err
		}
		all.each(func(metric string, number *float64) { *number += metrics[metric] })
	}
	return all, nil
}

// since returns what was done after before.
func (w work) since(before work) work {
	var minus []float64
	before.each(func(_ string, number *float64) { minus = append(minus, *number) })
	w.each(func(_ string, number *float64) { *number, minus = *number-minus[0], minus[1:] })
	return w
}

// String returns the numbers of runs, claims and woken jobs.
func (w work) String() string {
	text := fmt.Sprintf("%.0f runs, %.0f claims took %.0f jobs, %.0f took none", w.Runs, w.Claims-w.Empty, w.Claimed, w.Empty)
	if w.Claimed > 0 {
		text += fmt.Sprintf(": %.2f for each job", w.Empty/w.Claimed)
	}
	if w.ByFeed+w.ByQuestions+w.BySafety > 0 {
		text += fmt.Sprintf("; woken: %.0f by feeds, %.0f by questions, %.0f by the safety look", w.ByFeed, w.ByQuestions, w.BySafety)
	}
	return text
}
