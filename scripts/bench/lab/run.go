// Package lab starts what the scenarios measure, which are nodes of settee, CouchDBs and FoundationDBs, reads
// what processes have used, and prints reports. It needs Linux, which counts processor time in /proc.
package lab

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"settee/pkg/retry"
)

// Scenario is what the program can measure.
type Scenario struct {
	// Name is the first argument of the program.
	Name string
	// New returns the scenario for a run.
	New func(r *Run) Measurement
	// WithoutSettee says that no program of settee is needed.
	WithoutSettee bool
}

// Measurement is a scenario with its flags.
type Measurement interface {
	// Register adds the flags, and Check checks their values.
	Register(f *flag.FlagSet)
	Check() error
	// Measure adds what it measures to the run's report, which is printed even after an error.
	Measure(ctx context.Context) error
}

// Run is one run of a scenario. What it has started and written ends with it.
type Run struct {
	Report Report
	// Dir is a folder for files.
	Dir string
	// Settee is the path of the program, and Version the first line that settee version prints.
	Settee, Version string
	// Random decides when which source is written to.
	Random *rand.Rand

	// Fail ends the run with an error.
	Fail context.CancelCauseFunc

	limit    time.Duration // how long a step may take
	progress io.Writer
	ends     []func()
}

// ErrUsage is the error for wrong arguments. How the program is used has been printed then.
var ErrUsage = errors.New("wrong arguments")

// Execute runs the scenario that the arguments name, prints the progress, and returns the report, nil with ErrUsage.
func Execute(ctx context.Context, all []Scenario, args []string, progress io.Writer) (*Report, error) {
	at := slices.IndexFunc(all, func(one Scenario) bool { return len(args) > 0 && one.Name == args[0] })
	if at < 0 {
		names := make([]string, len(all))
		for i, one := range all {
			names[i] = one.Name
		}
		_, _ = fmt.Fprintf(progress, "usage: bench %s [flags]; -help lists the flags\n", strings.Join(names, "|"))
		return nil, ErrUsage
	}
	r := &Run{progress: progress}
	m := all[at].New(r)
	seed, page := uint64(0), ""
	flags := flag.NewFlagSet("bench "+args[0], flag.ContinueOnError)
	flags.SetOutput(progress)
	flags.StringVar(&r.Settee, "settee", "bin/settee", "the settee `program`")
	flags.DurationVar(&r.limit, "limit", time.Hour, "how long a step may take, such as the first run of all jobs")
	flags.Uint64Var(&seed, "seed", 1, "decides what happens at random")
	flags.StringVar(&page, "page", "", "a `file` in Markdown with a place for the tables, see docs/benchmarks.md")
	m.Register(flags)
	if err := flags.Parse(args[1:]); err != nil {
		return nil, ErrUsage
	}
	if err := check(flags, m); err != nil {
		_, _ = fmt.Fprintf(progress, "bench %s: %v\n", args[0], err)
		flags.Usage()
		return nil, ErrUsage
	}
	r.Random = newRandom(seed)
	err := r.run(ctx, m, all[at].WithoutSettee)
	if err == nil && page != "" {
		err = r.Report.Write(page, args[0])
	}
	return &r.Report, err
}

func newRandom(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// check checks the flags' values.
func check(flags *flag.FlagSet, m Measurement) (err error) {
	if flags.NArg() > 0 {
		return errors.New("a scenario takes no arguments")
	}
	flags.VisitAll(func(f *flag.Flag) {
		if text := f.Value.String(); strings.HasPrefix(text, "-") {
			err = fmt.Errorf("-%s must not be negative", f.Name)
		}
	})
	return errors.Join(err, m.Check())
}

// run measures.
func (r *Run) run(ctx context.Context, m Measurement, withoutSettee bool) (err error) {
	ctx, r.Fail = context.WithCancelCause(ctx)
	defer r.Fail(nil)
	if r.Dir, err = os.MkdirTemp("", "bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.Dir)) }()
	defer func() {
		for _, end := range slices.Backward(r.ends) {
			end()
		}
	}()
	if !withoutSettee {
		if err := r.findSettee(ctx); err != nil {
			return err
		}
	}
	err = m.Measure(ctx)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return err
}

// findSettee asks settee for its version.
func (r *Run) findSettee(ctx context.Context) (err error) {
	if r.Settee, err = filepath.Abs(r.Settee); err == nil {
		r.Version, err = Version(ctx, r.Settee, "version")
	}
	return err
}

// Version returns the first line that a program prints if it is asked for its version.
func Version(ctx context.Context, program, argument string) (string, error) {
	printed, err := exec.CommandContext(ctx, program, argument).Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", program, argument, err)
	}
	line, _, _ := strings.Cut(string(printed), "\n")
	return line, nil
}

// AtEnd has a function called when the run ends, before those that were added earlier.
func (r *Run) AtEnd(end func()) { r.ends = append(r.ends, end) }

// Go calls f beside the run, at whose end the context of f ends.
func (r *Run) Go(ctx context.Context, f func(context.Context)) {
	ctx, end := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	r.AtEnd(func() {
		end()
		running.Wait()
	})
}

// Say prints progress.
func (r *Run) Say(format string, args ...any) { _, _ = fmt.Fprintf(r.progress, format+"\n", args...) }

// Within calls f with a context that ends after -limit. If f fails because of that, the error says what takes too long.
func (r *Run) Within(ctx context.Context, what string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, r.limit, fmt.Errorf("%s takes longer than %s", what, r.limit))
	defer cancel()
	err := f(ctx)
	if cause := context.Cause(ctx); err != nil && !errors.Is(err, cause) {
		err = errors.Join(cause, err)
	}
	return err
}

// Poll calls check at intervals until it succeeds. When ctx ends, the error also says why check failed last.
func Poll(ctx context.Context, every time.Duration, check func(context.Context) error) error {
	for {
		failed := check(ctx)
		if failed == nil {
			return nil
		}
		if err := retry.Wait(ctx, every); err != nil {
			return errors.Join(err, failed)
		}
	}
}

// InOrder calls functions until one fails.
func InOrder(ctx context.Context, all ...func(context.Context) error) error {
	for _, one := range all {
		if err := one(ctx); err != nil {
			return err
		}
	}
	return nil
}
