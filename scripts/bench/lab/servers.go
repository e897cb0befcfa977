package lab

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"settee/internal/servers"
)

// StartCouchDB starts the installed CouchDB (see package servers). Its replicator runs at most so many jobs. It ends with
// the run.
func (r *Run) StartCouchDB(ctx context.Context, maxJobs int) (*Server, error) {
	dir, err := os.MkdirTemp(r.Dir, "couchdb-")
	if err != nil {
		return nil, err
	}
	db, err := servers.StartCouchDB(ctx, servers.CouchDBOptions{Dir: dir, Settings: map[string]map[string]string{
		"replicator": {"max_jobs": strconv.Itoa(maxJobs)},
		"couchdb":    {"max_dbs_open": "10000"},
	}})
	if err != nil {
		return nil, err
	}
	r.AtEnd(db.Kill)
	root, err := url.Parse(db.Admin())
	if err != nil {
		return nil, err
	}
	s := newServer(root)
	s.pid = db.PID()
	r.AtEnd(s.CloseIdle)
	var about struct{ Version string }
	err = s.Ask(ctx, http.MethodGet, "", nil, &about)
	s.About = "CouchDB " + about.Version
	return s, err
}

// StartFoundationDB starts a FoundationDB of one process with the engine memory. Its Stop ends it, at the latest with the run.
func (r *Run) StartFoundationDB(ctx context.Context) (*servers.FoundationDB, error) {
	dir, err := os.MkdirTemp(r.Dir, "foundationdb-")
	if err != nil {
		return nil, err
	}
	cluster, err := servers.StartFoundationDB(ctx, servers.FoundationDBOptions{Dir: dir})
	if err == nil {
		r.AtEnd(cluster.Stop)
	}
	return cluster, err
}

// PostgreSQL of Debian's packages: the folder of its programs, and the user that runs it instead of root.
const (
	debianFolder = "/usr/lib/postgresql/*/bin"
	postgresUser = "postgres"
)

// postgresStop is how long PostgreSQL may take to end.
const postgresStop = 10 * time.Second

// Postgres is a PostgreSQL with a new cluster and with default settings, except that it listens only on a socket.
type Postgres struct {
	// URL is for clients.
	URL string

	process *servers.Process
}

// FindPostgres returns the folder of PostgreSQL's programs. The error wraps servers.ErrNotInstalled if there is none.
func FindPostgres() (string, error) {
	if initdb, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(initdb), nil
	}
	if folders, err := filepath.Glob(debianFolder); err == nil && len(folders) > 0 {
		return folders[len(folders)-1], nil
	}
	return "", fmt.Errorf("PostgreSQL: no initdb in PATH or %s (on Debian: apt-get install postgresql-15): %w",
		debianFolder, servers.ErrNotInstalled)
}

// StartPostgres starts a PostgreSQL, and returns when it accepts connections. Stop ends it, at the latest with the run.
func (r *Run) StartPostgres(ctx context.Context) (*Postgres, error) {
	bin, err := FindPostgres()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bench-postgres-")
	if err != nil {
		return nil, err
	}
	p := &Postgres{}
	r.AtEnd(func() {
		p.Stop()
		_ = os.RemoveAll(dir)
	})
	self, err := user.Current()
	if err != nil {
		return nil, err
	}
	var other []string // PostgreSQL refuses to run as root
	if self.Uid == "0" {
		other = []string{"runuser", "-u", postgresUser, "--"}
		if err := exec.CommandContext(ctx, "chown", postgresUser, dir).Run(); err != nil {
			return nil, fmt.Errorf("starting PostgreSQL: chown: %w", err)
		}
	}
	program := func(ctx context.Context, name string, arguments ...string) *exec.Cmd {
		all := slices.Concat(other, []string{filepath.Join(bin, name)}, arguments)
		command := exec.CommandContext(ctx, all[0], all[1:]...)
		command.Dir = dir
		return command
	}
	data := filepath.Join(dir, "data")
	// The role has the name of this process's user, whom the socket identifies.
	initdb := program(ctx, "initdb", "--pgdata", data, "--username", self.Username, "--auth", "peer", "--encoding", "UTF8", "--locale", "C")
	initdb.Cancel = func() error { return initdb.Process.Signal(os.Interrupt) } // so that it ends its children
	if printed, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("starting PostgreSQL: initdb: %w: %s", err, printed)
	}
	where := url.Values{"host": {dir}, "user": {self.Username}, "database": {"postgres"}}
	p.URL = "postgres://?" + where.Encode()
	// It ends with Stop, not with ctx, because killing it would leave its shared memory.
	log := filepath.Join(dir, "log")
	server := program(context.WithoutCancel(ctx), "postgres", "-D", data, "-k", dir, "-c", "listen_addresses=")
	if p.process, err = servers.Run(server, log, dir); err != nil {
		return nil, fmt.Errorf("starting PostgreSQL: %w", err)
	}
	err = p.process.Await(ctx, func(ctx context.Context) (bool, error) {
		conn, err := pgx.Connect(ctx, p.URL)
		if err != nil {
			return false, nil //nolint:nilerr // it has not started yet
		}
		return true, conn.Close(ctx)
	})
	if err != nil {
		return nil, fmt.Errorf("starting PostgreSQL: %w; the end of its log: %s", err, servers.LastLines(log))
	}
	return p, nil
}

// Stop ends the server with PostgreSQL's immediate shutdown, which also removes its shared memory. A second call does nothing.
func (p *Postgres) Stop() {
	if p.process == nil {
		return
	}
	_ = p.process.Signal(syscall.SIGQUIT) // it may have exited
	for deadline := time.Now().Add(postgresStop); !p.process.Exited() && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	p.process.Kill()
	p.process = nil
}
