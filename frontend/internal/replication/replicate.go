package replication

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/rs/zerolog"

	"settee/fdbjobs"
	"settee/frontend/internal/access"
	"settee/frontend/internal/web"
	"settee/pkg/config"
	"settee/pkg/nodes"
	"settee/replicator"
	"settee/replicator/jobs"
)

// Endpoints answer the requests about replications.
type Endpoints struct {
	Jobs        *jobs.Store
	Settings    web.Settings
	Connections *web.Connections
	Scans       *web.Scans
	Guard       *access.Guard
	// Nodes returns the nodes of the store.
	Nodes func() []nodes.Seen
}

// accepted is the answer to a replication that was added or cancelled.
type accepted struct {
	OK      bool   `json:"ok"`
	LocalID string `json:"_local_id"`
}

// shownID returns the id of a job for clients: its replication id, or its job id while the replication id is not
// known. Requests accept both.
func shownID(job *jobs.Job) string {
	if id := job.ReplicationID(); id != "" {
		return id
	}
	return job.ID
}

// Replicate answers POST /_replicate.
func (e *Endpoints) Replicate(w http.ResponseWriter, r *http.Request) error {
	request, err := e.readRequest(w, r)
	if err != nil {
		return err
	}
	if request.Cancel {
		return e.cancel(w, r, request)
	}
	continuous := request.Replication.Continuous
	job, err := e.add(r, request.Replication)
	if err != nil {
		return err
	}
	web.TraceJob(r, job.id)
	if continuous {
		return web.Respond(w, r, http.StatusAccepted, accepted{true, job.shown})
	}
	// From now on the request, which may be large, can be collected.
	return e.await(w, r, job)
}

// readRequest reads the body of a POST to _replicate.
func (e *Endpoints) readRequest(w http.ResponseWriter, r *http.Request) (*replicator.Request, error) {
	text, err := e.readText(w, r)
	if err != nil {
		return nil, err
	}
	request, err := replicator.ParseRequest(text, e.parseOptions())
	return request, parseFailure(err)
}

// readText reads a body that defines a replication.
func (e *Endpoints) readText(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	cfg := e.Settings.Current()
	limit := web.Limit{Bytes: config.MaxReplicateBody.Get(cfg), Words: " (" + config.MaxReplicateBody.String() + ")"}
	return web.ReadNeededJSON(w, r, cfg, limit)
}

// added is what a waiting request keeps of its job.
type added struct {
	id, life string
	shown    string // see shownID
}

// add adds a job, or joins the existing job of the same replication.
func (e *Endpoints) add(r *http.Request, replication *replicator.Replication) (added, error) {
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	job, err := e.Jobs.Requests.Replicate(ctx, replication, access.UserOf(r).UserName())
	var collision *jobs.Collision
	switch {
	case errors.As(err, &collision):
		return added{}, e.collided(r, collision)
	case errors.Is(err, fdbjobs.ErrTooLarge):
		return added{}, web.NewFailure(http.StatusRequestEntityTooLarge, "too_large",
			fmt.Sprintf("the replication is too large to be stored: it may have %d bytes as JSON", fdbjobs.MaxArgsSize))
	case errors.Is(err, context.DeadlineExceeded):
		zerolog.Ctx(ctx).Error().Msg("the store does not answer")
		return added{}, web.Unavailable(fmt.Sprintf(
			"the store did not answer within %s: the replication may have been added, and can be posted again", web.StoreTimeout))
	case err != nil:
		return added{}, err
	}
	return added{job.ID, job.Args.Life, shownID(job)}, nil
}

// collided returns the failure of a replication whose replication id another job has. It names the other job only to
// users who may see it.
func (e *Endpoints) collided(r *http.Request, c *jobs.Collision) error {
	reason := c.Error()
	if e.Guard.MayUseJob(r, access.SeeJob, access.JobOwner{Transient: c.Transient, User: c.User, Database: c.Database, DocID: c.DocID}) {
		reason = c.Name()
	}
	return web.NewFailure(http.StatusConflict, "conflict", reason)
}

