package replication

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"settee/frontend/internal/access"
	"settee/frontend/internal/web"
	"settee/replicator"
	"settee/replicator/jobs"
)

// acknowledged is the answer to an acknowledgement of one job.
type acknowledged struct {
	OK        bool                 `json:"ok"`
	ID        string               `json:"id"`
	Condition replicator.Condition `json:"condition"` // from now on
}

// Acknowledge answers POST _scheduler/jobs/{id}/_acknowledge, which CouchDB does not have: somebody knows of the trouble of a job, so it
// needs nobody's attention.
func (e *Endpoints) Acknowledge(w http.ResponseWriter, r *http.Request) error {
	m, err := e.readMembers(w, r)
	if err != nil {
		return err
	}
	ack, err := m.acknowledgement(r)
	if err == nil {
		err = m.done()
	}
	if err != nil {
		return err
	}
	return e.changeAcknowledgement(w, r, &ack)
}

// Unacknowledge answers DELETE _scheduler/jobs/{id}/_acknowledge: the acknowledgement of a job is taken back, if it has one.
func (e *Endpoints) Unacknowledge(w http.ResponseWriter, r *http.Request) error {
	return e.changeAcknowledgement(w, r, nil)
}

func (e *Endpoints) changeAcknowledgement(w http.ResponseWriter, r *http.Request, ack *replicator.Acknowledgement) error {
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	job, err := e.jobOf(ctx, r, web.PathValue(r, "id"), access.RunJob)
	if err != nil {
		return err
	}
	switch err := e.Jobs.Requests.Acknowledge(ctx, job.ID, ack); {
	case errors.Is(err, jobs.ErrNoAttention):
		return web.NewFailure(http.StatusConflict, "conflict", "the job needs nobody's attention")
	case err != nil:
		return failureOf("acknowledging a replication job", err)
	}
	if job, err = e.jobOf(ctx, r, job.ID, access.RunJob); err != nil {
		return err
	}
	return web.Respond(w, r, http.StatusOK, acknowledged{true, shownID(job), e.telling(r).condition(job)})
}

// AcknowledgeProblem answers POST _scheduler/problems/_acknowledge, which CouchDB does not have: all jobs of a problem are acknowledged.
func (e *Endpoints) AcknowledgeProblem(w http.ResponseWriter, r *http.Request) error {
	m, err := e.readMembers(w, r)
	if err != nil {
		return err
	}
	var of jobs.Problem
	for name, into := range map[string]*string{
		"kind": (*string)(&of.Kind), "code": (*string)(&of.Code), "side": (*string)(&of.Side), "host": &of.Host, "mirror": &of.Mirror,
	} {
		if *into, err = m.text(name); err != nil {
			return err
		}
	}
	ack, err := m.acknowledgement(r)
	if err == nil {
		err = m.done()
	}
	switch {
	case err != nil:
		return err
	case of.Kind == "":
		return web.BadRequest("`kind` is missing: name the problem with the members that `_scheduler/problems` has of it")
	case of.Kind == replicator.NeedsEarlier:
		return web.BadRequest("`kind` is late: this is of a server, and not of jobs, and cannot be acknowledged")
	}
	return e.acknowledgeProblem(w, r, of, ack)
}

func (e *Endpoints) acknowledgeProblem(w http.ResponseWriter, r *http.Request, of jobs.Problem, ack replicator.Acknowledgement) error {
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	found, err := e.Jobs.Lists.Problems(ctx)
	if err != nil {
		return failureOf("acknowledging a problem", err)
	}
	i := slices.IndexFunc(found, func(p jobs.Problem) bool { return p.Attention == of.Attention && p.Mirror == of.Mirror })
	if i < 0 {
		return web.NotFound("no job has this problem")
	}
	n, err := e.Jobs.Requests.AcknowledgeProblem(ctx, &found[i], ack)
	if err != nil {
		return failureOf("acknowledging a problem", err)
	}
	return web.Respond(w, r, http.StatusOK, struct {
		OK   bool `json:"ok"`
		Jobs int  `json:"jobs"`
	}{true, n})
}

// members are the members of a body that have not been read yet.
type members map[string]json.RawMessage

// readMembers reads a body that is a JSON object.
func (e *Endpoints) readMembers(w http.ResponseWriter, r *http.Request) (members, error) {
	return web.ReadObject(w, r, e.Settings.Current())
}

// text takes a member that is a string. It is empty if it is missing or null.
func (m members) text(name string) (text string, err error) {
	if value, ok := m[name]; ok && json.Unmarshal(value, &text) != nil {
		return "", web.BadRequest("`" + name + "` must be a string")
	}
	delete(m, name)
	return text, nil
}

// done refuses members that have not been taken.
func (m members) done() error {
	if len(m) == 0 {
		return nil
	}
	return web.BadRequest("`" + slices.Min(slices.Collect(maps.Keys(m))) + "` is not a member of this request")
}

// acknowledgement takes the note and the end of an acknowledgement by the user of a request.
func (m members) acknowledgement(r *http.Request) (ack replicator.Acknowledgement, err error) {
	ack.At, ack.By = time.Now(), access.UserOf(r).Name
	if ack.Note, err = m.text("note"); err != nil {
		return ack, err
	}
	if n := len(ack.Note); n > replicator.MaxNote {
		return ack, web.BadRequest(fmt.Sprintf("`note` has %d bytes; the most is %d", n, replicator.MaxNote))
	}
	until, err := m.text("until")
	if err != nil || until == "" {
		return ack, err
	}
	if ack.Until, err = time.Parse(time.RFC3339, until); err != nil {
		return ack, web.BadRequest("`until` must be a time such as 2026-12-01T00:00:00Z")
	}
	if !ack.Until.Truncate(time.Second).After(ack.At) {
		return ack, web.BadRequest("`until` must be in the future")
	}
	return ack, nil
}
