package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"settee/internal/servers"
)

// debianFolder has the programs of Debian's packages of PostgreSQL.
const debianFolder = "/usr/lib/postgresql/*/bin"

// postgresUser is the user that runs PostgreSQL instead of root.
const postgresUser = "postgres"

// postgresStop is how long PostgreSQL may take to end.
const postgresStop = 10 * time.Second

// postgres is a PostgreSQL with a new cluster and with default settings, except that it listens only on a socket.
type postgres struct {
	url     string
	process *servers.Process
}

// findPostgres returns the directory of PostgreSQL's programs, and their version.
func findPostgres(ctx context.Context) (bin, version string, err error) {
	if initdb, err := exec.LookPath("initdb"); err == nil {
		bin = filepath.Dir(initdb)
	} else if folders, err := filepath.Glob(debianFolder); err == nil && len(folders) > 0 {
		bin = folders[len(folders)-1]
	} else {
		return "", "", fmt.Errorf("PostgreSQL: no initdb in PATH or %s (on Debian: apt-get install postgresql-15): %w",
			debianFolder, servers.ErrNotInstalled)
	}
	printed, err := exec.CommandContext(ctx, filepath.Join(bin, "postgres"), "--version").Output()
	return bin, strings.TrimSpace(string(printed)), err
}

// startPostgres creates a cluster in dir, starts PostgreSQL, and returns when it accepts connections.
func startPostgres(ctx context.Context, bin, dir string) (*postgres, error) {
	credential, err := unprivileged(dir)
	if err != nil {
		return nil, fmt.Errorf("starting PostgreSQL: %w", err)
	}
	self, err := user.Current()
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	// The role has the name of this process's user, whom the socket identifies.
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "--pgdata", data,
		"--username", self.Username, "--auth", "peer", "--encoding", "UTF8", "--locale", "C")
	initdb.Dir, initdb.SysProcAttr = dir, &syscall.SysProcAttr{Credential: credential}
	initdb.Cancel = func() error { return initdb.Process.Signal(os.Interrupt) } // so that it ends its children
	if printed, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("starting PostgreSQL: initdb: %w: %s", err, printed)
	}
	// It ends with stop, not with ctx, because killing it would leave its shared memory.
	server := exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(bin, "postgres"),
		"-D", data, "-k", dir, "-c", "listen_addresses=")
	server.Dir, server.SysProcAttr = dir, &syscall.SysProcAttr{Credential: credential}
	log := filepath.Join(dir, "log")
	process, err := servers.Run(server, log, dir)
	if err != nil {
		return nil, fmt.Errorf("starting PostgreSQL: %w", err)
	}
	where := url.Values{"host": {dir}, "user": {self.Username}, "database": {"postgres"}}
	p := &postgres{url: "postgres://?" + where.Encode(), process: process}
	if err := process.Await(ctx, p.accepts); err != nil {
		p.stop()
		return nil, fmt.Errorf("starting PostgreSQL: %w; the end of its log: %s", err, servers.LastLines(log))
	}
	return p, nil
}

// unprivileged returns the credential of postgresUser and makes it the owner of dir, if this process runs as root,
// because PostgreSQL refuses to. Otherwise it returns nil.
func unprivileged(dir string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	account, err := user.Lookup(postgresUser)
	if err != nil {
		return nil, fmt.Errorf("it does not run as root, and there is no user for it: %w", err)
	}
	uid, err := strconv.ParseUint(account.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(account.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, os.Chown(dir, int(uid), int(gid))
}

// accepts reports whether the server accepts connections.
func (p *postgres) accepts(ctx context.Context) (bool, error) {
	conn, err := pgx.Connect(ctx, p.url)
	if err != nil {
		return false, nil //nolint:nilerr // it has not started yet
	}
	return true, conn.Close(ctx)
}

// stop ends the server with PostgreSQL's immediate shutdown, which also removes its shared memory.
func (p *postgres) stop() {
	_ = p.process.Signal(syscall.SIGQUIT) // it may have exited
	for deadline := time.Now().Add(postgresStop); !p.process.Exited() && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	p.process.Kill()
}
