package worker

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"settee/pkg/couch"
	"settee/pkg/jsontext"
	"settee/replicator"
)

// errSecurity is the cause of the error for a `_security` object that a run may not read or write. It ends the run.
var errSecurity = errors.New("the security object cannot be copied")

// security is what a run knows about the `_security` object that it copies to the target.
type security struct {
	copies bool   // the replication asks for it
	one    step   // one goroutine at a time compares
	known  string // SecurityDigest of the object that source and target had; "" if not known. run.mu guards it.
}

// SecurityDigest returns a digest of a `_security` object, which is the same for all spellings of the object: jsontext.Digest. A settee
// has it in the answer to _dbs_info.
func SecurityDigest(object json.RawMessage) string { return jsontext.Digest(object) }

// copySecurity copies the `_security` object of the source to the target if the two differ. It is called at the start of a
// run, before any document is copied: a user who may not read the source must not read its documents at the target.
//
// A run that goes on from where its job was parked need not ask. Its job knows the object that both had, and followSecurity
// finds a change at the latest before the job is parked again.
func (r *run) copySecurity(ctx context.Context) error {
	if !r.security.copies || r.resumed && r.securityKnown() != "" {
		return nil
	}
	leave, err := r.security.one.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	source, target, err := r.readSecurity(ctx)
	if err != nil {
		return err
	}
	return r.giveSecurity(ctx, source, target)
}

// readSecurity reads the `_security` objects of both databases.
func (r *run) readSecurity(ctx context.Context) (source, target json.RawMessage, err error) {
	err = r.onBoth(ctx, func(ctx context.Context, p *peer) (err error) {
		into := &source
		if p == r.target {
			into = &target
		}
		*into, err = p.security(ctx)
		return err
	})
	return source, target, err
}

// followSecurity copies the `_security` object if it has changed at the source. It makes one request if not.
func (r *run) followSecurity(ctx context.Context) error {
	if !r.security.copies {
		return nil
	}
	leave, err := r.security.one.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	source, err := r.source.security(ctx)
	if err != nil || source == nil || SecurityDigest(source) == r.securityKnown() {
		return err
	}
	target, err := r.target.security(ctx)
	if err != nil {
		return err
	}
	return r.giveSecurity(ctx, source, target)
}

// giveSecurity writes the object of the source to the target, unless the target has it. A nil source has none.
func (r *run) giveSecurity(ctx context.Context, source, target json.RawMessage) error {
	if source == nil {
		return nil
	}
	digest := SecurityDigest(source)
	if target == nil || SecurityDigest(target) != digest {
		if err := r.target.putSecurity(ctx, source); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.security.known != digest {
		r.security.known = digest
		r.tellSoon()
	}
	return nil
}

func (r *run) securityKnown() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.security.known
}

// keepSecurity follows the `_security` object while a run does not park. An error that may pass is left to the next time.
func (c *copying) keepSecurity(again func(time.Duration)) {
	ctx := context.WithValue(c.ctx, aside{}, true)
	if err := c.r.followSecurity(ctx); errors.Is(err, errSecurity) {
		c.fail(err)
	}
	again(atWhole(c.r.securityInterval))
}

// security reads the `_security` object, nil if the server has none for its databases.
func (p *peer) security(ctx context.Context) (json.RawMessage, error) {
	object, err := p.db.Security(ctx)
	e, answered := errors.AsType[*couch.Error](err)
	switch {
	case err == nil:
		return object, nil
	case !answered || errors.Is(err, couch.ErrNoDatabase) || errors.Is(err, couch.ErrSession):
	case errors.Is(err, couch.ErrUnauthorized), errors.Is(err, couch.ErrForbidden):
		return nil, p.noSecurity(replicator.RequestReadSecurity, err)
	case e.Status == http.StatusNotFound, e.Status == http.StatusMethodNotAllowed, e.Status == http.StatusNotImplemented:
		return nil, nil
	}
	return nil, p.failed(replicator.RequestReadSecurity, err)
}

func (p *peer) putSecurity(ctx context.Context, object json.RawMessage) error {
	err := p.db.PutSecurity(ctx, object)
	e, answered := errors.AsType[*couch.Error](err)
	if err == nil || !answered || errors.Is(err, couch.ErrNoDatabase) || errors.Is(err, couch.ErrSession) || e.Temporary() {
		return p.failed(replicator.RequestWriteSecurity, err)
	}
	return p.noSecurity(replicator.RequestWriteSecurity, err)
}

// noSecurity returns the error for a server that refuses the `_security` object to the user.
func (p *peer) noSecurity(request replicator.RequestCode, err error) error {
	f := p.fault(request, err)
	f.Code, f.Request = replicator.FaultSecurity, request
	return newError(f, errors.Join(errSecurity, err))
}

// SecurityChanged reports whether the `_security` object of the source of a replication is another one than the one that has
// a digest, see [SecurityDigest]. It makes one request, which it does not repeat, like [Changed]. Errors are *Error.
func SecurityChanged(ctx context.Context, r *replicator.Replication, digest string, cfg Config) (bool, error) {
	changed := false
	err := ask(r, cfg, func(source *peer) error {
		object, err := source.security(ctx)
		changed = object != nil && SecurityDigest(object) != digest
		return err
	})
	return changed, err
}

// SecurityEvery is the time within which the `_security` objects of the databases of mirrors are compared, unless
// [replicator] max_idle_sec is shorter, or the requests for that would be too many.
const SecurityEvery = 5 * time.Minute

// SameSecurity reports whether the two databases of a replication have equal `_security` objects. A server that has none for
// its databases counts as equal. Errors are *Error.
func SameSecurity(ctx context.Context, rep *replicator.Replication, cfg Config) (bool, error) {
	r, err := newRun(&Job{Replication: rep}, &cfg, nil)
	if err != nil {
		return false, verdict(err)
	}
	defer r.source.db.Close()
	defer r.target.db.Close()
	source, target, err := r.readSecurity(ctx)
	if err != nil {
		return false, verdict(err)
	}
	return source == nil || target == nil || SecurityDigest(source) == SecurityDigest(target), nil
}
