package fleet

import (
	"context"
	"slices"
	"time"

	"settee/pkg/retry"
	"settee/scripts/bench/lab"
)

// first adds the jobs, and waits until each has copied the first document of its source.
func (f *fleet) first(ctx context.Context) error {
	if err := f.login(ctx); err != nil {
		return err
	}
	if err := f.WriteAll(ctx, 1); err != nil {
		return err
	}
	f.Say("a document in each source; adding %d jobs", f.jobs)
	var added time.Duration
	used, w, err := f.measure(ctx, func() error {
		return f.Within(ctx, "the first run of all jobs", func(ctx context.Context) error {
			began := time.Now()
			if err := f.add(ctx, f.running[0].Server); err != nil {
				return err
			}
			added = time.Since(began)
			f.Say("all jobs added after %.1f s", added.Seconds())
			return f.Await(ctx)
		})
	})
	if err != nil {
		return err
	}
	f.Take()
	f.Report.Measured("documents into _replicator until all jobs have run", "", "%.1f jobs/s (%.1f s; documents written in %.1f s)",
		float64(f.jobs)/used.Seconds, used.Seconds, added.Seconds())
	f.Report.Measured("  bounded by", "", "%s", used.Bound())
	f.report(used, w)
	f.Say("all have had their first run after %.1f s", used.Seconds)
	return nil
}

// parked measures the nodes while all jobs are parked and nothing changes.
func (f *fleet) parked(ctx context.Context) error {
	began := time.Now()
	if err := f.awaitJobs(ctx, "parked"); err != nil {
		return err
	}
	f.Say("all jobs parked after %.1f s more", time.Since(began).Seconds())
	return f.rest(ctx, "all jobs parked")
}

// awaitParked returns when all jobs are parked, if they can be.
func (f *fleet) awaitParked(ctx context.Context) error {
	if !f.has("parked") {
		return nil
	}
	return f.awaitJobs(ctx, "parked")
}

// changes writes documents to random sources at random times. Documents that CouchDB alone does not copy within the limit are
// reported as missing.
func (f *fleet) changes(ctx context.Context) error {
	f.Say("writing %g documents a second for %s", f.rate, f.duration)
	var missing error
	used, w, err := f.arrive(ctx, func() error {
		return f.WriteDuring(ctx, f.Random, f.rate, func(ctx context.Context) error { return retry.Wait(ctx, f.duration) })
	}, func(ctx context.Context) error {
		err := f.Await(ctx)
		if f.endpoints == lab.OnCouchDBAlone {
			missing, err = err, nil
		}
		return err
	})
	if err != nil {
		return err
	}
	d := f.Take()
	f.Report.Measured("changes in random databases: change to target", "median 300 ms, p99 2 s", "%s documents", d)
	f.Report.Measured("  rate", "100/s", "%.1f/s", float64(len(d))/used.Seconds)
	if missing != nil {
		c := f.Counts()
		f.Report.Measured("  not arrived", "", "%d: %v", c.Due-c.Arrived, missing) // the error names one
	}
	f.report(used, w)
	return nil
}

// arrive measures writes and the wait until all documents have arrived.
func (f *fleet) arrive(ctx context.Context, write func() error, await func(context.Context) error) (lab.Used, work, error) {
	if err := f.login(ctx); err != nil {
		return lab.Used{}, nil, err
	}
	return f.measure(ctx, func() error {
		if err := write(); err != nil {
			return err
		}
		return f.Within(ctx, "the arrival of the last change", await)
	})
}

// atOnce writes to many sources at once.
func (f *fleet) atOnce(ctx context.Context) error {
	if err := f.awaitParked(ctx); err != nil {
		return err
	}
	f.Say("writing to %d sources at once", f.burst)
	used, w, err := f.arrive(ctx, func() error { return f.WriteTo(ctx, f.Random.Perm(f.jobs)[:f.burst]) }, f.Await)
	if err != nil {
		return err
	}
	d := f.Take()
	f.Report.Measured("databases that change at once: all at their targets", "20 s for 1,000", "%d in %.1f s", len(d), used.Seconds)
	f.Report.Measured("  delay", "", "%s documents", d)
	f.report(used, w)
	return nil
}

// restart kills the node and starts it again.
func (f *fleet) restart(ctx context.Context) (err error) {
	if err := f.awaitParked(ctx); err != nil {
		return err
	}
	f.running[0].Close()
	f.Say("starting the node again")
	began := time.Now()
	if f.running[0], err = f.startNode(ctx, 0); err != nil {
		return err
	}
	answers := time.Since(began).Seconds()
	if err := f.Write(ctx, f.Random.IntN(f.jobs)); err != nil {
		return err
	}
	if err := f.Within(ctx, "the arrival of a change", f.Await); err != nil {
		return err
	}
	f.Report.Measured("restart: answers after", "2 s", "%.2f s", answers)
	f.Report.Measured("  first change to target", "at once", "%.2f s", slices.Max(f.Take()).Seconds())
	return f.rest(ctx, "  afterwards")
}

// settling is the time that CouchDB's replicator has before changes are written.
const settling = time.Minute

// alone adds the jobs to CouchDB's replicator, and gives it time for them.
func (f *fleet) alone(ctx context.Context) error {
	if err := f.add(ctx, f.server); err != nil {
		return err
	}
	f.Say("%d jobs added; waiting for %s", f.jobs, settling)
	return retry.Wait(ctx, settling)
}
