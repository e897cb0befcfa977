package mirror

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"settee/pkg/couch"
	"settee/replicator"
	"settee/replicator/jobs"
	"settee/replicator/worker"
)

const (
	// instancesAtOnce is the number of databases whose instance_start_time one look at the target compares. The next look goes
	// on after them.
	instancesAtOnce = 1_000
	// confirmed is the number of databases missing in the target's list that a look asks for, each by itself, before it believes
	// the list.
	confirmed = 20
)

// lookAtTarget compares the target with what the mirror has copied there, if it is time for that: each database that counts as
// up to date has to be in the list of the target, and to be the one that it was. The jobs of the others copy them again. At its end it
// records how far the target is behind.
func (m *mirror) lookAtTarget(ctx context.Context) error {
	now := time.Now()
	if !m.r.Continuous || now.Before(m.targetAt) {
		return nil
	}
	m.targetAt = now.Add(listEvery)
	l := &targetLook{mirror: m, before: m.progress.Target, list: &list{server: m.target}}
	if l.before.Last.IsZero() {
		l.before.Last = now
	}
	err := l.compare(ctx)
	failed, is := errors.AsType[*targetError](err)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && !is:
		return err
	case err != nil:
		err = m.cannotLook(ctx, failed.err, now)
	default:
		err = l.recordLook(ctx, now)
	}
	if err != nil {
		return err
	}
	return m.Run.RecordLag(ctx)
}

// targetError is an error of a request to the target, and not of the store.
type targetError struct{ err error }

func (e *targetError) Error() string { return e.err.Error() }

// cannotLook records why the target cannot be compared. The run goes on: the jobs of the databases report what they need.
func (m *mirror) cannotLook(ctx context.Context, err error, now time.Time) error {
	err = m.Run.Redact(err)
	text, refused := "the target cannot be compared: "+err.Error(), false
	wrong := errors.Is(err, couch.ErrUnauthorized) || errors.Is(err, couch.ErrForbidden) || errors.Is(err, couch.ErrNotFound)
	if wrong && !errors.Is(err, couch.ErrToken) {
		refused = true
		text = fmt.Sprintf("the target does not let %s list its databases. What it loses is noticed by the next run of each database, within a day: %s",
			userOf(m.r.Target), err)
	}
	return m.writeProgress(ctx, func(p *replicator.MirrorProgress) {
		if p.Target.Error == "" {
			p.Target.ErrorSince = now
		}
		p.Target.Error, p.Target.Refused = text, refused
	})
}

// targetLook is a look at the target.
type targetLook struct {
	*mirror
	before  replicator.MirrorTargetLook
	server  string // MirrorTargetLook.Server
	rebuilt bool
	list    *list
	asked   int // databases that were missing in the list, and were asked for
	infos   int // databases whose instance was compared
	lost    int64
	example string // one that was lost
}

// compare compares all databases that the mirror knows, a page at a time.
func (l *targetLook) compare(ctx context.Context) (err error) {
	if l.server, err = l.target.Identity(ctx); err != nil {
		return &targetError{err}
	}
	l.rebuilt = l.before.Server != "" && l.server != "" && l.server != l.before.Server
	for after := ""; ; {
		known, err := l.Run.Databases(ctx, after, knownAtOnce)
		if err != nil {
			return err
		}
		if err := l.comparePage(ctx, known); err != nil {
			return err
		}
		if len(known) < knownAtOnce {
			if l.infos < instancesAtOnce {
				l.instancesFrom = "" // the next look starts again
			}
			return nil
		}
		after = known[len(known)-1].Database
	}
}

// comparePage compares a page of the databases that the mirror knows.
func (l *targetLook) comparePage(ctx context.Context, known []jobs.MirroredDatabase) error {
	var lost []string
	var there []jobs.MirroredDatabase
	for _, d := range known {
		if d.State != replicator.MirroredCurrent {
			continue
		}
		exists, err := l.exists(ctx, l.r.Mirror.TargetName(d.Database))
		switch {
		case err != nil:
			return err
		case !exists:
			lost = append(lost, d.Database)
		default:
			there = append(there, d)
		}
	}
	replaced, err := l.replaced(ctx, there)
	if err != nil {
		return err
	}
	since := l.before.Last
	lost, err = l.Run.LostDatabases(ctx, append(lost, replaced...), since)
	if len(lost) > 0 {
		l.lost += int64(len(lost))
		l.example = lost[0]
	}
	return err
}

// exists reports whether the target has a database. The names of the calls ascend.
func (l *targetLook) exists(ctx context.Context, name string) (bool, error) {
	listed, err := l.list.has(ctx, name)
	if err != nil || listed || l.asked >= confirmed {
		return listed, err
	}
	l.asked++
	exists, err := l.target.Exists(ctx, name)
	if errors.Is(err, couch.ErrUnauthorized) || errors.Is(err, couch.ErrForbidden) {
		return true, nil // it is there, and its job reports that
	}
	if err != nil {
		return false, &targetError{err}
	}
	return exists, nil
}

