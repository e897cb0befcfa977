package peers

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"settee/internal/servers"
	"settee/scripts/bench/lab"
)

// PostgreSQL of Debian's packages: the folder of its programs, and the user that runs it instead of root.
const (
	debianFolder = "/usr/lib/postgresql/*/bin"
	postgresUser = "postgres"
)

// postgresStop is how long PostgreSQL may take to end.
const postgresStop = 10 * time.Second

// postgres is a PostgreSQL with a new cluster and with default settings, except that it listens only on a socket.
type postgres struct {
	url     string // for clients
	process *servers.Process
}

// findPostgres returns the folder of PostgreSQL's programs. The error wraps servers.ErrNotInstalled if there is none.
func findPostgres() (string, error) {
	if initdb, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(initdb), nil
	}
	if folders, err := filepath.Glob(debianFolder); err == nil && len(folders) > 0 {
		return folders[len(folders)-1], nil
	}
	return "", fmt.Errorf("PostgreSQL: no initdb in PATH or %s (on Debian: apt-get install postgresql-15): %w",
		debianFolder, servers.ErrNotInstalled)
}

// startPostgres starts a PostgreSQL, and returns when it accepts connections. stop ends it, at the latest with the run.
func startPostgres(ctx context.Context, r *lab.Run) (*postgres, error) {
	bin, err := findPostgres()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bench-postgres-")
	if err != nil {
		return nil, err
	}
	p := &postgres{}
	r.AtEnd(func() {
		p.stop()
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
	// The role has the name of the user that runs this process: the socket identifies that user.
	initdb := program(ctx, "initdb", "--pgdata", data, "--username", self.Username, "--auth", "peer", "--encoding", "UTF8", "--locale", "C")
	initdb.Cancel = func() error { return initdb.Process.Signal(os.Interrupt) } // so that it ends its children
	if printed, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("starting PostgreSQL: initdb: %w: %s", err, printed)
	}
	where := url.Values{"host": {dir}, "user": {self.Username}, "database": {"postgres"}}
	p.url = "postgres://?" + where.Encode()
	// It ends with Stop, not with ctx, because killing it would leave its shared memory.
	log := filepath.Join(dir, "log")
	server := program(context.WithoutCancel(ctx), "postgres", "-D", data, "-k", dir, "-c", "listen_addresses=")
	if p.process, err = servers.Run(server, log, dir); err != nil {
		return nil, fmt.Errorf("starting PostgreSQL: %w", err)
	}
	err = p.process.Await(ctx, func(ctx context.Context) (bool, error) {
		conn, err := pgx.Connect(ctx, p.url)
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

// stop ends the server with PostgreSQL's immediate shutdown, which also removes its shared memory. A second call does nothing.
func (p *postgres) stop() {
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
