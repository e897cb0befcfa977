package replicator_test

import (
	"cmp"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/replicator"
)

// The times of the facts below: they are in minutes after the start of a day.
func minute(n int) time.Time {
	return time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC).Add(time.Duration(n) * time.Minute)
}

const nowMinute = 60

// facts returns the facts of a due job that has never run, on a cluster without free slots, after some changes.
func facts(changes ...func(*replicator.Facts)) *replicator.Facts {
	f := &replicator.Facts{
		Now: minute(nowMinute), Status: replicator.JobPending, Scheduled: minute(50),
		Args: &replicator.JobArgs{Added: minute(1), Replication: &replicator.Replication{
			Source: replicator.Endpoint{URL: "http://a.example:5984/db"}, Target: replicator.Endpoint{URL: "http://b.example/db"},
		}},
		State:   &replicator.JobState{State: replicator.StatePending, LastUpdated: minute(2)},
		Cluster: &replicator.Cluster{Live: map[string]bool{"n1": true}, Slots: 5, Used: 5},
	}
	for _, change := range changes {
		change(f)
	}
	return f
}

func running(f *replicator.Facts) {
	f.Status, f.State.State, f.State.Node, f.State.StartTime = replicator.JobRunning, replicator.StateRunning, "n1", minute(40)
}

func finished(state replicator.State) func(*replicator.Facts) {
	return func(f *replicator.Facts) {
		f.Status, f.State.State, f.State.StartTime, f.State.LastUpdated = replicator.JobFinished, state, minute(40), minute(45)
	}
}

func failed(code, reason string) func(*replicator.Facts) {
	kinds := map[string]replicator.FaultCode{"conflict": replicator.FaultCollision, "bad_request": replicator.FaultInvalid}
	return func(f *replicator.Facts) {
		fault := replicator.TextFault(code, reason)
		fault.Code, fault.Detail = cmp.Or(kinds[code], fault.Code), reason
		f.State.SetFault(fault)
	}
}

// crashed is a job whose last two runs have failed and that waits.
func crashed(f *replicator.Facts) {
	f.State.State, f.State.ErrorCount, f.State.CrashingSince, f.State.LastUpdated = replicator.StateCrashing, 2, minute(30), minute(55)
	f.State.SetError("db_not_found", "could not open it")
	f.Scheduled = minute(70)
}

func later(f *replicator.Facts) { f.Scheduled = minute(70) }

// due is for jobs whose last run failed, and whose time has come.
func due(f *replicator.Facts) { f.Scheduled, f.Again = minute(58), true }

func periodic(f *replicator.Facts) { f.Args.Replication.Schedule = "0 * * * *" }

func documentPaused(f *replicator.Facts) { f.Args.Paused = &replicator.Pause{Since: minute(20)} }

func databasePaused(f *replicator.Facts) { f.Pause = &replicator.Pause{Since: minute(21)} }

func parked(f *replicator.Facts) {
	f.Parked, f.State.Parked, f.Scheduled = true, &replicator.Parked{Since: minute(35)}, minute(2000)
}

func sealed(f *replicator.Facts) {
	f.State.SetFault(&replicator.Fault{Code: replicator.FaultSealed, Word: "error", Text: "there is no key"})
}

func doing(d replicator.Doing, waiting ...replicator.Wait) func(*replicator.Facts) {
	return func(f *replicator.Facts) {
		f.State.Activity = &replicator.Activity{Doing: d, Since: minute(52), Waiting: waiting}
	}
}

// mirror is a mirror that has looked at its source and has these databases.
func mirror(states map[replicator.MirroredState]int64) func(*replicator.Facts) {
	return func(f *replicator.Facts) {
		f.Args.Replication.Mirror = new(replicator.Mirror)
		f.State.Mirror, f.Mirror = &replicator.MirrorProgress{LastLook: minute(47)}, &replicator.MirrorSummary{States: states}
	}
}

