package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"settee/scripts/internal/lab"
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
	version, err := lab.Version(ctx, program)
	if err != nil {
		return nil, err
	}
	couchDB, err := lab.OpenCouchDB(ctx, o.couchDB, o.q)
	if err != nil {
		return nil, fmt.Errorf("%w (-couchdb=URL names one that runs)", err)
	}
	return &bench{options: o, server: &server{couchDB}, program: program, version: version}, nil
}

func (b *bench) close() error { return b.server.Close() }

// copyOnce runs a one-shot replication.
func (b *bench) copyOnce(ctx context.Context, s system, source, target string) (sample, error) {
	began := time.Now()
	if s == couchDB {
		err := b.replicate(ctx, b.server.Server, source, target, nil)
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
func (b *bench) replicate(ctx context.Context, host *lab.Server, source, target string, more map[string]any) error {
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
	if err := host.Ask(ctx, http.MethodPost, "_replicate", request, &answer); err != nil {
		return err
	}
	if !answer.OK {
		return errors.New("POST _replicate: the answer is not ok")
	}
	return nil
}
