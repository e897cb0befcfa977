package servers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// cliTimeout is how many seconds fdbcli waits for a cluster. A readiness check runs up to two commands
// within askLimit.
const cliTimeout = "5"

// FoundationDB is a cluster of fdbservers.
type FoundationDB struct {
	// ClusterFile is the path of the cluster file.
	ClusterFile string

	fdbserver, fdbcli string
	dir               string
	ports             []int
	processes         []*Process
}

// FoundationDBOptions are the options of StartFoundationDB.
type FoundationDBOptions struct {
	// Dir is an existing directory for the cluster file, the data and the logs.
	Dir string
	// Processes is the number of fdbservers, 1 by default. With three or more, all data is stored
	// twice, each process counts as a machine, and any one of them may fail.
	Processes int
	// Disk selects the engine ssd-2, which keeps the data on disk. The default is memory, which
	// has only a log on disk.
	Disk bool
}

// FindFoundationDB returns the paths of the programs in PATH. The error wraps ErrNotInstalled if
// one is missing.
func FindFoundationDB() (fdbserver, fdbcli string, err error) {
	paths := make([]string, 2)
	for i, name := range []string{"fdbserver", "fdbcli"} {
		if paths[i], err = exec.LookPath(name); err != nil {
			return "", "", fmt.Errorf("FoundationDB: %s is not in PATH: %w", name, ErrNotInstalled)
		}
	}
	return paths[0], paths[1], nil
}

// clientProgram uses FoundationDB's client library like the build tag fdb.
const clientProgram = `#define FDB_API_VERSION 730
#include <foundationdb/fdb_c.h>
int main(void) { return fdb_select_api_version(FDB_API_VERSION); }
`

// FindFoundationDBClient returns an error unless a program with FoundationDB's client can be
// built. It wraps ErrNotInstalled if there is no C compiler, no client library of API version
// 730, or no headers.
func FindFoundationDBClient() error {
	compile := exec.Command("cc", "-x", "c", "-", "-lfdb_c", "-o", os.DevNull)
	compile.Stdin = strings.NewReader(clientProgram)
	if printed, err := compile.CombinedOutput(); err != nil {
		line, _, _ := strings.Cut(string(printed), "\n")
		return fmt.Errorf("FoundationDB: no C compiler, client library or headers (%w: %s): %w", err, line, ErrNotInstalled)
	}
	return nil
}

// StartFoundationDB starts a cluster and returns when its database is available. The error wraps
// ErrNotInstalled if fdbserver or fdbcli is not in PATH.
func StartFoundationDB(ctx context.Context, options FoundationDBOptions) (*FoundationDB, error) {
	fdbserver, fdbcli, err := FindFoundationDB()
	if err != nil {
		return nil, err
	}
	f := &FoundationDB{
		ClusterFile: filepath.Join(options.Dir, "fdb.cluster"), fdbserver: fdbserver, fdbcli: fdbcli, dir: options.Dir,
	}
	processes := max(options.Processes, 1)
	err = retryPort(func() error {
		if f.ports, err = FreePorts(processes); err != nil {
			return err
		}
		return f.create(ctx, options.Disk)
	})
	if err != nil {
		return nil, fmt.Errorf("starting FoundationDB: %w", err)
	}
	return f, nil
}

