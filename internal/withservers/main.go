// Withservers runs a command with real servers of its own, which end with it:
//
//	go tool withservers [-fdb] [-couchdb] [-chromium] command [argument ...]
//	go tool withservers [-fdb] [-couchdb] [-chromium] -missing
//
// Environment variables tell the command's tests about the servers: SETTEE_TEST_FDB has the path
// of the cluster file, SETTEE_TEST_COUCHDB the URL of the CouchDB with its administrator's
// credentials. If a variable is set already, no server of that kind is started. A Chromium is only
// looked for: each process that needs one starts its own.
//
// If a server is not installed, withservers prints one line on standard error before the command
// and one after it, or fails if the environment variable SETTEE_REQUIRE lists the server (fdb,
// couchdb, chromium). With -missing it prints these lines and runs nothing.
//
// The exit status is the command's, 1 if a required server is missing or a server did not start,
// or 2 for wrong arguments.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"settee/internal/servers"
)

func main() {
	status, err := withServers(os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "withservers: %v\n", err)
	}
	os.Exit(status)
}

// A kind is a kind of server.
type kind struct {
	name, usage string
	variable    string // "" if none is started
	// find returns an error that wraps servers.ErrNotInstalled if the server is not installed.
	find func() error
	// start starts a server and returns the value of variable and a function that ends the
	// server.
	start func(ctx context.Context, dir string) (value string, stop func(), err error)
}

var kinds = []kind{
	{servers.NameFoundationDB, "start a FoundationDB of one fdbserver", "SETTEE_TEST_FDB", findFoundationDB, startFoundationDB},
	{servers.NameCouchDB, "start a CouchDB", "SETTEE_TEST_COUCHDB", findCouchDB, startCouchDB},
	{servers.NameChromium, "say if there is no Chromium", "", findChromium, nil},
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

func startFoundationDB(ctx context.Context, dir string) (string, func(), error) {
	cluster, err := servers.StartFoundationDB(ctx, servers.FoundationDBOptions{Dir: dir})
	if err != nil {
		return "", nil, err
	}
	return cluster.ClusterFile, cluster.Stop, nil
}

func startCouchDB(ctx context.Context, dir string) (string, func(), error) {
	server, err := servers.StartCouchDB(ctx, servers.CouchDBOptions{Dir: dir})
	if err != nil {
		return "", nil, err
	}
	return server.Admin(), server.Kill, nil
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
	environ := os.Environ()
	for _, kind := range chosen {
		own := filepath.Join(dir, kind.name)
		if err := os.Mkdir(own, 0o700); err != nil {
			return 1, err
		}
		value, end, err := kind.start(ctx, own)
		if err != nil {
			return 1, err
		}
		defer end()
		environ = append(environ, kind.variable+"="+value)
	}
	return run(ctx, environ, args)
}

// run runs the command, and sends SIGINT to it when ctx ends.
func run(ctx context.Context, environ, args []string) (int, error) {
	command := exec.CommandContext(ctx, args[0], args[1:]...)
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
