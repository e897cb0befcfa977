package faultkv

import (
	"fmt"
	"time"
)

// Fault is what can go wrong.
type Fault int

// The faults, each with the calls that it can hit.
const (
	// None is no fault.
	None Fault = iota
	// Conflict: the commit is not made, and reported as kv.ErrNotCommitted. It
	// hits the commit of a transaction that has read something other than by a
	// snapshot read: nothing else can conflict.
	Conflict
	// UnknownCommitted: the commit is made, and reported as
	// kv.ErrCommitUnknown. It hits a commit that the engine makes. The
	// versionstamp of that run is not to be had, and its watches are cancelled.
	UnknownCommitted
	// UnknownNotCommitted: the commit is not made, and reported as
	// kv.ErrCommitUnknown.
	UnknownNotCommitted
	// TooOld: a read ends with kv.ErrTransactionTooOld, a range read at any of
	// its pairs or after the last, and so does all that the transaction reads
	// later; or the commit of a transaction that has read as for Conflict is
	// not made for that reason.
	TooOld
	// Delay: the result of a read comes later, by a time from Options.Delays
	// after the read was issued; or that time passes while the commit is under
	// way, a part of it before the commit is made and the rest after. A ctx
	// that ends meanwhile ends the delay, and makes the result of the commit
	// unknown.
	Delay
	// LostWatch: the watch does not notice the change.
	LostWatch
	// LateWatch: the watch ends up to Options.MaxLag after Wait could have
	// noticed the change.
	LateWatch
	// SpuriousWatch: the watch ends as soon as its transaction has committed,
	// also where it would find that it could not be armed.
	SpuriousWatch

	faults = iota // how many there are, with None
)

var faultNames = [faults]string{
	None:                "no fault",
	Conflict:            "conflict",
	UnknownCommitted:    "committed, reported unknown",
	UnknownNotCommitted: "not committed, reported unknown",
	TooOld:              "transaction too old",
	Delay:               "delay",
	LostWatch:           "lost watch",
	LateWatch:           "late watch",
	SpuriousWatch:       "spurious watch",
}

func (f Fault) String() string { return faultNames[f] }

// Op is a kind of call.
type Op int

// The kinds of calls that faults can hit.
const (
	// Read is Get, GetKey, GetRange or ReadVersion, which can be delayed only,
	// of a transaction or its snapshot.
	Read Op = iota
	// Commit is the commit of a transaction that has written something. A
	// transaction that only read has none.
	Commit
	// Watch is the watch of a transaction.
	Watch

	ops = iota // how many there are
)

var opNames = [ops]string{Read: "read", Commit: "commit", Watch: "watch"}

func (o Op) String() string { return opNames[o] }

// possible are the faults, apart from Delay, that can hit each kind of call. No
// more than one of them does.
var possible = [ops][]Fault{
	Read:   {TooOld},
	Commit: {Conflict, UnknownCommitted, UnknownNotCommitted, TooOld},
	Watch:  {LostWatch, LateWatch, SpuriousWatch},
}

// Call is one call to the store.
type Call struct {
	Op Op
	// N is the number of the call among those of its kind, from 1.
	N int
	// Transaction is the number of the call of Transact that it belongs to, from
	// 1, and Run that of the run of its function, from 1.
	Transaction, Run int
	// Unknown is how many commits of earlier runs were reported unknown.
	Unknown int
	// Key is the key that is read or watched, or that of the selector at which
	// a range begins. A commit has none, nor has ReadVersion.
	Key []byte
}

// Event is a fault that hit a call.
type Event struct {
	Call  Call
	Fault Fault
	// Delay is how long a Delay takes or a LateWatch lags.
	Delay time.Duration
}

// String returns a line such as "commit 12 (transaction 7, run 2): conflict".
func (e Event) String() string {
	call := fmt.Sprintf("%v %d (transaction %d, run %d)", e.Call.Op, e.Call.N, e.Call.Transaction, e.Call.Run)
	if e.Call.Key != nil {
		call += fmt.Sprintf(" of %q", e.Call.Key)
	}
	if e.Fault == Delay || e.Fault == LateWatch {
		return fmt.Sprintf("%s: %v of %v", call, e.Fault, e.Delay)
	}
	return fmt.Sprintf("%s: %v", call, e.Fault)
}

// Script decides which fault hits a call. One that cannot hit it is none. A script
// may be called by several goroutines at once.
type Script func(Call) Fault

// UnknownOnce is a [Script] that has each transaction that writes made once more
// after its commit: the commit of the first run that the engine commits is
// reported unknown.
func UnknownOnce(c Call) Fault {
	if c.Op == Commit && c.Unknown == 0 {
		return UnknownCommitted
	}
	return None
}

// At returns a [Script] that hits the n-th call of a kind, counted from 1, with f.
func At(op Op, n int, f Fault) Script {
	return func(c Call) Fault {
		if c.Op == op && c.N == n {
			return f
		}
		return None
	}
}
