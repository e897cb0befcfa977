package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"settee/internal/servers"
)

// bench is the two systems.
type bench struct {
	options *options
	server  *server
	program string // settee
	version string
}

func openBench(ctx context.Context, o *options) (*bench, error) {
	program, err := filepath.Abs(o.settee)
	if err != nil {
		return nil, err
	}
	version, err := exec.CommandContext(ctx, program, "version").Output()
	if err != nil {
		return nil, fmt.Errorf("%s version: %w", o.settee, err)
	}
	line, _, _ := strings.Cut(string(version), "\n")
	b := &bench{options: o, program: program, version: line}
	b.server, err = openServer(ctx, o)
	return b, err
}

func (b *bench) close() error { return b.server.close() }

// copyOnce runs a one-shot replication.
func (b *bench) copyOnce(ctx context.Context, s system, source, target string) (sample, error) {
	began := time.Now()
	if s == couchDB {
		err := b.replicate(ctx, b.server, source, target, nil)
		return sample{wall: time.Since(began)}, err
	}
	command := exec.CommandContext(ctx, b.program, "replicate", source, target)
	output, err := command.CombinedOutput()
	wall := time.Since(began)
	if err != nil {
		return sample{}, fmt.Errorf("settee replicate: %w: %s", err, bytes.TrimSpace(output))
	}
	usage, ok := command.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return sample{}, errors.New("settee replicate: its resources are unknown")
	}
	return sample{
		wall: wall, memory: usage.Maxrss << 10, // Linux counts kilobytes
		own: command.ProcessState.UserTime() + command.ProcessState.SystemTime(),
	}, nil
}

// replicate posts a replication to the server at host, with more options.
func (b *bench) replicate(ctx context.Context, host *server, source, target string, more map[string]any) error {
	body := map[string]any{"source": source, "target": target}
	for name, value := range more {
		body[name] = value
	}
	request, err := json.Marshal(body)
	if err != nil {
		return err
	}
	var answer struct {
		OK bool `json:"ok"`
	}
	if err := host.ask(ctx, http.MethodPost, "_replicate", request, &answer); err != nil {
		return err
	}
	if !answer.OK {
		return errors.New("POST _replicate: the answer is not ok")
	}
	return nil
}

// node is a settee that runs continuous jobs.
type node struct {
	*server
	dir     string
	process *servers.Process
}

// startNode starts a settee with a new store in a directory.
func (b *bench) startNode(ctx context.Context) (*node, error) {
	dir, err := os.MkdirTemp("", "bench-settee-")
	if err != nil {
		return nil, err
	}
	ports, err := servers.FreePorts(1)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	root := *b.server.root
	root.Host = "127.0.0.1:" + strconv.Itoa(ports[0])
	password, _ := root.User.Password()
	command := exec.CommandContext(context.WithoutCancel(ctx), b.program, "serve", "--store", "pebble:"+filepath.Join(dir, "store"),
		"--set", "chttpd/port="+strconv.Itoa(ports[0]), "--set", "replicator/max_jobs=100000")
	command.Env = append(os.Environ(), "COUCHDB_USER="+root.User.Username(), "COUCHDB_PASSWORD="+password)
	log := filepath.Join(dir, "log")
	process, err := servers.Run(command, log, dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	n := &node{server: &server{root: &root}, dir: dir, process: process}
	err = process.Await(ctx, func(ctx context.Context) (bool, error) {
		return n.ask(ctx, http.MethodGet, "_up", nil, nil) == nil, nil
	})
	if err != nil {
		err = fmt.Errorf("starting settee: %w; the end of its log: %s", err, servers.LastLines(log))
		return nil, errors.Join(err, n.stop())
	}
	return n, nil
}

func (n *node) stop() error {
	n.process.Kill()
	n.client.CloseIdleConnections()
	return os.RemoveAll(n.dir)
}

// memory returns the largest resident set of a process in bytes.
func memory(pid int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	number, _, _ := strings.Cut(strings.TrimSpace(after), " ")
	kilobytes, err := strconv.ParseInt(number, 10, 64)
	return kilobytes << 10, err
}
