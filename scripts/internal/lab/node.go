package lab

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"settee/internal/servers"
)

// Node is a settee with both roles.
type Node struct {
	*Server
	process *servers.Process
	dir     string
	log     string
}

// NodeOptions are the options of StartNode.
type NodeOptions struct {
	// Program is the path of settee.
	Program string
	// Store is the URL of the store. Default: a new directory, which Close removes.
	Store string
	// Settings are further settings, as section/key=value.
	Settings []string
	// CPUs are the processors that it may use, as taskset takes them. Default: all.
	CPUs string
}

// Version returns the first line that settee version prints.
func Version(ctx context.Context, program string) (string, error) {
	version, err := exec.CommandContext(ctx, program, "version").Output()
	if err != nil {
		return "", fmt.Errorf("%s version: %w", program, err)
	}
	line, _, _ := strings.Cut(string(version), "\n")
	return line, nil
}

// StartNode starts a node and returns when it answers.
func StartNode(ctx context.Context, o NodeOptions) (*Node, error) {
	dir, err := os.MkdirTemp("", "bench-settee-")
	if err != nil {
		return nil, err
	}
	ports, err := servers.FreePorts(1)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if o.Store == "" {
		o.Store = "pebble:" + filepath.Join(dir, "store")
	}
	password := rand.Text()
	arguments := []string{"serve", "--store", o.Store, "--set", "chttpd/port=" + strconv.Itoa(ports[0])}
	for _, one := range o.Settings {
		arguments = append(arguments, "--set", one)
	}
	command := exec.CommandContext(context.WithoutCancel(ctx), o.Program, arguments...)
	Confine(command, o.CPUs)
	command.Env = append(os.Environ(), "COUCHDB_USER=bench", "COUCHDB_PASSWORD="+password)
	n := &Node{
		Server: NewServer(&url.URL{
			Scheme: "http", User: url.UserPassword("bench", password), Host: "127.0.0.1:" + strconv.Itoa(ports[0]),
		}),
		dir: dir, log: filepath.Join(dir, "log"),
	}
	if n.process, err = servers.Run(command, n.log, dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	err = n.process.Await(ctx, func(ctx context.Context) (bool, error) {
		return n.Ask(ctx, http.MethodGet, "_up", nil, nil) == nil, nil
	})
	if err != nil {
		err = fmt.Errorf("starting settee: %w; the end of its log: %s", err, servers.LastLines(n.log))
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// Close kills the node.
func (n *Node) Close() error {
	n.process.Kill()
	n.CloseIdle()
	return os.RemoveAll(n.dir)
}

// Ended returns an error if the node has exited.
func (n *Node) Ended() error {
	if !n.process.Exited() {
		return nil
	}
	return fmt.Errorf("settee has exited; the end of its log: %s", servers.LastLines(n.log))
}

// Processor returns the processor time of the node.
func (n *Node) Processor() (time.Duration, error) { return servers.ProcessorTime(n.process.PID()) }

// Memory returns the resident set of the node in bytes, and the largest one so far.
func (n *Node) Memory() (now, largest int64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.process.PID()))
	if err != nil {
		return 0, 0, err
	}
	value := func(name string) int64 {
		_, after, _ := strings.Cut(string(status), name+":")
		number, _, _ := strings.Cut(strings.TrimSpace(after), " ")
		kilobytes, wrong := strconv.ParseInt(number, 10, 64)
		err = errors.Join(err, wrong)
		return kilobytes << 10
	}
	now, largest = value("VmRSS"), value("VmHWM")
	return now, largest, err
}

// Jobs waits until the numbers of jobs by state are as wanted, and returns them. The node looks once a second.
func (n *Node) Jobs(ctx context.Context, wanted func(states map[string]int) bool) (map[string]int, error) {
	tag := ""
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, n.URL("_scheduler/summary", ""), nil)
		if err != nil {
			return nil, err
		}
		if tag != "" {
			r.Header.Set("If-None-Match", tag)
		}
		r.Header.Set("Prefer", "wait=60")
		answer, err := n.send(r, "_scheduler/summary")
		if err != nil {
			return nil, err
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
			return summary.Jobs, err
		}
		tag = answer.Header.Get("ETag")
	}
}

// Metrics returns the metrics without labels.
func (n *Node) Metrics(ctx context.Context) (map[string]float64, error) {
	answer, err := n.Do(ctx, http.MethodGet, "_node/_local/_prometheus", "", nil)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	return readMetrics(answer.Body)
}
