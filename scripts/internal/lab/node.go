package lab

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"settee/internal/servers"
)

// Node is a settee with both roles, or with one.
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
	// Replication leaves out the role api_frontend. Such a node answers nothing but _up and its metrics.
	Replication bool
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

// Build builds settee, in its own module.
func Build(ctx context.Context, program string) error {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "settee").Output()
	if err != nil {
		return fmt.Errorf("looking for settee's module: %w", err)
	}
	return servers.BuildSettee(ctx, strings.TrimSpace(string(root)), "", program)
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
	port := "chttpd/port="
	if o.Replication {
		o.Settings = append(slices.Clip(o.Settings), "node_types/api_frontend=false", "prometheus/additional_port=true")
		port = "prometheus/port="
	}
	arguments := []string{"serve", "--store", o.Store, "--set", port + strconv.Itoa(ports[0])}
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

// Stop tells the node to stop, and returns when it has exited. Close is still to be called.
func (n *Node) Stop(ctx context.Context) error {
	if err := n.process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	for !n.process.Exited() {
		if err := Pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
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

// Connections returns the number of connections that the node has opened to other programs.
func (n *Node) Connections() (int, error) {
	proc := fmt.Sprintf("/proc/%d/", n.process.PID())
	files, err := os.ReadDir(proc + "fd")
	if err != nil {
		return 0, err
	}
	own := map[string]bool{} // the inodes of its sockets
	for _, file := range files {
		// A file may have been closed since.
		if target, err := os.Readlink(proc + "fd/" + file.Name()); err == nil && strings.HasPrefix(target, "socket:[") {
			own[strings.Trim(target, "socket:[]")] = true
		}
	}
	_, port, err := net.SplitHostPort(n.Host())
	if err != nil {
		return 0, err
	}
	count := 0
	for _, family := range []string{"tcp", "tcp6"} {
		table, err := os.ReadFile(proc + "net/" + family)
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(string(table)) {
			// The number, the local and the remote address, the state, ... and the inode: see proc_net_tcp in the kernel's
			// documentation.
			fields := strings.Fields(line)
			if len(fields) > 9 && fields[3] == established && own[fields[9]] && !isPort(fields[1], port) {
				count++
			}
		}
	}
	return count, nil
}

const established = "01"

// isPort reports whether an address in /proc has a port.
func isPort(address, port string) bool {
	_, text, _ := strings.Cut(address, ":")
	n, err := strconv.ParseUint(text, 16, 16)
	return err == nil && strconv.FormatUint(n, 10) == port
}