// create starts the processes and creates a database.
func (f *FoundationDB) create(ctx context.Context, disk bool) error {
	// The second word identifies the cluster, so that a client does not mistake another cluster
	// on the same port for it.
	address := fmt.Sprintf("settee:%s@127.0.0.1:%d\n", rand.Text(), f.ports[0])
	if err := os.WriteFile(f.ClusterFile, []byte(address), 0o600); err != nil {
		return err
	}
	f.processes = make([]*Process, len(f.ports))
	for n := range f.ports {
		if err := os.RemoveAll(f.file(n, "")); err != nil { // from an attempt on another port
			return err
		}
		if err := f.Start(n); err != nil {
			f.Stop()
			return err
		}
	}
	redundancy, engine := "single", "memory"
	if len(f.ports) >= 3 {
		redundancy = "double"
	}
	if disk {
		engine = "ssd-2"
	}
	created, shown := false, 0 // the process whose log an error shows
	err := f.processes[0].Await(ctx, func(ctx context.Context) (bool, error) {
		for n, p := range f.processes {
			if p.Exited() {
				shown = n
				return false, p.exitError()
			}
		}
		if !created { // fails until all processes have joined
			printed, err := f.CLI(ctx, "configure new "+redundancy+" "+engine)
			created = err == nil || strings.Contains(printed, "already exists") // by an attempt that timed out in fdbcli
		}
		return created && f.Available(ctx), nil
	})
	if err == nil && len(f.ports) >= 3 {
		// All processes become coordinators, once they know each other.
		err = f.processes[0].Await(ctx, func(ctx context.Context) (bool, error) {
			_, err := f.CLI(ctx, "coordinators auto")
			return err == nil && f.Available(ctx), nil
		})
	}
	if err != nil {
		f.Stop()
		return fmt.Errorf("%w; the end of its log: %s", err, LastLines(f.file(shown, "output")))
	}
	return nil
}

func (f *FoundationDB) file(n int, name string) string {
	return filepath.Join(f.dir, strconv.Itoa(n), name)
}

// CLI runs a command of fdbcli and returns its output.
func (f *FoundationDB) CLI(ctx context.Context, command string) (string, error) {
	printed, err := exec.CommandContext(ctx, f.fdbcli, "-C", f.ClusterFile, "--timeout", cliTimeout, "--exec", command).CombinedOutput()
	return string(printed), err
}

// Available reports whether the database is available.
func (f *FoundationDB) Available(ctx context.Context) bool {
	printed, err := f.CLI(ctx, "status minimal")
	return err == nil && strings.Contains(printed, "is available")
}

// Addresses returns the address of each process, including killed ones.
func (f *FoundationDB) Addresses() []string {
	addresses := make([]string, len(f.ports))
	for n := range f.ports {
		addresses[n] = f.address(n)
	}
	return addresses
}

func (f *FoundationDB) address(n int) string { return "127.0.0.1:" + strconv.Itoa(f.ports[n]) }

// Start starts process n, from 0, with its data and port. It does not wait until the process has
// joined the cluster.
func (f *FoundationDB) Start(n int) error {
	data, logs := f.file(n, "data"), f.file(n, "log")
	if err := errors.Join(os.MkdirAll(data, 0o700), os.MkdirAll(logs, 0o700)); err != nil {
		return err
	}
	process, err := Run(exec.Command(f.fdbserver, "--cluster-file", f.ClusterFile,
		"--public-address", f.address(n), "--listen-address", "public", "--datadir", data, "--logdir", logs,
		"--locality-machineid", "m"+strconv.Itoa(n), "--locality-zoneid", "z"+strconv.Itoa(n), "--memory", "4GiB",
		// Some file systems of containers do not support the kernel's asynchronous I/O.
		"--knob_disable_posix_kernel_aio=1"), f.file(n, "output"), "")
	if err == nil {
		f.processes[n] = process
	}
	return err
}

// Kill ends process n with SIGKILL.
func (f *FoundationDB) Kill(n int) { f.processes[n].Kill() }

// Freeze stops process n with SIGSTOP.
func (f *FoundationDB) Freeze(n int) error { return f.processes[n].Signal(syscall.SIGSTOP) }

// Thaw continues a frozen process.
func (f *FoundationDB) Thaw(n int) error { return f.processes[n].Signal(syscall.SIGCONT) }

// Stop ends all processes with SIGKILL.
func (f *FoundationDB) Stop() {
	for _, p := range f.processes {
		if p != nil {
			p.Kill()
		}
	}
}