func behindSince(n int) func(*replicator.Facts) {
	return func(f *replicator.Facts) { f.Mirror.Behind = minute(n) }
}

func aMirrorsFailure(f *replicator.Facts) {
	f.Mirror.Failures = []replicator.MirroredFailure{{Database: "a", Since: minute(44)}, {Database: "b", Since: minute(46)}}
}

// Each row of the decision. T+n in what is told is minute(n).
func TestExplain(t *testing.T) {
	t.Parallel()
	wait := replicator.Wait{Endpoint: "source", Error: "no answer", Until: minute(61)}
	limited := replicator.Wait{Endpoint: "target", Error: "429 slower", Until: minute(63), RateLimited: true}
	type change = func(*replicator.Facts)
	for name, c := range map[string]struct {
		facts []change
		state replicator.ShownState
		why   replicator.Reason
		since int // -1: unknown
		until int // -1: none
		fault string
	}{
		"a failed job that collided":     {[]change{finished("failed"), failed("conflict", "x exists already")}, "failed", "collision", 45, -1, "collision: conflict: x exists already"},
		"a definition that is forbidden": {[]change{finished("failed"), failed("bad_request", "http")}, "failed", "invalid_definition", 45, -1, "invalid_definition: bad_request: http"},
		"a failed job":                   {[]change{finished("failed"), failed("forbidden", "no")}, "failed", "gave_up", 45, -1, "unknown: forbidden: no"},
		"a job that failed elsewhere": {[]change{finished("failed"), func(f *replicator.Facts) { f.State.SetError("", "no"); f.State.StartTime = time.Time{} }},
			"failed", "ended_elsewhere", 45, -1, "unknown: no"},
		"completed": {[]change{finished("completed")}, "completed", "copied_all", 45, -1, ""},
		"a database that is gone": {[]change{finished("completed"), func(f *replicator.Facts) { f.State.Mirrored = &replicator.MirroredJob{GoneAt: minute(80)} }},
			"completed", "gone", 45, 80, ""},

		"its node is gone":                {[]change{running, doing("copying"), func(f *replicator.Facts) { f.State.Node = "n2" }}, "running", "node_lost", 2, -1, ""},
		"its node may not be known yet":   {[]change{running, doing("copying"), func(f *replicator.Facts) { f.State.Node, f.State.StartTime = "n2", f.Now }}, "running", "copying", 52, -1, ""},
		"nothing is known of nodes":       {[]change{running, doing("copying"), func(f *replicator.Facts) { f.Cluster, f.State.Node = nil, "n2" }}, "running", "copying", 52, -1, ""},
		"running, its document is paused": {[]change{running, doing("copying"), documentPaused, databasePaused}, "running", "pausing", 20, -1, ""},
		"running, its database is paused": {[]change{running, doing("copying"), databasePaused}, "running", "pausing", 21, -1, ""},
		"running with another definition": {[]change{running, func(f *replicator.Facts) { f.Redefined, f.State = true, &replicator.JobState{State: "pending"} }}, "running", "new_definition", 1, -1, ""},
		"taken, and not started":          {[]change{running, doing("copying"), func(f *replicator.Facts) { f.State.State, f.State.Node = "pending", "n2" }}, "running", "starting", -1, -1, ""},
		"started, and no report":          {[]change{running}, "running", "starting", 40, -1, ""},
		"a run that stops":                {[]change{running, doing("stopping")}, "running", "stopping", 52, -1, ""},
		"an endpoint asked to wait":       {[]change{running, doing("rate_limited", wait, limited)}, "running", "rate_limited", 52, 63, "unknown: 429 slower"},
		"a request is repeated":           {[]change{running, doing("retrying", wait)}, "running", "retrying", 52, 61, "unknown: no answer"},
		"a run that opens its databases":  {[]change{running, doing("starting")}, "running", "starting", 52, -1, ""},
		"a run that copies":               {[]change{running, doing("copying")}, "running", "copying", 52, -1, ""},
		"a run that filters":              {[]change{running, doing("filtering")}, "running", "filtering", 52, -1, ""},
		"a run that reads":                {[]change{running, doing("reading_changes")}, "running", "reading_changes", 52, -1, ""},
		"a run that is idle":              {[]change{running, doing("idle")}, "running", "idle", 52, -1, ""},
		"a run that finishes":             {[]change{running, doing("finishing")}, "running", "finishing", 52, -1, ""},
		"a run that does something newer": {[]change{running, doing("waiting_for_quota")}, "running", "waiting_for_quota", 52, -1, ""},
		"a run whose target refuses": {[]change{running, doing("target_refusing"), func(f *replicator.Facts) {
			f.State.Activity.Refusing = &replicator.Refusing{Latest: replicator.Failure{Code: "forbidden", Reason: "no"}}
		}}, "running", "target_refusing", 52, -1, "document_refused: target b.example: refuses documents: no"},

		"a mirror that has not begun":      {[]change{mirror(nil), running, func(f *replicator.Facts) { f.State.Mirror = nil }}, "running", "listing", 40, -1, ""},
		"a mirror that is read again":      {[]change{mirror(nil), running, func(f *replicator.Facts) { f.State.Mirror.LastLook = time.Time{} }}, "running", "listing", 40, -1, ""},
		"a mirror whose databases fail":    {[]change{mirror(map[replicator.MirroredState]int64{"failing": 2, "up_to_date": 3}), aMirrorsFailure, behindSince(30), running}, "running", "databases_failing", 44, -1, ""},
		"a mirror of databases elsewhere":  {[]change{mirror(map[replicator.MirroredState]int64{"elsewhere": 1}), running}, "running", "databases_failing", -1, -1, ""},
		"a mirror that copies":             {[]change{mirror(nil), behindSince(30), running}, "running", "copying", 30, -1, ""},
		"a mirror that is up to date":      {[]change{mirror(map[replicator.MirroredState]int64{"up_to_date": 3}), running}, "running", "up_to_date", 47, -1, ""},
		"a mirror that is taken again":     {[]change{mirror(nil), func(f *replicator.Facts) { f.Status = replicator.JobRunning }}, "running", "up_to_date", 47, -1, ""},
		"a mirror that has lost a target":  {[]change{mirror(nil), behindSince(30), running, func(f *replicator.Facts) { f.State.Mirror.Target.Error = "401" }}, "running", "copying", 30, -1, "unknown: 401"},
		"a mirror that cannot list, first": {[]change{mirror(map[replicator.MirroredState]int64{"failing": 2}), running, unlistable}, "running", "source_unlistable", 43, -1, "source_unlistable: 401"},

		"a job that cannot be opened":         {[]change{crashed, sealed}, "crashing", "sealed", 55, 70, "sealed: there is no key"},
		"a paused document":                   {[]change{later, documentPaused}, "paused", "document", 20, -1, ""},
		"a paused database":                   {[]change{databasePaused}, "paused", "database", 21, -1, ""},
		"a database that waits for its turn":  {[]change{later, func(f *replicator.Facts) { f.Turn = true }}, "pending", "turn", 1, -1, ""},
		"a parked job":                        {[]change{parked}, "parked", "no_changes", 35, -1, ""},
		"a job that collided":                 {[]change{crashed, failed("conflict", "x exists")}, "crashing", "collision", 55, 70, "collision: conflict: x exists"},
		"a job that crashed":                  {[]change{crashed}, "crashing", "backoff", 55, 70, "unknown: db_not_found: could not open it"},
		"a job that waits for its time":       {[]change{periodic, later}, "scheduled", "schedule", -1, 70, ""},
		"a job that is later for no reason":   {[]change{later}, "pending", "delayed", -1, 70, ""},
		"a due job, and no node":              {[]change{func(f *replicator.Facts) { f.Cluster.Live = nil }}, "pending", "no_node", 50, -1, ""},
		"a due job, and all nodes cordoned":   {[]change{func(f *replicator.Facts) { f.Cluster.Cordoned = true }}, "pending", "cordoned", 50, -1, ""},
		"a due job":                           {nil, "pending", "slot", 50, -1, ""},
		"a due job, nothing known of nodes":   {[]change{func(f *replicator.Facts) { f.Cluster = nil }}, "pending", "slot", 50, -1, ""},
		"a due periodic job":                  {[]change{periodic}, "pending", "slot", 50, -1, ""},
		"a pause whose beginning is unknown":  {[]change{func(f *replicator.Facts) { f.Pause = new(replicator.Pause) }}, "paused", "database", -1, -1, ""},
		"a due job, and nobody has noticed":   {[]change{crashed, func(f *replicator.Facts) { f.Scheduled, f.Queued = minute(58), true }}, "crashing", "backoff", 55, 58, "unknown: db_not_found: could not open it"},
		"a due job that was not opened":       {[]change{crashed, sealed, due}, "pending", "slot", 58, -1, "sealed: there is no key"},
		"a job that is due by another clock":  {[]change{crashed, due, later}, "pending", "slot", 70, -1, "unknown: db_not_found: could not open it"},
		"a job that is due after its crashes": {[]change{crashed, due}, "pending", "slot", 58, -1, "unknown: db_not_found: could not open it"},

		// What comes first.
		"a node that is gone, before pauses":      {[]change{running, documentPaused, func(f *replicator.Facts) { f.State.Node = "n2" }}, "running", "node_lost", 2, -1, ""},
		"a pause, before another definition":      {[]change{running, databasePaused, func(f *replicator.Facts) { f.Redefined = true }}, "running", "pausing", 21, -1, ""},
		"another definition, before a mirror":     {[]change{mirror(nil), running, func(f *replicator.Facts) { f.Redefined = true }}, "running", "new_definition", 1, -1, ""},
		"a pause, before a lost key":              {[]change{crashed, sealed, documentPaused}, "paused", "document", 20, -1, "sealed: there is no key"},
		"a paused document, before the database":  {[]change{later, documentPaused, databasePaused}, "paused", "document", 20, -1, ""},
		"a paused database, before a parked job":  {[]change{parked, databasePaused}, "paused", "database", 21, -1, ""},
		"a paused database, before a crash":       {[]change{crashed, databasePaused}, "paused", "database", 21, -1, "unknown: db_not_found: could not open it"},
		"a crash, before a schedule":              {[]change{crashed, periodic}, "crashing", "backoff", 55, 70, "unknown: db_not_found: could not open it"},
		"a schedule, before nodes":                {[]change{periodic, later, func(f *replicator.Facts) { f.Cluster.Live = nil }}, "scheduled", "schedule", -1, 70, ""},
		"a job whose crash is over, before nodes": {[]change{later, func(f *replicator.Facts) { f.Cluster.Live = nil }}, "pending", "delayed", -1, 70, ""},
	} {
		f := facts(c.facts...)
		got := replicator.Explain(f)
		assert.Equal(t, c.state, got.State, name)
		assert.Equal(t, c.why, got.Reason, name)
		assert.Equal(t, told(c.since), got.Since, "since: %s", name)
		assert.Equal(t, told(c.until), got.Until, "until: %s", name)
		fault := ""
		if got.Fault != nil {
			fault = string(got.Fault.Code) + ": " + got.Fault.Message
		}
		assert.Equal(t, c.fault, fault, name)
		assert.NotEmpty(t, got.Message, name)
		f.Queue, f.Watch = &replicator.Queue{Before: 3}, &replicator.Watch{By: "feed"}
		one := replicator.Explain(f)
		assert.Equal(t, []any{f.Queue, f.Watch}, []any{one.Queue, one.Watch}, name)
		one.Queue, one.Watch = nil, nil
		assert.Equal(t, got, one, "what is known of a single job decides nothing: %s", name)
	}
}

