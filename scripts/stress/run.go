package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"settee/internal/seeds"
)

// errFailed says that a test failed, and that its output has been printed.
var errFailed = errors.New("a test failed")

// endTimeout is how long a test program may take to end after SIGINT.
const endTimeout = 10 * time.Second

// pkg is a package with tests.
type pkg struct {
	path, dir string
	program   string // of its tests

	tests, left int           // the number of its tests, and of those that have not ended
	longest     time.Duration // the longest run of a test
	longestTest string
}

// test is one test of a package.
type test struct {
	*pkg
	name string
	seed uint64
}

// report is where the results of all tests come together.
type report struct {
	mu     sync.Mutex
	out    io.Writer
	ran    int
	failed []string // the commands that repeat the runs
}

// stress runs the tests of packages. It returns errFailed if one of them fails.
func stress(ctx context.Context, o options, patterns []string, out io.Writer) error {
	dir, err := os.MkdirTemp("", "settee-stress-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	packages, err := list(ctx, o, patterns)
	if err != nil {
		return err
	}
	var tests []test
	for i, p := range packages {
		p.program = filepath.Join(dir, strconv.Itoa(i))
		names, err := p.build(ctx, o)
		if err != nil {
			return err
		}
		for _, name := range names {
			tests = append(tests, test{p, name, 0})
		}
	}
	if len(tests) == 0 {
		return errors.New("no test matches")
	}
	dice := rand.New(rand.NewPCG(o.seed, 0))
	dice.Shuffle(len(tests), func(i, j int) { tests[i], tests[j] = tests[j], tests[i] })
	_, _ = fmt.Fprintf(out, "seed %d: %d tests, each %d times with one processor and with all, %d at a time\n",
		o.seed, len(tests), o.n, o.copies)
	began := time.Now()
	r := &report{out: out}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(o.copies)
	for i, t := range tests {
		t.seed = o.seed + uint64(i)
		group.Go(func() error { return t.run(ctx, o, r) })
	}
	err = group.Wait()
	_, _ = fmt.Fprintf(out, "seed %d: %d of %d tests ran, %d failed, in %s\n",
		o.seed, r.ran, len(tests), len(r.failed), time.Since(began).Round(time.Second))
	for _, command := range r.failed {
		_, _ = fmt.Fprintf(out, "failed: %s\n", command)
	}
	if err == nil && len(r.failed) > 0 {
		err = errFailed
	}
	return err
}

// list returns the packages that have tests.
func list(ctx context.Context, o options, patterns []string) ([]*pkg, error) {
	const format = `{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}`
	printed, err := output(exec.CommandContext(ctx, "go", append([]string{"list", "-tags", o.tags, "-f", format}, patterns...)...))
	if err != nil {
		return nil, err
	}
	var packages []*pkg
	for line := range strings.Lines(printed) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		packages = append(packages, &pkg{path: path, dir: dir})
	}
	return packages, nil
}

// build builds the test program, and returns the names of the tests that -run selects.
func (p *pkg) build(ctx context.Context, o options) ([]string, error) {
	args := []string{"test", "-c", "-vet=off", "-ldflags=-w", "-tags", o.tags, "-o", p.program}
	if o.race {
		args = append(args, "-race")
	}
	if _, err := output(exec.CommandContext(ctx, "go", append(args, p.path)...)); err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, p.program, "-test.list", o.run)
	command.Dir = p.dir
	printed, err := output(command)
	if err != nil {
		return nil, err
	}
	var names []string
	for name := range strings.FieldsSeq(printed) {
		if strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz") || strings.HasPrefix(name, "Example") {
			names = append(names, name)
		}
	}
	p.left, p.tests = len(names), len(names)
	return names, nil
}

// output runs a command and returns its standard output. An error says what it has printed on standard error.
func output(command *exec.Cmd) (string, error) {
	var errs bytes.Buffer
	command.Stderr = &errs
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", command, err, errs.Bytes())
	}
	return string(out), nil
}

// run runs a test in a process of its own.
func (t test) run(ctx context.Context, o options, r *report) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	args := []string{
		"-test.run", "^" + t.name + "$", "-test.count", strconv.Itoa(o.n), "-test.cpu", fmt.Sprintf("1,%d", runtime.NumCPU()),
		"-test.failfast", "-test.timeout", o.timeout.String(), "-test.paniconexit0",
	}
	command := exec.CommandContext(ctx, t.program, args...)
	command.Dir = t.dir
	command.Env = append(os.Environ(), fmt.Sprintf("%s=%d", seeds.FirstVariable, t.seed))
	// A test that is interrupted ends the servers that it has started.
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGINT) }
	command.WaitDelay = endTimeout
	began := time.Now()
	printed, err := command.CombinedOutput()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return r.ended(t, o, time.Since(began), printed, err)
}

// ended counts a test that has ended, and prints its failure. It returns errFailed if no other test is to run.
func (r *report) ended(t test, o options, took time.Duration, printed []byte, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ran++
	t.left--
	if took > t.longest {
		t.longest, t.longestTest = took, t.name
	}
	if err != nil {
		command := t.repeat(o)
		r.failed = append(r.failed, command)
		_, _ = fmt.Fprintf(r.out, "%s\n%s %s failed after %s: %v\nseed %d; to repeat: %s\n",
			printed, t.path, t.name, took.Round(time.Millisecond), err, t.seed, command)
		if !o.keepGoing {
			return errFailed
		}
	}
	if t.left == 0 {
		_, _ = fmt.Fprintf(r.out, "%-40s %4d tests, the longest %s (%s)\n", t.path, t.tests, t.longest.Round(time.Millisecond), t.longestTest)
	}
	return nil
}

// repeat returns the command that repeats the run of a test.
func (t test) repeat(o options) string {
	flags := ""
	if o.race {
		flags = " -race"
	}
	if o.tags != "" {
		flags += " -tags '" + o.tags + "'"
	}
	return fmt.Sprintf("%s=%d go test%s -count %d -cpu 1,%d -run '^%s$' %s", seeds.FirstVariable, t.seed, flags, o.n, runtime.NumCPU(), t.name, t.path)
}
