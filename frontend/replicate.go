package frontend

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"settee/fdbjobs"
	"settee/pkg/config"
	"settee/pkg/docstore"
	"settee/replicator"
	"settee/replicator/jobs"
)

// accepted says that a replication was added or cancelled.
type accepted struct {
	OK      bool   `json:"ok"`
	LocalID string `json:"_local_id"`
}

// shownID is what clients know a job by: its replication id, or, while that is not
// known, its job id. Either finds it.
func shownID(job *jobs.Job) string {
	if id := job.ReplicationID(); id != "" {
		return id
	}
	return job.ID
}

func (h *Handler) replicate(w http.ResponseWriter, r *http.Request) error {
	request, err := h.readRequest(w, r)
	if err != nil {
		return err
	}
	if request.Cancel {
		return h.cancel(w, r, request)
	}
	continuous := request.Replication.Continuous
	job, err := h.add(r, request.Replication)
	if err != nil {
		return err
	}
	if continuous {
		return respond(w, r, http.StatusAccepted, accepted{true, job.shown})
	}
	// From here on the request, which may be large, is garbage.
	return h.await(w, r, job)
}

// readRequest reads the body of a POST to _replicate.
func (h *Handler) readRequest(w http.ResponseWriter, r *http.Request) (*replicator.Request, error) {
	if err := checkContent(r); err != nil {
		return nil, err
	}
	body, err := h.readBody(w, r)
	if err != nil {
		return nil, err
	}
	if len(body) == 0 {
		return nil, badRequest("Missing request body")
	}
	cfg := h.config.Current()
	request, err := replicator.ParseRequest(body, replicator.ParseOptions{
		EndpointProtocols: config.ValidEndpointProtocols.Get(cfg),
		ProxyProtocols:    config.ValidProxyProtocols.Get(cfg),
	})
	var refused *replicator.ParseError
	if errors.As(err, &refused) {
		return nil, badRequest(refused.Reason)
	}
	return request, err
}

// checkContent refuses a body that is not plain JSON.
func checkContent(r *http.Request) error {
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return badContentType("Content-Encoding must be identity or missing: compressed bodies are not supported")
	}
	return checkContentType(r)
}

// checkContentType refuses a body that says that it is not JSON. Like CouchDB it takes one that
// does not say what it is, and does not mind what a PUT says: curl calls all bodies forms.
func checkContentType(r *http.Request) error {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	kind = strings.TrimSpace(kind)
	if r.Method != http.MethodPut && kind != "" && !strings.EqualFold(kind, "application/json") {
		return badContentType("Content-Type must be application/json")
	}
	return nil
}

// readBody reads a body of the size that is configured.
func (h *Handler) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	return h.readBodyUpTo(w, r, config.MaxReplicateBody.Get(h.config.Current()), config.MaxReplicateBody.String())
}

// readBodyUpTo reads a body of a limited size. why is what the limit is there for.
func (h *Handler) readBodyUpTo(w http.ResponseWriter, r *http.Request, limit int64, why string) ([]byte, error) {
	if other := config.MaxHTTPRequestSize.Get(h.config.Current()); other < limit {
		limit, why = other, config.MaxHTTPRequestSize.String()
	}
	tooLarge := func() error {
		w.Header().Set("Connection", "close") // the rest is not read
		return &failure{http.StatusRequestEntityTooLarge, "too_large",
			fmt.Sprintf("the request body has more than %d bytes, which is the limit (%s)", limit, why)}
	}
	if r.ContentLength > limit {
		return nil, tooLarge()
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return nil, tooLarge()
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		return nil, &failure{http.StatusRequestTimeout, "timeout",
			fmt.Sprintf("the request body was not received within %s", receiveTimeout)}
	case err != nil:
		w.Header().Set("Connection", "close")
		return nil, badRequest("the request body ends too early or is malformed")
	}
	// The connection is now read only to notice that the client hangs up.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	return body, nil
}

// added is what is kept of a job that was added or joined.
type added struct {
	id, life string
	shown    string // what clients know it by
}

// add adds the job, or joins the one that is there.
func (h *Handler) add(r *http.Request, replication *replicator.Replication) (added, error) {
	ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
	defer cancel()
	job, err := h.jobs.Replicate(ctx, replication, whoIs(r).userName())
	var collision *jobs.Collision
	switch {
	case errors.As(err, &collision):
		return added{}, h.collided(r, collision)
	case errors.Is(err, fdbjobs.ErrTooLarge):
		return added{}, &failure{http.StatusRequestEntityTooLarge, "too_large",
			fmt.Sprintf("the replication is too large to be stored: it may have %d bytes as JSON", fdbjobs.MaxArgsSize)}
	case errors.Is(err, context.DeadlineExceeded):
		zerolog.Ctx(ctx).Error().Msg("the store does not answer")
		return added{}, unavailable(fmt.Sprintf(
			"the store did not answer within %s: the replication may have been added, and can be posted again", storeTimeout))
	case err != nil:
		return added{}, err
	}
	return added{job.ID, job.Args.Life, shownID(job)}, nil
}

