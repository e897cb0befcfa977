package watch

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"settee/pkg/config"
	"settee/pkg/couch"
	"settee/pkg/retry"
	"settee/replicator"
	"settee/replicator/jobs"
	"settee/replicator/worker"
)

// A parked job counts as up to date, and no run would notice that its target was emptied. Therefore a watch looks at the targets
// of its jobs, too: in rounds over their rows, a page at a time, with one question to each server that has targets of a page. It
// wakes the jobs whose targets have lost what they had (replicator.ParkedTarget.Lost); their runs copy it again, or say what is
// missing. A server that does not answer, or refuses the question, has lost nothing as far as is known.
//
// The question, _dbs_info or else _all_dbs, needs a login that may ask it: of the settings, or of any job with a target on that
// server, see targetserver.go. That a database is missing is asked again with the login of its own job, because a server also
// says so of what it fails to open. Without such a login it is only known which server answers. If that is this settee, its store
// says which databases may have lost what they had, and each of them is asked for with the login of its job.

const (
	// targetsEvery is the time of a round, or targetsPause for each page if that is longer, but at most max_idle_sec. So a server
	// with many targets is asked for about 1,000 of them a minute.
	targetsEvery = 5 * time.Minute
	targetsPause = 6 * time.Second
	// targetTime is the longest time for the questions to one server.
	targetTime = 30 * time.Second
	// failedPause is how long a server is left alone that has not answered. Its targets have their turns in the next round.
	failedPause = time.Minute
	// targetServers is the number of servers that are asked at a time.
	targetServers = 4
	// confirmed is the number of targets of a page on one server that are asked for again one by one, before the server is
	// believed that the others are missing, too.
	confirmed = 20
	// listPages is the number of pages of a list of databases that are read for a page of targets.
	listPages = 20
)

// targetsTime returns the time of a round over a number of pages.
func targetsTime(pages int, maxIdle time.Duration) time.Duration {
	return min(max(targetsEvery, time.Duration(pages)*targetsPause), maxIdle)
}

// targets is what a watch knows of its rounds. One goroutine looks at one page at a time, and others at its servers.
type targets struct {
	*watch
	began  time.Time // the current round; zero: it began on another node
	before time.Time // the round before; zero: it began on another node
	mu     sync.Mutex
	failed map[string]time.Time // when a question to a server was last not answered, by route.Key
}

// keepTargets looks at the targets of the parked jobs until ctx ends.
func (w *watch) keepTargets(ctx context.Context) {
	t := &targets{watch: w, failed: map[string]time.Time{}}
	for ctx.Err() == nil {
		changed := w.watcher.changed() // before the settings are read, so that no change is missed
		every := targetsTime(w.currentState().Targets.Last, config.MaxIdle.Get(w.settings()))
		w.update(func(s *state) {
			if latest := time.Now().Add(s.Targets.pause(every)); s.Targets.Next.After(latest) {
				s.Targets.Next = latest // the settings, or the clock of another node, were others
			}
		})
		if wait := time.Until(w.currentState().Targets.Next); wait > 0 {
			_ = retry.WaitOr(ctx, wait, changed)
			continue
		}
		t.lookAtPage(ctx, every)
	}
}

// lookAtPage looks at the targets of the next page of rows.
func (t *targets) lookAtPage(ctx context.Context, every time.Duration) {
	began, place := time.Now(), t.currentState().Targets
	rows, err := t.watcher.opts.Jobs.Watches.ParkedOf(ctx, t.server, jobs.ParkedRow{Database: place.Database, JobID: place.JobID}, pageRows)
	if err != nil {
		t.storeFailed(ctx, err)
		return
	}
	t.seeMirrors(rows)
	if place.Pages == 0 {
		t.before, t.began = t.began, began
		maps.DeleteFunc(t.failed, func(_ string, at time.Time) bool { return at.Before(t.before.Add(-failedPause)) })
	}
	lost := t.lostOf(ctx, rows)
	t.wakeLost(ctx, lost)
	if ctx.Err() != nil {
		return
	}
	var last jobs.ParkedRow
	if len(rows) > 0 {
		last = rows[len(rows)-1]
	}
	place.Unthrottled = place.Unthrottled || len(lost) > 0 // others have lost theirs, too
	t.update(func(s *state) {
		s.Targets = place.after(last, len(rows) < pageRows, time.Now(), time.Since(began), every)
	})
}

