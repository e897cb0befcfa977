package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"settee/pkg/couch"
	"settee/replicator"
	"settee/replicator/worker"
)

const (
	// defaultDatabases and maxDatabases are the default and the maximum of --databases.
	defaultDatabases = 8
	maxDatabases     = 100
	// shownFailures is the number of databases that failed, or differ, which are printed by name.
	shownFailures = 20
	// maxListed is the most databases that a server may list.
	maxListed = 1_000_000
	// hopeless is the number of databases of which each has failed, so that the others are not tried.
	hopeless = 100
)

// mirrorFlags are the flags of replicate and verify for whole servers. Those of the field `mirror` of a document have the
// names of its members.
type mirrorFlags struct {
	mirror                  bool
	include, exclude        []string
	prefix                  string
	noSecurity, replicators bool
	adopt, chain            bool // of replicate
	databases               int
}

func (m *mirrorFlags) register(f *pflag.FlagSet, verb string) {
	f.BoolVar(&m.mirror, "mirror", false, verb+" all databases of a server; the URLs name the servers")
	f.StringArrayVar(&m.include, "include", nil, "with --mirror: only databases whose names match this pattern, in which * is any text; may be repeated")
	f.StringArrayVar(&m.exclude, "exclude", nil, "with --mirror: no databases whose names match this pattern; may be repeated")
	f.StringVar(&m.prefix, "prefix", "", "with --mirror: what the names of the target's databases begin with, before those of the source")
	f.BoolVar(&m.noSecurity, "no-security", false, "with --mirror: do not "+verb+" _security")
	f.BoolVar(&m.replicators, "replicators", false, "with --mirror: also "+verb+" replicator databases that --include names; "+
		"the target runs the replications in them, too")
	if verb == "copy" {
		f.BoolVar(&m.adopt, "adopt", false, "with --mirror: also copy into databases that are there and that no mirror has made of these sources; "+
			"their _security stays")
		f.BoolVar(&m.chain, "chain", false, "with --mirror: also copy databases that a mirror has made of others")
	}
	f.IntVar(&m.databases, "databases", defaultDatabases, fmt.Sprintf("with --mirror: the number of databases at a time, at most %d", maxDatabases))
}

// check returns an error that names a flag if the flags of a command exclude each other.
func (m *mirrorFlags) check(cmd *cobra.Command) error {
	f := cmd.Flags()
	if !m.mirror {
		for _, name := range []string{"include", "exclude", "prefix", "no-security", "replicators", "adopt", "chain", "databases"} {
			if f.Changed(name) {
				return fmt.Errorf("--%s needs --mirror", name)
			}
		}
		return nil
	}
	for _, name := range []string{"continuous", "create-target", "doc-id", "since-seq"} {
		if f.Changed(name) {
			return fmt.Errorf("--%s cannot be used with --mirror", name)
		}
	}
	for name, patterns := range map[string][]string{"include": m.include, "exclude": m.exclude} {
		if slices.Contains(patterns, "") {
			return fmt.Errorf("--%s must not be empty", name)
		}
	}
	if m.databases < 1 || m.databases > maxDatabases {
		return fmt.Errorf("--databases must be from 1 to %d", maxDatabases)
	}
	return nil
}

// add adds the field `mirror` to a body of POST /_replicate.
func (m *mirrorFlags) add(body map[string]any) {
	if !m.mirror {
		return
	}
	field := map[string]any{"security": !m.noSecurity}
	if m.include != nil {
		field["include"] = m.include
	}
	if m.exclude != nil {
		field["exclude"] = m.exclude
	}
	if m.prefix != "" {
		field["prefix"] = m.prefix
	}
	for name, on := range map[string]bool{"replicators": m.replicators, "adopt": m.adopt, "chain": m.chain} {
		if on {
			field[name] = true
		}
	}
	body["mirror"] = field
}

var mirrorMember = regexp.MustCompile("(?:parameter )?`mirror\\.(\\w+)`(?: true)?")

// nameFlags returns an error of the parser with the flags in the place of the members of `mirror`.
func nameFlags(err error) error {
	text := err.Error()
	if named := mirrorMember.ReplaceAllString(text, "--$1"); named != text {
		return errors.New(named)
	}
	return err
}

// errNoDatabases is the error of a mirror that would do nothing.
var errNoDatabases = errors.New("the source has no database that --include and --exclude select")

