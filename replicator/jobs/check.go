package jobs

import (
	"context"
	"encoding/json"
	"errors"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/check"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
	"settee/replicator"
	"settee/replicator/rates"
	"settee/replicator/shares"
)

// Check checks all rows of the package: their forms, and that they agree with the jobs that they belong to. It removes
// reservations whose job is not there, makes parked jobs due that nothing would wake, and adds watches that are missing. It
// checks neither the jobs nor what follows from them: see
// [fdbjobs.Layer.Check].
func Check(ctx context.Context, c *check.Checker, layer *fdbjobs.Layer) error {
	all := &core{jobs: layer.Queue(QueueName), watches: layer.Queue(watchQueue), space: tuple.NewSubspace("replicator")}
	all.shares = shares.Open(c.DB, all.jobs, nil, nil)
	k := checker{all, &parkedRows{all}, &jobRecords{all}}
	states := k.jobs.States()
	if err := c.Walk(ctx, rows.Range(states), k.state); err != nil {
		return err
	}
	return c.Walk(ctx, kv.PrefixRange(k.space.Bytes()), k.row)
}

// rowChecks has the check of each kind of rows by the first element of its key, and the possible numbers of further ones.
var rowChecks = map[string]struct {
	from, to int
	check    func(checker, entry) (func() error, error)
}{
	"uuid":            {0, 0, checker.uuid},
	"replication_ids": {1, 1, checker.reservation},
	"records":         {2, 3, checker.record},
	"parked":          {3, 3, checker.parked},
	"asks":            {3, 3, checker.asks},
	"watched":         {1, 2, checker.watched},
	"paused":          {1, 1, checker.share},
	"ending":          {1, 1, checker.ending},
	"deleted":         {1, 1, checker.deleted},
	"times":           {3, 3, checker.share},
	"rates":           {3, 3, checker.work},
	"mirror_events":   {1, 2, checker.events},
}

func (k checker) row(p *check.Page, pair kv.KeyValue) (func() error, error) {
	e := entry{Page: p, KeyValue: pair}
	elements, err := k.space.Unpack(pair.Key)
	var name string
	if err != nil || len(elements) == 0 || !rows.As(elements[0], &name) {
		return e.unknown()
	}
	e.key = elements[1:]
	kind, known := rowChecks[name]
	if !known || len(e.key) < kind.from || len(e.key) > kind.to {
		return e.unknown()
	}
	return kind.check(k, e)
}

// state checks that a parked job can be woken.
func (k checker) state(p *check.Page, pair kv.KeyValue) (func() error, error) {
	states := k.jobs.States()
	id, err := rows.LastString(states, pair.Key)
	var state replicator.JobState
	if err != nil || json.Unmarshal(pair.Value, &state) != nil {
		return nil, nil // a job of another form is a fault of the job layer
	}
	return k.isParked(p, pair.Key, &state, id), nil
}

func (checker) uuid(e entry) (func() error, error) {
	if len(e.Value) == 0 {
		return e.unreadable("the server uuid")
	}
	return nil, nil
}

// reservation checks that the job that has a replication id exists. It may have ended.
func (k checker) reservation(e entry) (func() error, error) {
	var id string
	if !rows.As(e.key[0], &id) {
		return e.unknown()
	}
	return k.ofJob(e, string(e.Value), true, "a replication id")
}

// record checks one of the records of a job.
func (k checker) record(e entry) (func() error, error) {
	var jobID, kind string
	var n, limit int64
	if !rows.As(e.key[0], &jobID) || !rows.As(e.key[1], &kind) {
		return e.unknown()
	}
	var what string
	valid := true
	switch kind {
	case "failures":
		_, err := awaitFailures(kv.Known(e.Value))
		what, valid = "the failures of a job", err == nil
	case "failure":
		what, valid, limit = "a failure", check.Object(e.Value), replicator.MaxFailures
	case "run":
		what, valid, limit = "a run", check.Object(e.Value), maxRuns
	case "lags":
		_, err := awaitLags(kv.Known(e.Value))
		what, valid = "the lags of a mirror", err == nil
	case "verification":
		what, valid = "a comparison of a job", check.Object(e.Value)
	case "life":
		what = "the life that has ended"
	case "state":
		what, valid = "the end of a job", check.Object(e.Value)
	default:
		return e.unknown()
	}
	if numbered := len(e.key) == 3; numbered != (limit > 0) || numbered && (!rows.As(e.key[2], &n) || n < 0 || n >= limit) {
		return e.unknown()
	}
	if !valid {
		return e.unreadable(what)
	}
	exists, err := k.ofJob(e, jobID, false, what)
	if kind != "failure" || err != nil {
		return exists, err
	}
	count := e.Get(k.records.failureKey(jobID))
	return func() error {
		value, err := count.Await()
		if err == nil && value == nil {
			e.Fault(e.Key, nil, "a failure of the job %q, which has none", jobID)
		}
		return errors.Join(err, exists())
	}, nil
}

func (k checker) share(e entry) (func() error, error) {
	return nil, k.shares.CheckRow(e.Page, e.KeyValue)
}

// ending checks a row of a run that ends, whose job may be gone.
func (checker) ending(e entry) (func() error, error) {
	var replicationID string
	if !rows.As(e.key[0], &replicationID) {
		return e.unknown()
	}
	if _, err := parseEnding(e.Value); err != nil {
		return e.unreadable("a run that ends")
	}
	return nil, nil
}

func (checker) deleted(e entry) (func() error, error) {
	if _, instance, _ := shares.ParseOwner(string(e.Value)); instance == "" {
		return e.unreadable("a deleted database")
	}
	return nil, nil
}

// events checks an event of a mirror, or the counter of its events.
func (checker) events(e entry) (func() error, error) {
	if len(e.key) == 1 {
		if _, err := rows.ParseInt(e.Value); err != nil {
			return e.unreadable("the counter of the events of a mirror")
		}
		return nil, nil
	}
	if _, err := parseEvent(e.Value); err != nil {
		return e.unreadable("an event of a mirror")
	}
	return nil, nil
}

func (checker) work(e entry) (func() error, error) {
	if !rates.Valid(e.Value) {
		return e.unreadable("what a process did")
	}
	return nil, nil
}