// lostOf returns those of some rows whose targets have lost what they had.
func (t *targets) lostOf(ctx context.Context, rows []jobs.ParkedRow) (lost []jobs.ParkedRow) {
	of := map[string][]jobs.ParkedRow{}
	for _, row := range rows {
		server := row.Target.Server
		if server != "" && !row.Woken && time.Since(t.failed[server]) >= failedPause {
			of[server] = append(of[server], row)
		}
	}
	var asking sync.WaitGroup
	places := make(chan struct{}, targetServers)
	for server, some := range of {
		places <- struct{}{}
		asking.Go(func() {
			defer func() { <-places }()
			found, err := t.lostAt(ctx, server, some)
			t.mu.Lock()
			defer t.mu.Unlock()
			lost = append(lost, found...)
			if err != nil {
				t.failed[server] = time.Now()
				t.log.Debug().Err(err).Str("target", server).Msg("the targets of parked jobs cannot be compared")
			}
		})
	}
	asking.Wait()
	return lost
}

// lostAt is lostOf for rows whose targets are on one server. With an error it is not known of the others.
func (t *targets) lostAt(ctx context.Context, server string, rows []jobs.ParkedRow) (lost []jobs.ParkedRow, err error) {
	ctx, cancel := context.WithTimeout(ctx, targetTime)
	defer cancel()
	host := paceOf(t.held.Job().Owner, server)
	q := &targetQuestion{watch: t.watch, server: server, rows: rows, paces: t.watcher.acquirePaces(host)}
	defer t.watcher.releasePaces(host)
	states, err := q.askServer(ctx)
	if err != nil {
		return nil, err
	}
	asked, there := 0, false // one that was said to be missing
	for _, row := range rows {
		now := states[row.Target.Database]
		if !row.Target.Lost(now) {
			continue
		}
		job, err := t.job(ctx, row.JobID)
		if err != nil || job == nil {
			continue // the next round looks again, or upkeep removes the row
		}
		if q.hosted || now.Missing && (asked < confirmed || there) {
			asked++
			if !q.confirm(ctx, row, job, now.Identity) {
				there = true
				continue
			}
		}
		row.Lost = t.known(server, job)
		lost = append(lost, row)
	}
	return lost, ctx.Err()
}

