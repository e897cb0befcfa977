// Withservers runs a command with real servers of its own, which end with it:
//
//	go tool withservers [-fdb] [-couchdb] [-pouchdb] [-chromium] command [argument ...]
//	go tool withservers [-fdb] [-couchdb] [-pouchdb] [-chromium] -missing
//
// Environment variables tell the command's tests about the servers: SETTEE_TEST_FDB has the path
// of the cluster file, SETTEE_TEST_COUCHDB the path of a file with the URL of the CouchDB, which has
// its administrator's credentials, and SETTEE_TEST_POUCHDB the path of a file with the URLs of two
// PouchDB Servers, the second of which has an administrator. If a variable is set already, no server
// of that kind is started. A Chromium is only looked for: each process that needs one starts its own.
//
// The paths are the same for each run in a working directory, so that Go takes the results of tests
// that nothing has changed for from its cache. Of two runs at once, the second has paths of its own.
//
// If a server is not installed, withservers prints one line on standard error before the command
// and one after it, or fails if the environment variable SETTEE_REQUIRE lists the server (fdb,
// couchdb, chromium). With -missing it prints these lines and runs nothing. PouchDB Server, which
// make test installs, must always be there.
//
// The exit status is the command's, 1 if a required server is missing or a server did not start,
// or 2 for wrong arguments.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sync/errgroup"

	"settee/internal/servers"
)

func main() {
	status, err := withServers(os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "withservers: %v\n", err)
	}
	os.Exit(status)
}

// niceness is by how much the command steps back behind the servers when processors are short. Else a server that all
// tests share gets as much as one of them, and answers some after so long that they fail.
const niceness = "10"

// A kind is a kind of server.
type kind struct {
	name, usage string
	variable    string // has the path of file; "" if none is started
	file        string // in the folder of the run
	// find returns an error that wraps servers.ErrNotInstalled if the server is not installed.
	find func() error
	// start starts a server and returns the contents of file and a function that ends the server.
	start func(ctx context.Context, dir string) (contents []byte, stop func(), err error)
}

var kinds = []kind{
	{servers.NameFoundationDB, "start a FoundationDB of one fdbserver", "SETTEE_TEST_FDB", "fdb.cluster", findFoundationDB, startFoundationDB},
	{servers.NameCouchDB, "start a CouchDB", "SETTEE_TEST_COUCHDB", "couchdb.url", findCouchDB, startCouchDB},
	{"pouchdb", "start two PouchDB Servers, one with an administrator", "SETTEE_TEST_POUCHDB", "pouchdb.urls", findPouchDB, startPouchDB},
	{servers.NameChromium, "say if there is no Chromium", "", "", findChromium, nil},
}

func findFoundationDB() error {
	if _, _, err := servers.FindFoundationDB(); err != nil {
		return err
	}
	return servers.FindFoundationDBClient()
}

func findCouchDB() error {
	_, err := servers.FindCouchDB()
	return err
}

func findPouchDB() error {
	_, err := servers.FindPouchDB()
	return err
}

func findChromium() error {
	_, err := servers.FindChromium()
	return err
}

// leftOut returns the line about a server that is not installed, or "" if it is. It returns an
// error if a missing server is required.
func (k kind) leftOut() (string, error) {
	err := k.find()
	if !errors.Is(err, servers.ErrNotInstalled) {
		return "", err
	}
	required, wrong := servers.Required(k.name)
	if required || wrong != nil {
		return "", errors.Join(wrong, err)
	}
	return fmt.Sprintf("left out: the tests with a %v", err), nil
}

func startFoundationDB(ctx context.Context, dir string) ([]byte, func(), error) {
	cluster, err := servers.StartFoundationDB(ctx, servers.FoundationDBOptions{Dir: dir})
	if err != nil {
		return nil, nil, err
	}
	contents, err := os.ReadFile(cluster.ClusterFile)
	return contents, cluster.Stop, err
}

func startCouchDB(ctx context.Context, dir string) ([]byte, func(), error) {
	server, err := servers.StartCouchDB(ctx, servers.CouchDBOptions{Dir: dir})
	if err != nil {
		return nil, nil, err
	}
	return []byte(server.Admin()), server.Kill, nil
}

