package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"settee/pkg/config"
	"settee/pkg/couch"
	"settee/pkg/route"
	"settee/replicator"
	"settee/replicator/jobs"
	"settee/replicator/worker"
)

// credentials are those with which a watch reads a feed.
type credentials struct {
	endpoint replicator.Endpoint // without a URL
	jobID    string              // the job whose source has them; "" if they are settings
}

// withoutURL returns what of an endpoint decides how requests are made to its server.
func withoutURL(e replicator.Endpoint) replicator.Endpoint {
	return replicator.Endpoint{Username: e.Username, Password: e.Password, Auth: e.Auth, Headers: e.Headers, Proxy: e.Proxy}
}

func sameEndpoint(a, b replicator.Endpoint) bool {
	return a.Username == b.Username && a.Password == b.Password && a.Proxy == b.Proxy && slices.Equal(a.Headers, b.Headers) &&
		a.Auth.Equal(b.Auth)
}

// configuredLogin returns the credentials that the settings have for the watch's server.
func (w *watch) configuredLogin() (credentials, bool) { return w.configuredLoginFor(w.server) }

// configuredLoginFor returns the credentials that the settings have for a server, by the key of who answers. They are not sent where a
// job's proxy or headers decide which machine answers.
func (w *watch) configuredLoginFor(key string) (credentials, bool) {
	server, plain := route.Server(key)
	if !plain {
		return credentials{}, false
	}
	login, ok := w.settings().WatchLogin(server)
	return credentials{endpoint: replicator.Endpoint{Username: login.Username, Password: login.Password}}, ok
}

// newLogin reports whether the settings have another login for the server than when the watch last looked for a feed.
func (w *watch) newLogin() bool {
	c, _ := w.configuredLogin()
	return !sameEndpoint(c.endpoint, w.login)
}

// job returns a job, or nil if it does not exist or this node does not have the key of its definition.
func (w *watch) job(ctx context.Context, id string) (*jobs.Job, error) {
	job, err := w.watcher.opts.Jobs.Lists.Get(ctx, id)
	if errors.Is(err, jobs.ErrNotFound) || err == nil && job.Sealed {
		return nil, nil
	}
	return job, err
}

// jobCredentials returns the credentials of a job's source. ok is false if there is no such job any more, it has ended, or another
// machine answers for its source.
func (w *watch) jobCredentials(ctx context.Context, id string) (c credentials, ok bool, err error) {
	job, err := w.job(ctx, id)
	if job == nil || err != nil {
		return c, false, err
	}
	r := job.Args.Replication
	server, _, ok := r.Source.Route()
	if job.IsMirror() {
		server, ok = r.MirrorServer(), true
	}
	if !ok || server != w.server || job.Condition().Terminal() || !w.allowed(r) {
		return c, false, nil
	}
	return credentials{endpoint: withoutURL(r.Source), jobID: id}, true, nil
}

// allowed reports whether the current settings allow the replication.
func (w *watch) allowed(r *replicator.Replication) bool {
	cfg := w.settings()
	return r.Check(replicator.ParseOptions{
		EndpointProtocols: config.ValidEndpointProtocols.Get(cfg), ProxyProtocols: config.ValidProxyProtocols.Get(cfg),
	}) == nil
}

// stillGood reports whether credentials are still in the settings or in their job.
func (w *watch) stillGood(ctx context.Context, c credentials) (bool, error) {
	if c.jobID == "" {
		set, ok := w.configuredLogin()
		return ok && sameEndpoint(set.endpoint, c.endpoint), nil
	}
	now, ok, err := w.jobCredentials(ctx, c.jobID)
	return ok && sameEndpoint(now.endpoint, c.endpoint), err
}

// feed is an open feed.
type feed struct {
	*couch.Updates
	server *couch.Server
	using  credentials
	opened int64              // Heard at the beginning
	cancel context.CancelFunc // ends a waiting Next
}

// alive reports whether the feed has brought anything.
func (f *feed) alive() bool { return f.Heard().UnixNano() != f.opened }

// close closes the feed. Next must not be called meanwhile.
func (f *feed) close() {
	f.cancel()
	_ = f.Updates.Close()
	f.server.Close()
}

// open opens a feed with the first credentials that are enough. Without a feed it returns why there is none: what the
// server must have or allow. That is nil if the server has no parked jobs and no mirrors. It returns an error if the
// server does not answer as it should.
func (w *watch) open(ctx context.Context) (f *feed, why, err error) {
	found, reason, err := w.search.tryLikely(ctx)
	switch {
	case found != nil:
		f, err = w.openFeed(ctx, found)
		if errors.Is(err, couch.ErrNoUpdates) {
			return nil, err, nil
		}
		return f, nil, err
	case err != nil || ctx.Err() != nil:
		return nil, nil, cmp.Or(ctx.Err(), err)
	}
	if needed, err := w.needed(ctx); err == nil && !needed {
		return nil, nil, nil
	}
	return nil, cmp.Or(reason, errNoLogin), nil
}

// errNoLogin is why there is no feed if no login was refused.
var errNoLogin = errors.New("no job has credentials for its _db_updates")

// noFeedOf returns the code of a reason why there is no feed. silence is the time since the server has not answered: a
// reason from before it does not count when the silence makes questions late.
func noFeedOf(why error, silence time.Duration) replicator.FaultCode {
	switch {
	case silence > askLast:
		return replicator.FaultFeedFails
	case isRefusal(why), errors.Is(why, errNoLogin):
		return replicator.FaultFeedRefused
	case errors.Is(why, couch.ErrNoUpdates):
		return replicator.FaultFeedMissing
	}
	return replicator.FaultFeedFails
}

// openServer returns a server, by the key of who answers, for requests with an endpoint's credentials, headers and proxy.
func (w *watch) openServer(key string, e replicator.Endpoint) (*couch.Server, error) {
	cfg := w.watcher.opts.Worker()
	cfg.RetriesPerRequest = min(cfg.RetriesPerRequest, maxRetries)
	e.URL, _ = route.Server(key)
	server, err := worker.OpenServer(e, e.URL, cfg)
	if err != nil {
		return nil, fmt.Errorf("opening the server: %w", err)
	}
	return server, nil
}

// openFeed opens a feed. If it does not go on where the last one ended, all databases are compared.
func (w *watch) openFeed(ctx context.Context, a *attempt) (*feed, error) {
	w.update(func(s *state) {
		if len(s.Seq) == 0 || s.Log != a.log.Identity || a.log.Lacks(s.Seq) {
			s.begin(a.log)
			w.fromStart = true
		}
	})
	ctx, cancel := context.WithCancel(ctx)
	updates, err := a.server.Updates(ctx, couch.UpdatesOptions{Since: w.currentState().Seq, Heartbeat: feedHeartbeat})
	if errors.Is(err, couch.ErrUnknownSince) {
		w.update(func(s *state) { s.begin(a.log) })
		w.fromStart = true
		updates, err = a.server.Updates(ctx, couch.UpdatesOptions{Since: a.log.LastSeq, Heartbeat: feedHeartbeat})
	}
	if err != nil {
		cancel()
		a.close()
		return nil, err
	}
	w.update(func(s *state) { s.JobID = a.using.jobID })
	return &feed{Updates: updates, server: a.server, using: a.using, opened: updates.Heard().UnixNano(), cancel: cancel}, nil
}

// begin begins with a log of updates at its end, and with a comparison of all databases.
func (s *state) begin(log couch.UpdatesLog) {
	s.Log, s.Seq = log.Identity, log.LastSeq
	s.Round = s.Round.restarted()
}
