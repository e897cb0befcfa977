package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ErrNotInstalled says that this machine does not have a server.
var ErrNotInstalled = errors.New("not installed")

const (
	// startLimit is how long a server may take to answer its first request. It bounds a start that would
	// otherwise wait for ever; an idle machine takes seconds.
	startLimit = 5 * time.Minute
	// portTries is how many free ports a start tries if other processes take them first.
	portTries = 5
	// askLimit is how long one question to a server that is starting may take.
	askLimit = 15 * time.Second
	// poll is the pause between two questions to a server that is starting.
	poll = 50 * time.Millisecond
	// shownLines is how many of the last lines of a log an error has.
	shownLines = 5
)

var errPortTaken = errors.New("another process has its port")

// Process is a process that does not outlive its owner, in a process group of its own.
type Process struct {
	command *exec.Cmd
	output  string // the file with what it prints
	guard   *exec.Cmd
	alive   io.Closer // the guard kills the process group when this end of its pipe is closed

	// No goroutine waits for the process: one that is shared by all tests would be left at their end.
	mu     sync.Mutex
	reaped bool // it has exited, and its number may be another's
	killed bool
}

// guardScript reads the process group's number, waits for the end of its standard input, kills the group, and
// removes the directory that is its argument, if any.
const guardScript = `read -r group || exit 0
cat >/dev/null
kill -s KILL -- "-$group" 2>/dev/null
[ -z "$1" ] || rm -rf "$1"`

// Run starts a command with its output appended to a file. If this process ends before the command does, the
// guard kills the command and removes a directory (empty for none).
func Run(command *exec.Cmd, output, remove string) (*Process, error) {
	file, err := os.OpenFile(output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	// The guard is started first, so that no server is ever without one for longer than a write takes.
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
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Stdout, command.Stderr = file, file
	if err := command.Start(); err != nil {
		p.dismiss()
		return nil, err
	}
	if _, err := fmt.Fprintln(pipe, command.Process.Pid); err != nil {
		p.Kill()
		return nil, fmt.Errorf("telling the guard of %s: %w", command.Path, err)
	}
	return p, nil
}

// Kill ends the process and its children with SIGKILL, and returns when the process has exited. A second call
// does nothing.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.killed {
		return
	}
	p.killed = true
	_ = p.Signal(syscall.SIGKILL) // children may be left of a process that has exited
	if !p.reaped {
		_, _ = p.command.Process.Wait() // how it ended is known
		p.reaped = true
	}
	p.dismiss()
}

// PID returns the process's number.
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

// dismiss ends the guard without an action of its own, so that it cannot kill a stranger that has the number
// of a process group that has ended.
func (p *Process) dismiss() {
	_ = p.guard.Process.Kill()
	_ = p.guard.Wait()
	_ = p.alive.Close()
}

// Signal sends a signal to the process and its children.
func (p *Process) Signal(s syscall.Signal) error {
	return syscall.Kill(-p.command.Process.Pid, s)
}

// await returns when ready returns true. It fails if the process exits, if ready returns an error, or after
// startLimit.
func (p *Process) await(ctx context.Context, ready func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		if p.Exited() {
			return p.exitError()
		}
		if ok, err := within(ctx, ready); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no answer: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// within asks once, for askLimit at most.
func within(ctx context.Context, ready func(context.Context) (bool, error)) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	return ready(ctx)
}

// exitError says why a process has exited by itself, as far as its output tells.
func (p *Process) exitError() error {
	text, err := os.ReadFile(p.output)
	if err != nil {
		return err
	}
	for _, words := range []string{"eaddrinuse", "address in use"} { // CouchDB's and FoundationDB's
		if bytes.Contains(bytes.ToLower(text), []byte(words)) {
			return errPortTaken
		}
	}
	return errors.New("it exited")
}

// FreePorts returns ports of 127.0.0.1 that nothing listens on at the moment, all different.
func FreePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("looking for a free port: %w", err)
		}
		defer listener.Close() // after all have been found
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// retryPort calls start, again if another process took the port meanwhile.
func retryPort(start func() error) error {
	for try := 1; ; try++ {
		if err := start(); !errors.Is(err, errPortTaken) || try == portTries {
			return err
		}
	}
}

// lastLines returns the end of a log, as one line.
func lastLines(log string) string {
	text, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	lines = lines[max(0, len(lines)-shownLines):]
	return strings.Join(lines, " | ")
}