// known returns when the target of a job on a server was last known to have everything.
func (t *targets) known(server string, job *jobs.Job) time.Time {
	parked := job.Parked()
	if parked.IsZero() { // its run is about to park it
		parked = time.Now()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, failed := t.failed[server]; !failed && parked.Before(t.before) {
		return t.before // it has looked at the target since then
	}
	return parked
}

// wakeLost makes the jobs of some rows due. It repeats that until it succeeds or ctx ends.
func (t *targets) wakeLost(ctx context.Context, lost []jobs.ParkedRow) {
	for ctx.Err() == nil && len(lost) > 0 {
		n, err := t.watcher.opts.Jobs.Watches.WakeLost(ctx, lost)
		t.watcher.counter.wakes[byTarget].Add(int64(n))
		if err == nil {
			t.log.Warn().Int("jobs", n).Str("target", lost[0].Target.Server).Str("database", lost[0].Target.Database).
				Msg("targets of parked jobs have lost what they had, and their jobs run again")
			return
		}
		t.storeFailed(ctx, err)
	}
}

// targetQuestion asks one server about the targets of some rows.
type targetQuestion struct {
	*watch
	server string // route.Key
	rows   []jobs.ParkedRow
	paces  *paces // of the watch's owner on the server's host
	hosted bool   // it was not asked about the databases, but this store, which is the server's as far as is known
}

// askServer returns what the server says of the databases, by name, to the first login that may ask about several. Each login may ask
// which server it is. If none may ask for more, only that is known, or what this store has if the databases are in it.
func (q *targetQuestion) askServer(ctx context.Context) (map[string]replicator.TargetNow, error) {
	known, names := q.watcher.targetServer(q.server), q.names()
	var states map[string]replicator.TargetNow
	identity := ""
	for c := range known.logins(ctx, q) {
		who, databases := known.mayAsk(c)
		if !who || !databases && identity != "" {
			continue
		}
		is, found, err := q.askAs(ctx, known, c, names, databases)
		if err != nil {
			return nil, err
		}
		identity = cmp.Or(is, identity)
		if states = found; states != nil {
			break
		}
	}
	if states == nil {
		if identity == "" {
			return nil, errNoTargetLogin
		}
		var err error
		if states, err = q.watcher.opts.Jobs.Watches.Hosted(ctx, identity, names); err != nil {
			return nil, err
		}
		q.hosted = len(states) > 0
	}
	if !known.isOne(identity) {
		identity = ""
	}
	for _, name := range names {
		now := states[name]
		now.Identity = identity
		states[name] = now
	}
	return states, nil
}

// askAs asks with a login which server it is, and about databases, if that is to be asked. states is nil if the server refuses it.
func (q *targetQuestion) askAs(ctx context.Context, known *targetServer, c credentials, names []string, databases bool) (identity string, states map[string]replicator.TargetNow, err error) {
	server, err := q.openServer(q.server, c.endpoint)
	if err != nil {
		return "", nil, err
	}
	defer server.Close()
	if !q.mayAsk(ctx) {
		return "", nil, context.Cause(ctx)
	}
	if identity, err = server.Identity(ctx); refusesLogin(err) {
		err = nil
	}
	if err != nil || !databases {
		return identity, nil, err
	}
	states, err = q.infos(ctx, server, names)
	if lacksInfos(err) {
		states, err = q.listed(ctx, server, names)
	}
	switch {
	case refusesLogin(err):
		known.refuses(c, identity != "")
		return identity, nil, nil
	case err == nil:
		known.answers(c)
	}
	return identity, states, err
}

// errNoTargetLogin is returned if the server lets no login ask anything.
var errNoTargetLogin = errors.New("no login may ask the server of the targets")

// names returns the names of the databases, in their order.
func (q *targetQuestion) names() []string {
	var names []string
	for _, row := range q.rows {
		names = append(names, row.Target.Database)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// mayAsk waits until the host may be asked, and reports whether ctx has not ended.
func (q *targetQuestion) mayAsk(ctx context.Context) bool {
	return q.paces.questions.awaitTurn(ctx, config.MaxQuestions.Get(q.settings()))
}

// infos reads the descriptions of databases.
func (q *targetQuestion) infos(ctx context.Context, server *couch.Server, names []string) (map[string]replicator.TargetNow, error) {
	if !q.mayAsk(ctx) {
		return nil, context.Cause(ctx)
	}
	infos, err := server.DatabasesInfo(ctx, names)
	if err != nil {
		return nil, err
	}
	states := map[string]replicator.TargetNow{}
	for _, info := range infos {
		states[info.Name] = replicator.TargetNow{Missing: info.Missing, Instance: worker.Created(info.InstanceStartTime)}
	}
	return states, nil
}

// listed reads the list of databases as far as it has the names, which ascend, and at most listPages of it.
func (q *targetQuestion) listed(ctx context.Context, server *couch.Server, names []string) (map[string]replicator.TargetNow, error) {
	states := map[string]replicator.TargetNow{}
	_, size := utf8.DecodeLastRuneInString(names[0])
	after := names[0][:len(names[0])-size] // comes before it
	for range listPages {
		if !q.mayAsk(ctx) {
			return nil, context.Cause(ctx)
		}
		page, err := server.Databases(ctx, after)
		if err != nil {
			return nil, err
		}
		if len(page.Names) > 0 {
			after = page.Names[len(page.Names)-1]
		}
		for len(names) > 0 && (page.Last || names[0] <= after) {
			_, is := slices.BinarySearch(page.Names, names[0])
			states[names[0]] = replicator.TargetNow{Missing: !is}
			names = names[1:]
		}
		if len(names) == 0 {
			break
		}
	}
	return states, nil
}

// confirm reports whether the server, which has an identity, says to a job's own login, too, that its target has lost what it had.
func (q *targetQuestion) confirm(ctx context.Context, row jobs.ParkedRow, job *jobs.Job, identity string) bool {
	if !q.allowed(job.Args.Replication) || !q.mayAsk(ctx) {
		return false
	}
	now, err := worker.TargetNow(ctx, job.Args.Replication, q.watcher.opts.Worker())
	now.Identity = identity
	return err == nil && row.Target.Lost(now)
}

// refusesLogin reports whether a server has refused a request to a login.
func refusesLogin(err error) bool {
	return errors.Is(err, couch.ErrUnauthorized) || errors.Is(err, couch.ErrForbidden)
}

// lacksInfos reports whether a server does not have _dbs_info. It has it if it refuses it to a user.
func lacksInfos(err error) bool {
	e, ok := errors.AsType[*couch.Error](err)
	if !ok || e.Temporary() || refusesLogin(err) {
		return false
	}
	return e.Status >= http.StatusBadRequest && e.Status < http.StatusInternalServerError || e.Status == http.StatusNotImplemented
}

// targetCredentials returns the credentials of a job's target. ok is false if there is no such job any more, it has ended, or another
// machine answers for its target.
func (w *watch) targetCredentials(ctx context.Context, server, id string) (c credentials, ok bool, err error) {
	job, err := w.job(ctx, id)
	if job == nil || err != nil {
		return c, false, err
	}
	r := job.Args.Replication
	is, _, ok := r.Target.Route()
	if !ok || is != server || job.Condition().Terminal() || !w.allowed(r) {
		return c, false, nil
	}
	return credentials{endpoint: withoutURL(r.Target), jobID: id}, true, nil
}
