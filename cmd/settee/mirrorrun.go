package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"settee/pkg/couch"
	"settee/replicator"
	"settee/replicator/worker"
)

const (
	// maxListed is the most databases that a server may list.
	maxListed = 1_000_000
	// maxShownName is the number of bytes that are shown of the name of a database that is left out.
	maxShownName = 100
	// shownFailures is the number of databases that failed, or differ, which are printed by name.
	shownFailures = 20
	// hopeless is the number of databases of which each has failed, so that the others are not tried.
	hopeless = 100
)

var (
	// errNoDatabases is the error of a mirror that would do nothing.
	errNoDatabases = errors.New("the source has no database that --include and --exclude select")
	// errHopeless ends the work on the databases.
	errHopeless = errors.New("no more databases are tried")
)

// mirrorRun copies or compares the databases of a mirror in the foreground, several at a time.
type mirrorRun struct {
	foreground
	source, target *couch.Server
	same           bool // the source is the target
	display        *display

	// progress says what was done with the databases.
	progress func() string

	mu       sync.Mutex // guards what follows, and what progress reads
	outcomes outcomes
	failures shortList
}

// outcomes are the numbers of the databases of a mirror, and of those with each outcome.
type outcomes struct {
	selected  int // at the source, by the patterns
	succeeded int // were copied, or are equal
	different int // including those that the target lacks
	failed    int
	vanished  int // deleted at the source meanwhile
}

// done returns the number of databases with an outcome.
func (o *outcomes) done() int { return o.succeeded + o.different + o.failed + o.vanished }

// left returns the number of databases without one.
func (o *outcomes) left() int { return o.selected - o.done() }

// openMirror opens the servers of a mirror. The caller calls close.
func (f *foreground) openMirror() (*mirrorRun, error) {
	m := &mirrorRun{foreground: *f, display: f.newDisplay()}
	m.settings.ReportInterval, m.settings.Refused, m.settings.Shared = m.display.every, nil, &worker.Shared{}
	ends := f.replication
	var err error
	if m.source, err = worker.OpenServer(ends.Source, ends.Source.URL, m.settings); err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	if m.target, err = worker.OpenServer(ends.Target, ends.Target.URL, m.settings); err != nil {
		m.source.Close()
		return nil, fmt.Errorf("target: %w", err)
	}
	m.same, err = m.sameServer()
	switch {
	case err == nil:
		return m, nil
	case m.stop.Err() != nil:
		err = stopped(m.stop, errors.New("stopped before the first database"))
	}
	m.close()
	return nil, err
}

func (m *mirrorRun) close() {
	m.source.Close()
	m.target.Close()
}

// sameServer reports whether the two servers are one, by what they say and not by the spelling of their URLs. That needs a prefix.
func (m *mirrorRun) sameServer() (bool, error) {
	if m.replication.SameServer() {
		return true, nil
	}
	source, err := m.source.Identity(m.stop)
	if err != nil {
		return false, fmt.Errorf("source: %w", err)
	}
	target, err := m.target.Identity(m.stop)
	if err != nil {
		return false, fmt.Errorf("target: %w", err)
	}
	same := source != "" && source == target
	if same && m.replication.Mirror.Prefix == "" {
		return false, errors.New("--prefix is missing: the source of the mirror is its target, both URLs lead to servers with one uuid")
	}
	return same, nil
}

// databasesOf returns the names of a server's databases for which wanted returns true, in order.
func (m *mirrorRun) databasesOf(side string, server *couch.Server, wanted func(string) bool) (names []string, err error) {
	for listed, after := 0, ""; ; {
		page, err := server.Databases(m.stop, after)
		switch {
		case m.stop.Err() != nil:
			return nil, worker.ErrStopped
		case errors.Is(err, couch.ErrUnauthorized), errors.Is(err, couch.ErrForbidden):
			return nil, fmt.Errorf("%s: the user may not list the databases of the server (CouchDB needs an administrator for that): %w", side, err)
		case err != nil:
			return nil, fmt.Errorf("%s: listing the databases of the server: %w", side, err)
		}
		if listed += len(page.Names); listed > maxListed {
			return nil, fmt.Errorf("%s: the server lists more than %d databases", side, maxListed)
		}
		for _, name := range page.Names {
			if wanted(name) {
				names = append(names, name)
			}
		}
		if page.Last {
			return names, nil
		}
		after = page.Names[len(page.Names)-1]
	}
}

// sources returns the names of the databases of the source that are copied or compared, in order. seen is called with the name of each
// database. Those that cannot be mirrored fail.
func (m *mirrorRun) sources(seen func(name string)) ([]string, error) {
	names, err := m.databasesOf("source", m.source, func(name string) bool {
		seen(name)
		return m.replication.Mirror.SelectsAt(name, m.same)
	})
	switch m.outcomes.selected = len(names); {
	case err != nil:
		return nil, err
	case len(names) == 0:
		return nil, errNoDatabases
	}
	return slices.DeleteFunc(names, func(name string) bool {
		why := replicator.Unmirrorable(name)
		if why != "" {
			m.fail(failureObject{name[:min(len(name), maxShownName)], "mirror_refused", why})
		}
		return why != ""
	}), nil
}