// await answers when the job has ended.
func (e *Endpoints) await(w http.ResponseWriter, r *http.Request, awaited added) error {
	ctx, done := e.Connections.Wait(r, web.ForReplication)
	job, err := e.Jobs.Requests.Await(ctx, awaited.id, awaited.life)
	done()
	switch {
	case errors.Is(err, jobs.ErrNotFound):
		return web.NotFound("the replication was cancelled")
	case errors.Is(err, jobs.ErrForgotten):
		return web.Unavailable("the replication " + awaited.shown +
			" has ended, and has begun anew before its result was read: the same request, sent again, waits for it")
	case err != nil && r.Context().Err() != nil:
		zerolog.Ctx(ctx).Debug().Str("job", awaited.id).Msg("the client hung up; the replication goes on")
		return web.ErrClientGone
	case err != nil && errors.Is(context.Cause(ctx), web.ErrNoRoom):
		return web.Busy("too many requests are being answered; the replication " + awaited.shown +
			" goes on: the same request, sent later, waits for it")
	case err != nil && (errors.Is(context.Cause(ctx), web.ErrGoingAway) || errors.Is(err, fdbjobs.ErrClosed)):
		return web.Busy("this node is going away; the replication " + awaited.shown +
			" goes on: the same request, sent to another node or later, waits for it")
	case err != nil:
		return fmt.Errorf("waiting for the replication job %q: %w", awaited.id, err)
	}
	return respondResult(w, r, awaited.shown, job.State)
}

// respondResult answers with the result of a job. If the target refused documents, it adds the id, below which they
// are listed. (CouchDB lists none, and has the id in other answers only.)
func respondResult(w http.ResponseWriter, r *http.Request, id string, state *replicator.JobState) error {
	if state.State != replicator.StateCompleted {
		code, reason := state.ErrorBody()
		switch {
		case code == jobs.CollisionCode:
			return web.NewFailure(http.StatusConflict, code, reason)
		case state.ReplicationID == "":
			// The run could not read the filter. CouchDB answers so, whatever the reason.
			return web.NotFound(reason)
		case code == "unauthorized":
			return web.NewFailure(http.StatusUnauthorized, code, reason)
		case code == "forbidden":
			return web.NewFailure(http.StatusForbidden, code, reason)
		}
		return web.NewFailure(http.StatusInternalServerError, code, reason)
	}
	result := state.Result
	if result == nil {
		result = json.RawMessage(`{"ok":true}`)
	}
	if state.Stats.DocWriteFailures > 0 {
		quoted, err := json.Marshal(id)
		if err != nil {
			return err
		}
		result = fmt.Appendf(nil, `%s,"_local_id":%s}`, bytes.TrimSuffix(result, []byte("}")), quoted)
	}
	web.Send(w, r, http.StatusOK, append(result, '\n'))
	return nil
}

// cancel cancels the job of an id, or the job of the same replication.
func (e *Endpoints) cancel(w http.ResponseWriter, r *http.Request, request *replicator.Request) error {
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	who := access.UserOf(r)
	id := request.ID
	if id == "" {
		id = request.Replication.JobID(who.Name)
	}
	may := func(job *jobs.Job) error {
		if e.Guard.MayUseJob(r, access.CancelJob, ownerOf(job)) {
			return nil
		}
		return errNotAdmin
	}
	job, err := e.Jobs.Requests.Cancel(ctx, id, may)
	if errors.Is(err, jobs.ErrNotFound) && request.ID == "" {
		// In CouchDB ids do not depend on the user: the job of another user is found, too.
		theirs, idErr := e.Jobs.Requests.ReplicationID(request.Replication)
		if idErr != nil {
			return idErr
		}
		if theirs != "" {
			job, err = e.Jobs.Requests.Cancel(ctx, theirs, may)
		}
	}
	if errors.Is(err, jobs.ErrNotFound) {
		return web.NotFound("missing")
	}
	var refused *web.Failure
	if errors.As(err, &refused) {
		return refused
	}
	if err != nil {
		return fmt.Errorf("cancelling a replication: %w", err)
	}
	return web.Respond(w, r, http.StatusOK, accepted{true, shownID(job)})
}