// startPouchDB starts both servers at the same time, for each takes one processor for some seconds.
func startPouchDB(ctx context.Context, dir string) ([]byte, func(), error) {
	started := make([]*servers.PouchDB, 2)
	stop := func() {
		for _, server := range started {
			if server != nil {
				server.Kill()
			}
		}
	}
	var starting errgroup.Group
	for i := range started {
		starting.Go(func() error {
			options := servers.PouchDBOptions{Dir: filepath.Join(dir, strconv.Itoa(i))}
			if i == 1 {
				options.Username, options.Password = "someone", "s3cret-word"
			}
			err := os.Mkdir(options.Dir, 0o700)
			if err == nil {
				started[i], err = servers.StartPouchDB(ctx, options)
			}
			return err
		})
	}
	if err := starting.Wait(); err != nil {
		return nil, stop, err
	}
	return []byte(started[0].Admin() + "\n" + started[1].Admin() + "\n"), stop, nil
}

func withServers(args []string) (status int, err error) {
	flags := flag.NewFlagSet("withservers", flag.ContinueOnError)
	wanted := make([]*bool, len(kinds))
	for i, kind := range kinds {
		wanted[i] = flags.Bool(kind.name, false, kind.usage)
	}
	missing := flags.Bool("missing", false, "print which of the servers are not installed, and exit")
	if err := flags.Parse(args); err != nil {
		return 2, nil // the flag package has printed the error
	}
	if *missing == (flags.NArg() > 0) {
		return 2, errors.New("give either a command or -missing")
	}
	var left []string
	var chosen []kind
	for i, kind := range kinds {
		if !*wanted[i] || kind.variable != "" && os.Getenv(kind.variable) != "" {
			continue
		}
		line, err := kind.leftOut()
		if err != nil {
			return 1, err
		}
		if line == "" && kind.start != nil {
			chosen = append(chosen, kind)
		} else if line != "" {
			left = append(left, line)
		}
	}
	report := func() {
		for _, line := range left {
			fmt.Fprintln(os.Stderr, line)
		}
	}
	report()
	if *missing {
		return 0, nil
	}
	defer report()
	return withKinds(chosen, flags.Args())
}

// withKinds runs a command with a server of each kind.
func withKinds(chosen []kind, args []string) (status int, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	dir, err := os.MkdirTemp("", "settee-servers-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	named, release, err := filesFolder(dir)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, release()) }()
	environ := os.Environ()
	ends := make([]func(), len(chosen))
	defer func() {
		for _, end := range ends {
			if end != nil {
				end()
			}
		}
	}()
	var starting errgroup.Group
	for i, kind := range chosen {
		environ = append(environ, kind.variable+"="+filepath.Join(named, kind.file))
		starting.Go(func() error {
			own := filepath.Join(dir, kind.name)
			if err := os.Mkdir(own, 0o700); err != nil {
				return err
			}
			contents, end, err := kind.start(ctx, own)
			ends[i] = end
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(named, kind.file), contents, 0o600)
		})
	}
	if err := starting.Wait(); err != nil {
		return 1, err
	}
	return run(ctx, environ, args)
}

// filesFolder returns the folder for the files that the variables name: the working directory's own one, or temporary
// if another run uses that. release gives it back.
func filesFolder(temporary string) (dir string, release func() error, err error) {
	caches, err := os.UserCacheDir()
	if err != nil {
		return temporary, func() error { return nil }, nil //nolint:nilerr // a user without a home gets no cached results
	}
	work, err := os.Getwd()
	if err != nil {
		return "", nil, err
	}
	dir = filepath.Join(caches, "settee", fmt.Sprintf("test-servers-%x", sha256.Sum256([]byte(work)))[:32])
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, err
	}
	lock, err := vfs.Default.Lock(filepath.Join(dir, "lock"))
	if err != nil {
		return temporary, func() error { return nil }, nil //nolint:nilerr // in use
	}
	return dir, lock.Close, nil
}

// run runs the command, and sends SIGINT to it when ctx ends.
func run(ctx context.Context, environ, args []string) (int, error) {
	command := exec.CommandContext(ctx, args[0], args[1:]...)
	if nice, err := exec.LookPath("nice"); err == nil && command.Err == nil {
		command.Args = append([]string{nice, "-n", niceness, command.Path}, args[1:]...)
		command.Path = nice
	}
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.Env = environ
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := command.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return exit.ExitCode(), nil
	case err != nil:
		return 1, err
	}
	return 0, nil
}