func unlistable(f *replicator.Facts) {
	f.State.Mirror.Error, f.State.Mirror.ErrorSince = "401", minute(43)
}

func told(n int) time.Time {
	if n < 0 {
		return time.Time{}
	}
	return minute(n)
}

// Each mark, and what it is not true of.
func TestMarks(t *testing.T) {
	t.Parallel()
	type change = func(*replicator.Facts)
	stuck := func(f *replicator.Facts) { f.State.StuckSince = minute(39) }
	behind := func(f *replicator.Facts) { f.State.BehindSince = minute(38) }
	refused := func(f *replicator.Facts) { f.State.Stats.DocWriteFailures = 31 }
	woken := func(f *replicator.Facts) { f.Parked, f.Scheduled = false, minute(58) }
	failing := replicator.Mark{Type: "failing", Since: minute(30), Count: 2}
	for name, c := range map[string]struct {
		facts []change
		marks []replicator.Mark
	}{
		"none":                         {nil, nil},
		"crashing":                     {[]change{crashed}, []replicator.Mark{failing}},
		"due after crashes":            {[]change{crashed, due}, []replicator.Mark{failing}},
		"paused after crashes":         {[]change{crashed, documentPaused}, []replicator.Mark{failing}},
		"running after crashes":        {[]change{crashed, running}, []replicator.Mark{failing}},
		"stuck":                        {[]change{running, stuck}, []replicator.Mark{{Type: "stuck", Since: minute(39)}}},
		"stuck, and not running":       {[]change{stuck}, []replicator.Mark{{Type: "stuck", Since: minute(39)}}},
		"refused":                      {[]change{running, refused}, []replicator.Mark{{Type: "documents_refused", Count: 31}}},
		"completed with refusals":      {[]change{finished("completed"), refused}, []replicator.Mark{{Type: "documents_refused", Count: 31}}},
		"behind":                       {[]change{running, behind}, []replicator.Mark{{Type: "behind", Since: minute(38)}}},
		"woken":                        {[]change{parked, woken}, []replicator.Mark{{Type: "behind", Since: minute(58)}}},
		"woken, and its document left": {[]change{parked, woken, documentPaused}, nil},
		"parked":                       {[]change{parked}, nil},
		"a mirror": {[]change{mirror(map[replicator.MirroredState]int64{"failing": 2, "failed": 1, "elsewhere": 4, "copying": 8}), aMirrorsFailure, behindSince(20), running,
			func(f *replicator.Facts) { f.Mirror.DocWriteFailures = 7 }},
			[]replicator.Mark{{Type: "documents_refused", Count: 7}, {Type: "behind", Since: minute(20)}, {Type: "databases_failing", Since: minute(44), Count: 7}}},
		"all of a job": {[]change{crashed, running, stuck, refused, behind}, []replicator.Mark{
			failing, {Type: "stuck", Since: minute(39)}, {Type: "documents_refused", Count: 31}, {Type: "behind", Since: minute(38)},
		}},
	} {
		assert.Equal(t, c.marks, replicator.Explain(facts(c.facts...)).Marks, name)
	}
}