// collided says that another job has the replication id, and whose that is to who may know.
func (h *Handler) collided(r *http.Request, c *jobs.Collision) error {
	reason := c.Error()
	if !c.Transient && h.mayReadReplication(r, c.Database, c.DocID) {
		reason = c.Name()
	}
	return &failure{http.StatusConflict, "conflict", reason}
}

// mayReadReplication reports whether the user of a request that is about no database sees all of a replication
// document. Where that cannot be found out, the user does not.
func (h *Handler) mayReadReplication(r *http.Request, database, id string) bool {
	a := &access{who: whoIs(r)}
	if a.who.IsAdmin() {
		return true
	}
	if err := h.enter(r, a, database); err != nil || a.permits(toMembers) != nil {
		return false
	}
	ctx, cancel := storeContext(r)
	defer cancel()
	doc, err := a.db.Get(ctx, id, docstore.GetOptions{})
	return err == nil && a.mayRead(a.db, doc)
}

// await answers when the job has ended.
func (h *Handler) await(w http.ResponseWriter, r *http.Request, awaited added) error {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(h.draining, func() { cancel(errGoingAway) })()
	done := h.connections.wait(r, waitsForReplication, func() { cancel(errNoRoom) })
	job, err := h.jobs.Await(ctx, awaited.id, awaited.life)
	done()
	switch {
	case errors.Is(err, jobs.ErrNotFound):
		return notFound("the replication was cancelled")
	case errors.Is(err, jobs.ErrForgotten):
		return unavailable("the replication " + awaited.shown +
			" has ended, and has begun anew before its result was read: the same request, sent again, waits for it")
	case err != nil && r.Context().Err() != nil:
		zerolog.Ctx(ctx).Debug().Str("job", awaited.id).Msg("the client hung up; the replication goes on")
		return errClientGone
	case err != nil && errors.Is(context.Cause(ctx), errNoRoom):
		return unavailable("too many requests are being answered; the replication " + awaited.shown +
			" goes on: the same request, sent later, waits for it")
	case err != nil && (errors.Is(context.Cause(ctx), errGoingAway) || errors.Is(err, fdbjobs.ErrClosed)):
		return unavailable("this node is going away; the replication " + awaited.shown +
			" goes on: the same request, sent to another node or later, waits for it")
	case err != nil:
		return fmt.Errorf("waiting for the replication job %q: %w", awaited.id, err)
	}
	return respondResult(w, r, awaited.shown, job.State)
}

// respondResult says how a job has ended; and by which id one is known whose target has refused documents, which
// are listed below it. (CouchDB lists none, and has the id in other answers only.)
func respondResult(w http.ResponseWriter, r *http.Request, id string, state *replicator.JobState) error {
	if state.State != replicator.StateCompleted {
		code, reason := state.ErrorBody()
		status := http.StatusInternalServerError
		if code == jobs.CollisionCode {
			status = http.StatusConflict
		}
		return &failure{status, code, reason}
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
	send(w, r, http.StatusOK, append(result, '\n'))
	return nil
}

// cancel cancels by an id, or the replication that asks for the same.
func (h *Handler) cancel(w http.ResponseWriter, r *http.Request, request *replicator.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
	defer cancel()
	who := whoIs(r)
	id := request.ID
	if id == "" {
		id = request.Replication.JobID(who.Name)
	}
	may := func(job *jobs.Job) error {
		if who.IsAdmin() || job.Args.User != nil && *job.Args.User == who.Name {
			return nil
		}
		return forbidden("Only its user and server admins may cancel a replication.")
	}
	job, err := h.jobs.CancelIf(ctx, id, may)
	if errors.Is(err, jobs.ErrNotFound) && request.ID == "" && who.IsAdmin() {
		// Another user's, as in CouchDB, whose ids do not depend on who asks.
		theirs, idErr := h.jobs.ReplicationID(request.Replication)
		if idErr != nil {
			return idErr
		}
		if theirs != "" {
			job, err = h.jobs.CancelIf(ctx, theirs, may)
		}
	}
	if errors.Is(err, jobs.ErrNotFound) {
		return notFound("missing")
	}
	var refused *failure
	if errors.As(err, &refused) {
		return refused
	}
	if err != nil {
		return fmt.Errorf("cancelling a replication: %w", err)
	}
	return respond(w, r, http.StatusOK, accepted{true, shownID(job)})
}
