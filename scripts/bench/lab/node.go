package lab

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"settee/internal/servers"
	"settee/pkg/retry"
)

// Node is a settee with both roles, or with one.
type Node struct {
	*Server
	process  *servers.Process
	log      string
	stopping atomic.Bool // it is to exit
	fail     context.CancelCauseFunc
}

// NodeOptions are the options of StartNode.
type NodeOptions struct {
	// Store is the URL of the store. Default: a directory of its own.
	Store string
	// Settings are further settings, as section/key=value.
	Settings []string
	// Replication leaves out the role api_frontend. Such a node answers nothing but _up and its metrics.
	Replication bool
	// CPUs are the processors that it may use, as taskset takes them. Default: all.
	CPUs string
}

// StartNode starts a node and returns when it answers. It ends with the run.
func (r *Run) StartNode(ctx context.Context, o NodeOptions) (*Node, error) {
	dir, err := os.MkdirTemp(r.Dir, "node-")
	if err != nil {
		return nil, err
	}
	ports, err := servers.FreePorts(1)
	if err != nil {
		return nil, err
	}
	if o.Store == "" {
		o.Store = "pebble:" + filepath.Join(dir, "store")
	}
	port := "chttpd/port="
	settings := append([]string{"log/level=warning"}, o.Settings...)
	if o.Replication {
		settings = append(settings, "node_types/api_frontend=false", "prometheus/additional_port=true")
		port = "prometheus/port="
	}
	arguments := []string{"serve", "--store", o.Store, "--set", port + strconv.Itoa(ports[0])}
	for _, one := range settings {
		arguments = append(arguments, "--set", one)
	}
	command := exec.CommandContext(context.WithoutCancel(ctx), r.Settee, arguments...)
	if o.CPUs != "" {
		command = exec.CommandContext(context.WithoutCancel(ctx), "taskset", append([]string{"-c", o.CPUs, r.Settee}, arguments...)...)
	}
	password := rand.Text()
	command.Env = append(os.Environ(), "COUCHDB_USER=bench", "COUCHDB_PASSWORD="+password)
	n := &Node{log: filepath.Join(dir, "log"), fail: r.Fail, Server: newServer(&url.URL{
		Scheme: "http", User: url.UserPassword("bench", password), Host: "127.0.0.1:" + strconv.Itoa(ports[0]),
	})}
	if n.process, err = servers.Run(command, n.log, r.Dir); err != nil {
		return nil, err
	}
	n.pid, n.About = n.process.PID(), r.Version
	r.AtEnd(n.Close)
	r.watch(ctx, n)
	err = n.process.Await(ctx, func(ctx context.Context) (bool, error) {
		return n.Ask(ctx, http.MethodGet, "_up", nil, nil) == nil, nil
	})
	if err != nil {
		err = fmt.Errorf("starting settee: %w; the end of its log: %s", err, servers.LastLines(n.log))
	}
	return n, err
}

// watchEvery is how often the program looks whether a node has exited.
const watchEvery = 200 * time.Millisecond

// watch makes the run fail when a node exits that is not to.
func (r *Run) watch(ctx context.Context, n *Node) {
	r.Go(ctx, func(ctx context.Context) {
		for retry.Wait(ctx, watchEvery) == nil && !n.stopping.Load() {
			if n.process.Exited() && !n.stopping.Load() {
				r.Fail(fmt.Errorf("settee has exited; the end of its log: %s", servers.LastLines(n.log)))
				return
			}
		}
	})
}

// Stop tells the node to stop, and returns when it has exited.
func (n *Node) Stop(ctx context.Context) error {
	n.stopping.Store(true)
	if err := n.process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	for !n.process.Exited() {
		if err := retry.Wait(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// Close kills the node. A second call does nothing.
func (n *Node) Close() {
	n.stopping.Store(true)
	n.process.Kill()
	n.CloseIdle()
}

// Memory returns the resident set of the node in bytes, and the largest one so far. The run fails if they are unknown.
func (n *Node) Memory() (now, largest float64) {
	var status procfs.ProcStatus
	proc, err := procfs.NewProc(n.pid)
	if err == nil {
		status, err = proc.NewStatus()
	}
	if err != nil {
		n.fail(err)
	}
	return float64(status.VmRSS), float64(status.VmHWM)
}

// AwaitJobs returns when the numbers of jobs by state are as wanted. The node looks once a second.
func (n *Node) AwaitJobs(ctx context.Context, wanted func(states map[string]int) bool) error {
	header := http.Header{"Prefer": {"wait=60"}}
	for {
		answer, err := n.do(ctx, http.MethodGet, "_scheduler/summary", header, nil)
		if err != nil {
			return err
		}
		var summary struct{ Jobs map[string]int }
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode == http.StatusNotModified && err == nil {
			continue
		}
		if err == nil {
			err = json.Unmarshal(text, &summary)
		}
		if err != nil || wanted(summary.Jobs) {
			return err
		}
		header.Set("If-None-Match", answer.Header.Get("ETag"))
	}
}

// Metrics returns the values of the metrics, by name with labels. The run fails if they are unknown.
func (n *Node) Metrics(ctx context.Context) map[string]float64 {
	all := map[string]float64{}
	answer, err := n.do(ctx, http.MethodGet, "_node/_local/_prometheus", nil, nil)
	if err != nil {
		n.fail(err)
		return all
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if number, err := strconv.ParseFloat(value, 64); err == nil && name != "#" {
			all[name] = number
		}
	}
	if lines.Err() != nil {
		n.fail(lines.Err())
	}
	return all
}
