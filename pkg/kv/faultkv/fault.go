package faultkv

import (
	"fmt"
	"time"
)

// Fault is a kind of fault.
type Fault int

// The faults, each with the calls that it can hit.
const (
	// None is no fault.
	None Fault = iota
	// Conflict: the commit is not made, and returns kv.ErrNotCommitted. It hits the commit of a transaction with reads
	// other than snapshot reads. Others cannot conflict.
	Conflict
	// UnknownCommitted: the commit is made, and returns kv.ErrCommitUnknown. It hits a commit that the engine makes.
	// The watches of that run are cancelled.
	UnknownCommitted
	// UnknownNotCommitted: the commit is not made, and returns kv.ErrCommitUnknown.
	UnknownNotCommitted
	// TooOld: a read returns kv.ErrTransactionTooOld, a range read at any of its pairs or after the last, and so do all
	// later reads of the transaction. Or the commit of a transaction with reads as for Conflict is not made, for that
	// reason.
	TooOld
	// Delay: the result of a read is late by a time from Options.Delays after the read was issued. Or a commit takes
	// that much longer, a part of it before the commit is made and the rest after. If ctx ends meanwhile, the delay
	// ends, and the result of the commit is unknown.
	Delay
	// LostWatch: the watch misses the change.
	LostWatch
	// LateWatch: the watch ends up to Options.MaxLag after Wait could have noticed the change.
	LateWatch
	// SpuriousWatch: the watch ends as soon as its transaction has committed, even if it could not have been armed.
	SpuriousWatch

	faults = iota // the number of faults, with None
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
	// Read is Get, GetRange, ReadVersion or MetadataVersion of a transaction or its snapshot. The versions can only be
	// delayed.
	Read Op = iota
	// Commit is the commit of a transaction that has written something. A transaction that only reads has none.
	Commit
	// Watch is the watch of a transaction.
	Watch

	ops = iota // the number of kinds
)

var opNames = [ops]string{Read: "read", Commit: "commit", Watch: "watch"}

func (o Op) String() string { return opNames[o] }

// possible are the faults other than Delay that can hit each kind of call, at most one at a time.
var possible = [ops][]Fault{
	Read:   {TooOld},
	Commit: {Conflict, UnknownCommitted, UnknownNotCommitted, TooOld},
	Watch:  {LostWatch, LateWatch, SpuriousWatch},
}

// Call is one call to the store.
type Call struct {
	Op Op
	// N is the number of the call among the calls of its kind, from 1.
	N int
	// Transaction is the number of the call of Transact, from 1, and Run the number of the run of its function, from 1.
	Transaction, Run int
	// Unknown is the number of earlier runs whose commits were reported unknown.
	Unknown int
	// Key is the key that is read or watched, or the begin of a range. Commit and the versions have none.
	Key []byte
}

// Event is a fault that hit a call.
type Event struct {
	Call  Call
	Fault Fault
	// Delay is the length of a Delay or the lag of a LateWatch.
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

// Script decides which fault hits a call. A fault that cannot hit the call is ignored. Several goroutines may call it
// at the same time.
type Script func(Call) Fault

// UnknownOnce is a [Script] that repeats each writing transaction once after its commit: the first commit that the
// engine makes is reported unknown.
func UnknownOnce(c Call) Fault {
	if c.Op == Commit && c.Unknown == 0 {
		return UnknownCommitted
	}
	return None
}

// At returns a [Script] that hits the nth call of a kind, from 1, with f.
func At(op Op, n int, f Fault) Script {
	return func(c Call) Fault {
		if c.Op == op && c.N == n {
			return f
		}
		return None
	}
}