// A message has the fault if that is the reason, and no secrets.
func TestMessages(t *testing.T) {
	t.Parallel()
	message := func(changes ...func(*replicator.Facts)) string { return replicator.Explain(facts(changes...)).Message }
	assert.Equal(t, "waits for a slot", message())
	assert.Equal(t, "is about to start", message(func(f *replicator.Facts) { f.Cluster.Used = 4 }))
	assert.Equal(t, "waits for a slot", message(func(f *replicator.Facts) { f.Cluster = nil }))
	assert.Equal(t, "has failed, and waits for its next try: db_not_found: could not open it", message(crashed))
	assert.Equal(t, "waits for a slot", message(crashed, due), "why it failed is not why it waits")
	assert.Equal(t, "waiting for quota", message(running, doing("waiting_for_quota")))

	const secret = "http://ann:s3cret@a.example/"
	secrets := replicator.Wait{Error: "no answer of " + secret}
	for _, f := range []*replicator.Facts{
		facts(running, doing("retrying", secrets)),
		facts(crashed, func(f *replicator.Facts) { f.State.Error = "no answer of " + secret }),
		facts(mirror(nil), running, func(f *replicator.Facts) { f.State.Mirror.Error = "no answer of " + secret }),
	} {
		text, err := json.Marshal(replicator.Explain(f))
		require.NoError(t, err)
		assert.NotContains(t, string(text), "s3cret")
		assert.Contains(t, string(text), "no answer of http://ann:*****@a.example/")
	}

	// A run that was stopped has cleared the error.
	stopped := facts(crashed, due, func(f *replicator.Facts) {
		f.State.SetFault(replicator.TextFault("", "the latest"))
		f.State.SetError("", "")
	})
	told := replicator.Explain(stopped).Fault
	assert.Equal(t, []string{"the latest", "the latest"}, []string{told.Message, told.Text})
}

