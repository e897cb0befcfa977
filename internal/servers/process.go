package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ErrNotInstalled is the error if a server is not installed.
var ErrNotInstalled = errors.New("not installed")

const (
	// startLimit is how long a server may take to become ready. An idle machine takes seconds.
	startLimit = 5 * time.Minute
	// portTries is the most attempts to start on a free port that another process takes first.
	portTries = 5
	// askLimit is how long one readiness check may take.
	askLimit = 15 * time.Second
	// poll is the pause between two readiness checks.
	poll = 50 * time.Millisecond
	// shownLines is the number of the last log lines in an error.
	shownLines = 5
)

var errPortTaken = errors.New("another process uses its port")

// Process is a process in a process group of its own. It ends at the latest with this process.
type Process struct {
	command *exec.Cmd
	output  string // the file with its output
	guard   *exec.Cmd
	alive   io.Closer // closing it makes the guard kill the process group

	// No goroutine waits for the process, because it would outlive the tests that share the
	// process.
	mu     sync.Mutex
	reaped bool // it has exited, and its id may be reused
	killed bool
}

// guardScript reads the id of a process group, waits for the end of its standard input, kills the
// group, and removes the directory in its argument, if any.
const guardScript = `read -r group || exit 0
cat >/dev/null
kill -s KILL -- "-$group" 2>/dev/null
[ -z "$1" ] || rm -rf "$1"`

// Run starts a command with its output appended to a file, in a process group of its own, and
// otherwise with its SysProcAttr. If this process ends before the command, the guard kills the
// command and removes a directory ("" for none).
func Run(command *exec.Cmd, output, remove string) (*Process, error) {
	file, err := os.OpenFile(output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	// The guard is started first, so that a server is never without one for longer than a write.
	p := &Process{command: command, output: output, guard: exec.Command("/bin/sh", "-c", guardScript, "guard", remove)}
	p.guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := p.guard.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.alive = pipe
	if err := p.guard.Start(); err != nil {
		return nil, err
	}
	if command.SysProcAttr == nil {
		command.SysProcAttr = &syscall.SysProcAttr{}
	}
	command.SysProcAttr.Setpgid = true
	command.Stdout, command.Stderr = file, file
	if err := command.Start(); err != nil {
		p.dismiss()
		return nil, err
	}
	if _, err := fmt.Fprintln(pipe, command.Process.Pid); err != nil {
		p.Kill()
		return nil, fmt.Errorf("writing to the guard of %s: %w", command.Path, err)
	}
	return p, nil
}

// Kill ends the process and its children with SIGKILL, and returns when the process has exited. A
// second call does nothing.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.killed {
		return
	}
	p.killed = true
	_ = p.Signal(syscall.SIGKILL) // an exited process may have left children
	if !p.reaped {
		_, _ = p.command.Process.Wait() // it was killed
		p.reaped = true
	}
	p.dismiss()
}

// PID returns the process id.
func (p *Process) PID() int { return p.command.Process.Pid }

// Exited reports whether the process has exited.
func (p *Process) Exited() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		pid, err := syscall.Wait4(p.command.Process.Pid, nil, syscall.WNOHANG, nil)
		p.reaped = err == nil && pid != 0
	}
	return p.reaped
}

// dismiss ends the guard, so that it cannot kill another process group that reuses the id.
func (p *Process) dismiss() {
	_ = p.guard.Process.Kill()
	_ = p.guard.Wait()
	_ = p.alive.Close()
}

// Signal sends a signal to the process and its children.
func (p *Process) Signal(s syscall.Signal) error {
	return syscall.Kill(-p.command.Process.Pid, s)
}

// Await returns when ready returns true. It fails if the process exits, if ready returns an
// error, or after startLimit.
func (p *Process) Await(ctx context.Context, ready func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		if p.Exited() {
			return p.exitError()
		}
		if ok, err := p.ask(ctx, ready); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no answer: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// ask calls ready, whose context ends after askLimit, or when the process exits.
func (p *Process) ask(ctx context.Context, ready func(context.Context) (bool, error)) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() {
		for ctx.Err() == nil && !p.Exited() {
			select {
			case <-ctx.Done():
			case <-time.After(poll):
			}
		}
		cancel()
	})
	return ready(ctx)
}

// exitError returns why a process has exited, as far as its output shows.
func (p *Process) exitError() error {
	text, err := os.ReadFile(p.output)
	if err != nil {
		return err
	}
	for _, words := range []string{"eaddrinuse", "address in use", "already in use"} { // CouchDB's, FoundationDB's and PouchDB Server's
		if bytes.Contains(bytes.ToLower(text), []byte(words)) {
			return errPortTaken
		}
	}
	return errors.New("it exited")
}

// The range of the ports of FreePorts: below the ports that systems give to sockets for which any port will do.
const firstPort, portsEnd = 10_000, 32_768

// FreePorts returns n different ports of 127.0.0.1 on which no process listens. No process gets one of them that asks
// for any port. So requests to a server that does not listen yet, or no longer, do not reach a server of another test.
func FreePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		listener, err := listenAnywhere()
		if err != nil {
			return nil, fmt.Errorf("looking for a free port: %w", err)
		}
		defer listener.Close() // after all are found
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// listenAnywhere listens on a random port of the range.
func listenAnywhere() (net.Listener, error) {
	for {
		port := firstPort + rand.IntN(portsEnd-firstPort)
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if !errors.Is(err, syscall.EADDRINUSE) {
			return listener, err
		}
	}
}

// retryPort calls start, and again if another process has taken the port.
func retryPort(start func() error) error {
	for try := 1; ; try++ {
		if err := start(); !errors.Is(err, errPortTaken) || try == portTries {
			return err
		}
	}
}

// LastLines returns the end of a log in one line.
func LastLines(log string) string {
	text, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	lines = lines[max(0, len(lines)-shownLines):]
	return strings.Join(lines, " | ")
}
