package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"settee/scripts/internal/lab"
)

// settling is the time that CouchDB's replicator has before changes are written.
const settling = time.Minute

// ownReplicator prepares a CouchDB that runs the jobs with its default settings.
func ownReplicator(ctx context.Context, db *lab.CouchDB) error {
	// The measuring programs start it with another number.
	return db.Ask(ctx, http.MethodPut, "_node/_local/_config/replicator/max_jobs", []byte(`"500"`), nil)
}

// alone measures the case changes with jobs that CouchDB runs. Documents that have not arrived within the limit count as
// missing.
func (f *fleet) alone(ctx context.Context) error {
	if err := f.addJobs(ctx, f.endpoints, "", f.jobs, f.targets); err != nil {
		return err
	}
	f.say("%d jobs added; waiting for %s", f.jobs, settling)
	if err := lab.Pause(ctx, settling); err != nil {
		return err
	}
	before, err := f.begin(ctx)
	if err != nil {
		return err
	}
	if err := f.writeAtRandom(ctx); err != nil {
		return err
	}
	limited, cancel := f.within(ctx, "the arrival of the last change")
	defer cancel()
	_ = f.arrivals.await(limited) // the report counts those that are missing
	used, err := f.since(ctx, before)
	if err != nil {
		return err
	}
	f.report.Changes = &changes{f.arrivals.take(), used}
	f.report.Missing = fmt.Sprintf("%d, %s after the last one was written", f.arrivals.missing(), f.limit)
	return ctx.Err()
}