// Its JSON has whole seconds, and only what there is.
func TestConditionJSON(t *testing.T) {
	t.Parallel()
	f := facts(crashed, func(f *replicator.Facts) {
		f.Scheduled = f.Scheduled.Add(999 * time.Millisecond).In(time.FixedZone("", 3600))
	})
	text, err := json.Marshal(replicator.Explain(f))
	require.NoError(t, err)
	assert.JSONEq(t, `{"state":"crashing","reason":"backoff","message":"has failed, and waits for its next try: db_not_found: could not open it",
		"since":"2026-01-02T00:55:00Z","until":"2026-01-02T01:10:00Z","marks":[{"type":"failing","since":"2026-01-02T00:30:00Z","count":2}],
		"fault":{"code":"unknown","message":"db_not_found: could not open it","text":"db_not_found: could not open it"},"attention":true}`, string(text))
	text, err = json.Marshal(replicator.Explain(facts(periodic, later)))
	require.NoError(t, err)
	assert.JSONEq(t, `{"state":"scheduled","reason":"schedule","message":"waits for its next time","until":"2026-01-02T01:10:00Z"}`, string(text))
}

// Only those see why a server has no feed who may.
func TestConditionFor(t *testing.T) {
	t.Parallel()
	f := facts(parked, func(f *replicator.Facts) { f.Watch = &replicator.Watch{By: "questions", Reason: "no"} })
	c := replicator.Explain(f)
	assert.Equal(t, c, c.For(replicator.Viewer{FeedErrors: true}))
	assert.Equal(t, &replicator.Watch{By: "questions"}, c.For(replicator.Viewer{}).Watch)
	assert.Equal(t, "no", c.Watch.Reason, "it is not changed")
	assert.Nil(t, replicator.Explain(facts()).For(replicator.Viewer{}).Watch)
}

// Those that have ended come last.
func TestShownStates(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []replicator.ShownState{"running", "pending", "scheduled", "parked", "paused", "crashing", "completed", "failed"}, replicator.ShownStates)
	for i, state := range replicator.ShownStates {
		assert.Equal(t, i >= 6, state.Ended(), state)
	}
}

// A running job has a slot unless it is one of the jobs without a slot. What the nodes say may be older than the number of jobs.
func TestInUse(t *testing.T) {
	c := &replicator.Cluster{Slots: 5, Slotless: 3}
	for running, inUse := range map[int64]int64{7: 4, 8: 5, 9: 5, 3: 0, 2: 0} {
		assert.Equal(t, inUse, c.InUse(running), "%d jobs run", running)
	}
}
