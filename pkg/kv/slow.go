package kv

import (
	"reflect"
	"runtime"
	"strings"
	"time"
)

// DefaultSlowAfter is the default of Options.SlowAfter.
const DefaultSlowAfter = 30 * time.Second

// Options are the options of all engines. The zero value works.
type Options struct {
	// Slow, if not nil, is called when a transaction is repeated although it has already run for SlowAfter, and again
	// each time that this time has doubled. It must not wait.
	Slow func(Slow)
	// SlowAfter is the time after which a transaction that is repeated is slow. 0 is DefaultSlowAfter.
	SlowAfter time.Duration
	// CacheBytes is the memory of an embedded store's cache, in bytes. 0 is the engine's default.
	CacheBytes int64
	// OpenFiles is about how many files an embedded store keeps open. 0 is the engine's default.
	OpenFiles int
	// Existing makes opening an embedded store fail if there is none, instead of creating it.
	Existing bool
}

// Slow is a transaction that has run for long, over all its runs.
type Slow struct {
	// Name is the function that called [Database.Transact], in which function, and in which again. Functions of this
	// package and the engines are left out.
	Name string
	Took time.Duration
	// Runs is the number of runs so far, and Err the error that ended the last one.
	Runs int
	Err  error
	// Again says that the transaction has been reported before.
	Again bool
}

// Runs are the runs of a transaction. An engine calls Failed in the goroutine that called Transact. The zero value
// reports nothing.
type Runs struct {
	opts   Options
	began  time.Time
	count  int
	report time.Duration // after began, when to report
	again  bool          // it was reported
}

// Runs begins the runs of a transaction.
func (o Options) Runs() Runs {
	if o.Slow == nil {
		return Runs{}
	}
	after := o.SlowAfter
	if after == 0 {
		after = DefaultSlowAfter
	}
	return Runs{opts: o, began: time.Now(), report: after}
}

// Failed counts a run that ended with err and will be repeated.
func (r *Runs) Failed(err error) {
	if r.opts.Slow == nil {
		return
	}
	r.count++
	took := time.Since(r.began)
	if took < r.report {
		return
	}
	again := r.again
	r.report, r.again = 2*took, true
	r.opts.Slow(Slow{Name: callers(), Took: took, Runs: r.count, Err: err, Again: again})
}

// namedCallers is the number of functions in the name of a transaction.
const namedCallers = 3

// ownPath is the path of this package. The engines lie below it.
var ownPath = reflect.TypeFor[Runs]().PkgPath()

// callers returns the innermost functions outside of this package and the packages below it.
func callers() string {
	var counters [50]uintptr
	frames := runtime.CallersFrames(counters[:runtime.Callers(1, counters[:])])
	var names []string
	for more := true; more && len(names) < namedCallers; {
		var frame runtime.Frame
		frame, more = frames.Next()
		rest, own := strings.CutPrefix(frame.Function, ownPath)
		if own && (rest[0] == '.' || rest[0] == '/') {
			continue
		}
		names = append(names, frame.Function[strings.LastIndexByte(frame.Function, '/')+1:])
	}
	return strings.Join(names, " in ")
}