// replaced returns those of some databases that were recreated at the target since their jobs copied everything. It compares
// as many as this look still may.
func (l *targetLook) replaced(ctx context.Context, known []jobs.MirroredDatabase) (replaced []string, err error) {
	for len(known) > 0 && l.infos < instancesAtOnce {
		part := known[:min(len(known), couch.MaxDatabasesInfo)]
		known = known[len(part):]
		names, of := []string(nil), map[string]jobs.MirroredDatabase{}
		for _, d := range part {
			if d.Instance != "" && d.Database > l.instancesFrom {
				name := l.r.Mirror.TargetName(d.Database)
				names, of[name] = append(names, name), d
			}
		}
		if len(names) == 0 {
			continue
		}
		infos, err := l.target.DatabasesInfo(ctx, names)
		if lacksInfos(err) {
			return replaced, nil
		}
		if err != nil {
			return nil, &targetError{err}
		}
		for _, info := range infos {
			d, instance := of[info.Name], worker.Created(info.InstanceStartTime)
			if !info.Missing && instance != "" && instance != d.Instance {
				replaced = append(replaced, d.Database)
			}
		}
		if err := l.copySecurity(ctx, infos, of); err != nil {
			return nil, err
		}
		l.infos += len(names)
		l.instancesFrom = of[names[len(names)-1]].Database
	}
	return replaced, nil
}

// copySecurity makes the jobs of databases copy `_security` again whose objects differ at the two ends, by the digests that both servers tell
// with the infos. Servers without digests are not asked: of is the databases by their names at the target.
func (l *targetLook) copySecurity(ctx context.Context, targets []couch.DatabaseInfo, of map[string]jobs.MirroredDatabase) error {
	var names []string
	has := map[string]string{} // by name at the source
	for _, info := range targets {
		if name := of[info.Name].Database; info.SecurityDigest != "" {
			names, has[name] = append(names, name), info.SecurityDigest
		}
	}
	if len(names) == 0 || !l.r.Mirror.Security {
		return nil
	}
	sources, err := l.source.DatabasesInfo(ctx, names)
	if err != nil {
		return context.Cause(ctx) // the look at the source reports it, and the watch compares as well
	}
	return l.Run.SecureDatabases(ctx, l.differing(sources, has))
}

// differing returns the databases whose digests differ from those that their targets have, except those for which it was said before:
// their jobs have tried.
func (m *mirror) differing(sources []couch.DatabaseInfo, has map[string]string) (names []string) {
	for _, info := range sources {
		is := [2]string{info.SecurityDigest, has[info.Name]}
		switch {
		case is[0] == "" || is[0] == is[1]:
			delete(m.secured, info.Name)
		case m.secured[info.Name] != is:
			m.secured[info.Name] = is
			names = append(names, info.Name)
		}
	}
	return names
}

// lacksInfos reports whether a server does not have _dbs_info, or not for this user.
func lacksInfos(err error) bool {
	e, ok := errors.AsType[*couch.Error](err)
	return ok && !e.Temporary() && e.Status >= http.StatusBadRequest && e.Status < http.StatusInternalServerError
}

// recordLook records a look that came to its end. What was lost is reported until everything is there again.
func (l *targetLook) recordLook(ctx context.Context, now time.Time) error {
	next := replicator.MirrorTargetLook{Server: l.server, Last: now, Lost: l.before.Lost}
	if next.Server == "" {
		next.Server = l.before.Server
	}
	switch {
	case l.lost > 0 || l.rebuilt:
		loss := replicator.MirrorLoss{At: now}
		if l.before.Lost != nil {
			loss = *l.before.Lost
		}
		loss.Databases += l.lost
		loss.Rebuilt = loss.Rebuilt || l.rebuilt
		if l.example != "" {
			loss.Database = l.example
		}
		next.Lost = &loss
		l.Log.Warn().Int64("databases", l.lost).Bool("rebuilt", l.rebuilt).Msg("the target of a mirror has lost databases, which are copied again")
	case next.Lost != nil:
		summary, err := l.Run.Summary(ctx)
		if err != nil {
			return err
		}
		if summary.Behind.IsZero() || summary.Behind.After(next.Lost.At) {
			next.Lost = nil
		}
	}
	return l.writeProgress(ctx, func(p *replicator.MirrorProgress) { p.Target = next })
}

// list reads the databases of a server in the order of their names, a page at a time.
type list struct {
	server *couch.Server
	names  []string
	after  string
	last   bool
}

// has reports whether the list has a name. The names of the calls ascend.
func (l *list) has(ctx context.Context, name string) (bool, error) {
	for {
		for len(l.names) > 0 && l.names[0] < name {
			l.names = l.names[1:]
		}
		if len(l.names) > 0 || l.last {
			return len(l.names) > 0 && l.names[0] == name, nil
		}
		page, err := l.server.Databases(ctx, l.after)
		if err != nil {
			return false, &targetError{err}
		}
		l.names, l.last = page.Names, page.Last
		if len(page.Names) > 0 {
			l.after = page.Names[len(page.Names)-1]
		}
	}
}