// mirrorServers are the two servers of a mirror in the foreground, and how its databases are worked on.
type mirrorServers struct {
	cmd            *cobra.Command
	mirror         *replicator.Replication
	settings       worker.Config
	source, target *couch.Server
	atATime        int
	stop           context.Context // ends when the command is asked to stop
	same           bool            // the source is the target
	display        *display
}

// openServers opens the servers of a mirror. The caller calls close.
func openServers(
	stop context.Context, cmd *cobra.Command, mirror *replicator.Replication, settings worker.Config, atATime int,
) (*mirrorServers, error) {
	if settings.Shared == nil {
		settings.Shared = &worker.Shared{}
	}
	s := &mirrorServers{cmd: cmd, mirror: mirror, settings: settings, atATime: atATime, stop: stop}
	s.display, s.settings.ReportInterval = newDisplay(cmd.ErrOrStderr())
	var err error
	if s.source, err = worker.OpenServer(mirror.Source, mirror.Source.URL, s.settings); err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	if s.target, err = worker.OpenServer(mirror.Target, mirror.Target.URL, s.settings); err != nil {
		s.source.Close()
		return nil, fmt.Errorf("target: %w", err)
	}
	if s.same, err = s.sameServer(stop); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// sameServer reports whether the two servers are one, by what they say and not by the spelling of their URLs. That needs a prefix.
func (s *mirrorServers) sameServer(ctx context.Context) (bool, error) {
	if s.mirror.SameServer() {
		return true, nil
	}
	source, err := s.source.Identity(ctx)
	if err != nil {
		return false, fmt.Errorf("source: %w", err)
	}
	target, err := s.target.Identity(ctx)
	if err != nil {
		return false, fmt.Errorf("target: %w", err)
	}
	same := source != "" && source == target
	if same && s.mirror.Mirror.Prefix == "" {
		return false, errors.New("--prefix is missing: the source of the mirror is its target, both URLs lead to servers with one uuid")
	}
	return same, nil
}

// selects reports whether a database of the source is copied.
func (s *mirrorServers) selects(database string) bool {
	return s.mirror.Mirror.SelectsAt(database, s.same)
}

func (s *mirrorServers) close() {
	s.source.Close()
	s.target.Close()
}

// names returns the names of a server's databases for which wanted returns true, in order.
func (s *mirrorServers) names(side string, server *couch.Server, wanted func(string) bool) (names []string, err error) {
	ctx, cancel := context.WithCancel(s.cmd.Context())
	defer cancel()
	defer context.AfterFunc(s.stop, cancel)()
	listed := 0
	for after := ""; ; {
		page, err := server.Databases(ctx, after)
		switch {
		case s.stop.Err() != nil:
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
			slices.Sort(names)
			return names, nil
		}
		after = page.Names[len(page.Names)-1]
	}
}

// mirrorable returns the names of databases that can be mirrored, and why the others are left out.
func mirrorable(names []string) (kept []string, left []failureObject) {
	for _, name := range names {
		if why := replicator.Unmirrorable(name); why != "" {
			left = append(left, failureObject{name[:min(len(name), maxShownName)], "mirror_refused", why})
		} else {
			kept = append(kept, name)
		}
	}
	return kept, left
}

// maxShownName is the number of bytes that are shown of the name of a database that is left out.
const maxShownName = 100

// errEnough ends each.
var errEnough = errors.New("no more databases are tried")

// each calls do for each name, for several at a time, until it returns false or the command is asked to stop.
func (s *mirrorServers) each(names []string, do func(name string) bool) {
	doing, ctx := errgroup.WithContext(s.stop)
	doing.SetLimit(s.atATime)
	for _, name := range names {
		doing.Go(func() error {
			if ctx.Err() == nil && !do(name) {
				return errEnough
			}
			return nil
		})
		if ctx.Err() != nil {
			break
		}
	}
	_ = doing.Wait() // errEnough, which is the end
}

// vanished reports whether a database of the source has been deleted since it was listed.
func (s *mirrorServers) vanished(name string, err error) bool {
	if !errors.Is(err, couch.ErrNoDatabase) {
		return false
	}
	exists, err := s.source.Exists(s.cmd.Context(), name)
	return err == nil && !exists
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

// perSecond returns a rate.
func perSecond(n int64, took time.Duration) float64 { return float64(n) / max(took.Seconds(), 0.001) }
