package replicator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/replicator"
)

// Each line is a way in which a run ends, and what becomes of the job.
func TestAgain(t *testing.T) {
	t.Parallel()
	const s = time.Second
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	database, id := "_replicator", "c0ffee"
	job := func(change func(*replicator.JobArgs)) *replicator.JobArgs {
		args := &replicator.JobArgs{Replication: new(replicator.Replication), Database: &database, ReplicationID: id}
		if change != nil {
			change(args)
		}
		return args
	}
	document := job(nil)
	posted := job(func(a *replicator.JobArgs) { a.Database = nil })
	postedContinuous := job(func(a *replicator.JobArgs) { a.Database, a.Replication.Continuous = nil, true })
	unidentified := job(func(a *replicator.JobArgs) {
		a.Database, a.Replication.Continuous, a.ReplicationID = nil, true, ""
	})
	hourly := job(func(a *replicator.JobArgs) { a.Replication.Every = 3600 })
	oftener := job(func(a *replicator.JobArgs) { a.Replication.Every = 10 })
	atTen := job(func(a *replicator.JobArgs) { a.Replication.Schedule = "10 * * * *" })

	mirrored := job(func(a *replicator.JobArgs) { a.MirroredDatabase, a.Replication.Continuous = "db", true })
	mirroredOnce := job(func(a *replicator.JobArgs) { a.MirroredDatabase = "db" })
	mirroredPosted := job(func(a *replicator.JobArgs) { a.Database, a.MirroredDatabase, a.ReplicationID = nil, "db", "" })
	mirror := job(func(a *replicator.JobArgs) { a.Replication.Mirror = new(replicator.Mirror) })

	crashed := replicator.Ending{Outcome: replicator.RunCrashed}
	asked := func(wait time.Duration) replicator.Ending {
		return replicator.Ending{Outcome: replicator.RunCrashed, RetryAfter: wait}
	}
	healthy := replicator.Ending{Outcome: replicator.RunCrashed, Healthy: true}
	met := func(rival replicator.Rival) replicator.Ending {
		return replicator.Ending{Outcome: replicator.RunCrashed, Rival: rival}
	}
	ended := func(outcome replicator.Outcome) replicator.Ending { return replicator.Ending{Outcome: outcome} }
	const (
		completed, pending = replicator.StateCompleted, replicator.StatePending
		crashing, failed   = replicator.StateCrashing, replicator.StateFailed
		never              = time.Duration(-1)
	)
	for name, test := range map[string]struct {
		job         *replicator.JobArgs
		before      int // errors
		ending      replicator.Ending
		state       replicator.State
		after       int
		most, least time.Duration // without jitter, and with the most
	}{
		"completed":                             {document, 3, ended(replicator.RunCompleted), completed, 0, never, never},
		"completed, periodic":                   {hourly, 3, ended(replicator.RunCompleted), pending, 0, 3000 * s, 3000 * s},
		"completed, too late for its next time": {oftener, 3, ended(replicator.RunCompleted), pending, 0, 0, 0},
		"completed, by a schedule":              {atTen, 3, ended(replicator.RunCompleted), pending, 0, 600 * s, 600 * s},

		"stopped":                    {document, 3, ended(replicator.RunStopped), pending, 3, 0, 0},
		"stopped, healthy":           {document, 3, replicator.Ending{Outcome: replicator.RunStopped, Healthy: true}, pending, 0, 0, 0},
		"stopped, periodic":          {hourly, 3, ended(replicator.RunStopped), pending, 3, 0, 0},
		"with another id":            {document, 3, ended(replicator.RunRestarted), pending, 3, 0, 0},
		"its process died":           {document, 3, ended(replicator.RunLost), pending, 3, 0, 0},
		"its process died, periodic": {hourly, 3, ended(replicator.RunLost), pending, 3, 0, 0},
		"parked":                     {document, 3, ended(replicator.RunParked), pending, 0, 21 * time.Hour, 27 * time.Hour},
		"invalid":                    {document, 0, ended(replicator.RunFailed), failed, 1, never, never},

		// Min times 2^n after n crashes, and less a quarter: see replicator.Penalties.
		"first crash":                   {document, 0, crashed, crashing, 1, 64 * s, 48 * s},
		"second crash":                  {document, 1, crashed, crashing, 2, 128 * s, 96 * s},
		"fourth crash":                  {document, 3, crashed, crashing, 4, 512 * s, 384 * s},
		"fifth crash":                   {document, 4, crashed, crashing, 5, 1000 * s, 750 * s},
		"after very many crashes":       {document, 1 << 40, crashed, crashing, 1<<40 + 1, 1000 * s, 750 * s},
		"crash of a healthy run":        {document, 4, healthy, crashing, 1, 64 * s, 48 * s},
		"asked for a short wait":        {document, 0, asked(60 * s), crashing, 1, 64 * s, 60 * s},
		"asked for a long wait":         {document, 0, asked(600 * s), crashing, 1, 600 * s, 600 * s},
		"asked for too long a wait":     {document, 0, asked(time.Hour), crashing, 1, 1000 * s, 1000 * s},
		"posted":                        {posted, 0, crashed, failed, 1, never, never},
		"posted, asked for a wait":      {posted, 0, asked(5 * s), crashing, 1, 5 * s, 5 * s},
		"posted, asked again":           {posted, 2, asked(5 * s), crashing, 3, 20 * s, 20 * s},
		"posted, asked very often":      {posted, 8, asked(5 * s), crashing, 9, 1000 * s, 1000 * s},
		"posted, asked for too long":    {posted, 0, asked(time.Hour), crashing, 1, 1000 * s, 1000 * s},
		"posted and continuous":         {postedContinuous, 2, crashed, crashing, 3, 256 * s, 192 * s},
		"without an id":                 {unidentified, 0, crashed, failed, 1, never, never},
		"without an id, asked for more": {unidentified, 0, asked(60 * s), crashing, 1, 64 * s, 60 * s},

		"periodic, first crash":              {hourly, 0, crashed, crashing, 1, 64 * s, 48 * s},
		"periodic, the next time is sooner":  {atTen, 4, crashed, crashing, 5, 600 * s, 600 * s},
		"periodic, the next time is at once": {oftener, 4, crashed, crashing, 5, 64 * s, 48 * s},

		"a mirror's":                         {mirrored, 4, crashed, crashing, 5, 1000 * s, 750 * s},
		"a mirror's, once":                   {mirroredOnce, 1, crashed, crashing, 2, 128 * s, 96 * s},
		"a mirror's, once, for the third":    {mirroredOnce, 2, asked(5 * s), failed, 3, never, never},
		"a posted mirror's":                  {mirroredPosted, 0, crashed, crashing, 1, 64 * s, 48 * s},
		"a mirror":                           {mirror, 4, crashed, crashing, 5, 300 * s, 300 * s},
		"a mirror's, collided":               {mirrored, 0, met(replicator.DocumentRival), failed, 1, never, never},
		"a mirror's, collided with a posted": {mirrored, 0, met(replicator.PostedRival), failed, 1, never, never},

		"collided with a posted job":       {document, 4, met(replicator.PostedRival), crashing, 5, 32 * s, 24 * s},
		"collided with a document's job":   {document, 4, met(replicator.DocumentRival), failed, 5, never, never},
		"posted, collided with a posted":   {posted, 0, met(replicator.PostedRival), failed, 1, never, never},
		"posted, collided with a document": {postedContinuous, 0, met(replicator.DocumentRival), failed, 1, never, never},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := &replicator.JobState{ErrorCount: test.before, StartTime: now.Add(-600 * s)}
			p := replicator.Penalties{Min: 32 * s, Max: 1000 * s}
			for jitter, wait := range map[float64]time.Duration{0: test.most, 1: test.least} {
				again, err := test.ending.Again(test.job, state, p, now, jitter)
				require.NoError(t, err)
				want := replicator.Again{Outcome: test.ending.Outcome, State: test.state, ErrorCount: test.after}
				if wait != never {
					want.At = now.Add(wait)
				}
				if test.state == failed {
					want.Outcome = replicator.RunFailed
				}
				require.Equal(t, want, again)
			}
		})
	}
}

func TestAgainInAnUnknownTimeZone(t *testing.T) {
	t.Parallel()
	job := &replicator.JobArgs{Replication: &replicator.Replication{Schedule: "0 3 * * *", Timezone: "Mars/Olympus"}}
	for _, outcome := range []replicator.Outcome{replicator.RunCompleted, replicator.RunCrashed} {
		database := "_replicator"
		job.Database = &database
		_, err := replicator.Ending{Outcome: outcome}.Again(job, new(replicator.JobState), replicator.Penalties{}, time.Now(), 0)
		require.ErrorContains(t, err, "Mars/Olympus")
	}
}