// each calls do for each name, for several at a time, until the command is asked to stop or the first databases have all failed. do
// reports whether there is a difference.
func (m *mirrorRun) each(names []string, do func(name string) (different bool, err error)) {
	doing, ctx := errgroup.WithContext(m.stop)
	doing.SetLimit(m.atATime)
	for _, name := range names {
		doing.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			different, err := do(name)
			return m.end(name, different, err)
		})
		if ctx.Err() != nil {
			break
		}
	}
	_ = doing.Wait() // an error is the end, and says nothing else
}

// end counts a database. It returns errHopeless if the others are not to be tried.
func (m *mirrorRun) end(name string, different bool, err error) error {
	vanished := m.vanished(name, err)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case errors.Is(err, worker.ErrStopped):
	case vanished:
		m.outcomes.vanished++
	case err != nil:
		m.fail(newFailure(name, err))
	case different:
		m.outcomes.different++
	default:
		m.outcomes.succeeded++
	}
	_ = m.draw()
	if m.outcomes.failed >= hopeless && m.outcomes.failed == m.outcomes.done() {
		return errHopeless
	}
	return nil
}

// vanished reports whether a database of the source has been deleted since it was listed.
func (m *mirrorRun) vanished(name string, err error) bool {
	if !errors.Is(err, couch.ErrNoDatabase) {
		return false
	}
	exists, err := m.source.Exists(m.cmd.Context(), name)
	return err == nil && !exists
}

// fail counts a database that could not be copied or compared. The caller holds mu, or is alone.
func (m *mirrorRun) fail(failure failureObject) {
	m.outcomes.failed++
	m.found(&m.failures, failure, failure.line())
}

// found prints an object as JSON, or keeps its line for the end. The caller holds mu, or is alone.
func (m *mirrorRun) found(in *shortList, object any, line string) {
	if in.add(line); m.display.json {
		_ = m.display.say(object, "")
	}
}

// draw shows the progress. The caller holds mu.
func (m *mirrorRun) draw() error {
	o, left := &m.outcomes, int64(m.outcomes.left())
	text := fmt.Sprintf("%d of %s, ", o.done(), databases(o.selected))
	if o.different > 0 {
		text += fmt.Sprintf("%d different, ", o.different)
	}
	if o.failed > 0 {
		text += fmt.Sprintf("%d failed, ", o.failed)
	}
	return m.display.draw(text+m.progress(), &left)
}

// ended returns why not everything was done, and "stopped" or "failed". failed is why the databases could not be listed. Otherwise again
// is the text if the command was stopped, and undone says what could not be done with databases.
func (m *mirrorRun) ended(failed error, again, undone string) (outcome string, err error) {
	switch o := &m.outcomes; {
	case m.stop.Err() != nil:
		return "stopped", stopped(m.stop, errors.New(again))
	case failed != nil:
		return "failed", failed
	case o.left() > 0:
		return "failed", fmt.Errorf("each of the first %s failed, and the others were not tried", databases(o.failed))
	case o.failed > 0:
		return "failed", fmt.Errorf("%s could not be %s", databases(o.failed), undone)
	}
	return "", nil
}

// shortList keeps the first lines of a list that may be long.
type shortList struct {
	lines []string
	count int
}

func (l *shortList) add(line string) {
	if l.count++; len(l.lines) < shownFailures {
		l.lines = append(l.lines, line)
	}
}

// text returns the lines, and how many more there are. what names them.
func (l *shortList) text(what string) string {
	slices.Sort(l.lines)
	text := ""
	for _, line := range l.lines {
		text += line + "\n"
	}
	if more := l.count - len(l.lines); more > 0 {
		text += fmt.Sprintf("%d more %s; --json lists them all\n", more, what)
	}
	return text
}

// failureObject is the JSON form of a database that could not be copied or compared.
type failureObject struct {
	Database string `json:"database"`
	Error    string `json:"error"`
	Reason   string `json:"reason"`
}

func newFailure(name string, err error) failureObject {
	failure, ok := errors.AsType[*worker.Error](err)
	if !ok {
		failure = &worker.Error{Code: "error", Reason: err.Error()}
	}
	return failureObject{name, failure.Code, failure.Reason}
}

func (f failureObject) line() string {
	if f.Error == "error" {
		return fmt.Sprintf("failed: %q: %s", f.Database, f.Reason)
	}
	return fmt.Sprintf("failed: %q: %s: %s", f.Database, f.Error, f.Reason)
}

// databases returns "1 database" or "2 databases".
func databases(n int) string {
	if n == 1 {
		return "1 database"
	}
	return fmt.Sprintf("%d databases", n)
}
