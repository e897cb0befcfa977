package levels

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// First is the lowest level, and the level of a store without the key.
const First int64 = 1

// Options are the options of [Open].
type Options struct {
	// Key is the key of the level.
	Key []byte
	// Own is the level of this process's release. The process also knows Own-1.
	Own int64
	// Release is the name of this process's release, for messages of other processes.
	Release string
	// Conversions are the levels of the two that have a [Conversion].
	Conversions []int64
	// Unknown, if not nil, is called once, when a transaction has found a level that this process does not know. It must
	// not wait.
	Unknown func(*UnknownLevelError)
}

func (o *Options) converts(level int64) bool { return slices.Contains(o.Conversions, level) }

// UnknownLevelError is the error of a transaction in a process that does not know the level of the store.
type UnknownLevelError struct {
	Level   int64  // of the store
	Release string // the release that raised it, "" if that is not known
	Own     int64  // the highest level that the process knows
}

// TooOld reports whether the process is older than the store allows. Otherwise the process is too new.
func (e *UnknownLevelError) TooOld() bool { return e.Level > e.Own }

func (e *UnknownLevelError) Error() string {
	by := ""
	if e.Release != "" {
		by = fmt.Sprintf(" (of version %s)", e.Release)
	}
	what := "start a later version"
	switch {
	case e.TooOld() && e.Release != "":
		what = "start version " + e.Release + ", or a later one"
	case !e.TooOld():
		what = "start the versions between first, one after the other, and raise the level with each (settee upgrade)"
	}
	return fmt.Sprintf("the store has level %d%s, and this version knows only %s: %s", e.Level, by, known(e.Own), what)
}

// known names the levels that a process with its own level knows.
func known(own int64) string {
	if own == First {
		return fmt.Sprint(own)
	}
	return fmt.Sprintf("%d and %d", own-1, own)
}

// Guard is a [kv.Database] in which all transactions depend on the level of the store: see the package's doc comment.
type Guard struct {
	kv.Database
	opts   Options
	last   atomic.Pointer[reading]
	report sync.Once
}

// reading is what was read of the level.
type reading struct {
	metadata kv.Versionstamp // at which it was read
	level    int64
	release  string
}

// Open returns db with a guard. It fails with [*UnknownLevelError] if the process does not know the level of the store.
func Open(ctx context.Context, db kv.Database, opts Options) (*Guard, error) {
	g := &Guard{Database: db, opts: opts}
	return g, g.Transact(ctx, func(kv.Transaction) error { return nil })
}

// Unwrap returns the database without the guard: see kv.Writable.
func (g *Guard) Unwrap() kv.Database { return g.Database }

// Transact implements kv.Database. It returns [*UnknownLevelError] if the process does not know the level of the store.
// If fn has run before that in the same call, an earlier run may have been committed. The error is then joined with
// [kv.ErrCommitUnknown].
func (g *Guard) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	ran := false
	err := g.Database.Transact(ctx, func(tx kv.Transaction) error {
		if err := g.check(tx); err != nil {
			return err
		}
		ran = true
		return fn(tx)
	})
	unknown, is := errors.AsType[*UnknownLevelError](err)
	if !is {
		return err
	}
	if g.opts.Unknown != nil {
		g.report.Do(func() { g.opts.Unknown(unknown) })
	}
	if ran {
		return errors.Join(err, kv.ErrCommitUnknown)
	}
	return err
}

// check returns an error if this process does not know the level that a transaction sees.
func (g *Guard) check(tx kv.Transaction) error {
	r, err := g.read(tx)
	if err != nil {
		return err
	}
	if r.level > g.opts.Own || r.level < g.opts.Own-1 {
		return &UnknownLevelError{Level: r.level, Release: r.release, Own: g.opts.Own}
	}
	return nil
}

// Check returns [*UnknownLevelError] if a process with these options does not know the level that a transaction sees. It
// makes the transaction depend on that level. It is for transactions before [Open].
func Check(tx kv.Transaction, opts Options) error { return (&Guard{opts: opts}).check(tx) }

// read returns the level that a transaction sees, and makes the transaction depend on it.
func (g *Guard) read(tx kv.Transaction) (*reading, error) {
	tx.AddReadConflictKey(g.opts.Key)
	metadata, err := tx.MetadataVersion().Await()
	if err != nil {
		return nil, err
	}
	last := g.last.Load()
	if last != nil && last.metadata == metadata {
		return last, nil
	}
	value, err := tx.Get(g.opts.Key).Await()
	if err != nil {
		return nil, err
	}
	r := &reading{metadata: metadata, level: First}
	if value != nil {
		if r.level, r.release, err = parse(value); err != nil {
			return nil, err
		}
	}
	for last == nil || string(last.metadata[:]) < string(metadata[:]) {
		if g.last.CompareAndSwap(last, r) {
			break
		}
		last = g.last.Load()
	}
	return r, nil
}

func parse(value []byte) (level int64, release string, err error) {
	elements, err := tuple.Unpack(value)
	if err != nil || len(elements) != 2 || !rows.As(elements[0], &level) || !rows.As(elements[1], &release) {
		return 0, "", errors.New("the store's level has a form that is not known")
	}
	return level, release, nil
}

// Known reports whether a row whose key begins with the key of a level is one that this package writes.
func Known(key []byte, row kv.KeyValue) bool {
	rest, err := tuple.Unpack(row.Key[len(key):])
	var level int64
	switch {
	case err == nil && len(rest) == 0:
		_, _, err = parse(row.Value)
	case err != nil || len(rest) != 1 || !rows.As(rest[0], &level) || level <= First:
		return false
	default:
		_, err = parseConversion(row.Value)
	}
	return err == nil
}

// Level returns the level that a transaction of this guard sees. It is First or higher, and one of the two that the
// process knows. If the transaction is committed, the store still had this level then. It is not for a transaction that
// has changed the level.
func (g *Guard) Level(tx kv.Transaction) (int64, error) {
	r, err := g.read(tx)
	if err != nil {
		return 0, err
	}
	return r.level, nil
}

// Reached reports whether a transaction of this guard may rely on a level: the store has it or a higher one, and still has
// when the transaction is committed. It costs no round trip.
func (g *Guard) Reached(tx kv.Transaction, level int64) (bool, error) {
	now, err := g.Level(tx)
	return err == nil && now >= level, err
}

// Own returns the level of this process's release.
func (g *Guard) Own() int64 { return g.opts.Own }

// Latest returns the level that was read last. It uses no transaction, and may be out of date by the time since the last
// transaction of this process.
func (g *Guard) Latest() int64 { return g.last.Load().level }

// Raise raises the store to the level of this process, in one transaction. check is called in it, and may refuse with an
// error. If the store has the level already, Raise does nothing. It reports whether it raised the level, or an earlier
// run of its transaction may have. The error is a [*ConvertingError] while rows of the store's level have to be converted.
func (g *Guard) Raise(ctx context.Context, check func(kv.Transaction) error) (raised bool, err error) {
	err = g.Transact(ctx, func(tx kv.Transaction) error {
		switch level, yet, err := g.converting(tx); {
		case err != nil:
			return err
		case level == g.opts.Own:
			return nil
		case yet:
			return &ConvertingError{level}
		}
		if err := check(tx); err != nil {
			return err
		}
		raised = true
		set(tx, g.opts)
		return nil
	})
	if err == nil && raised {
		err = g.Transact(ctx, func(kv.Transaction) error { return nil }) // for Latest
	}
	return raised && err == nil, err
}

// Set gives a store the level of opts, without looking at the level that it has. It is for a new store, before any process
// has opened it with a guard. There are no rows to convert.
func Set(tx kv.Transaction, opts Options) {
	set(tx, opts)
	if opts.converts(opts.Own) {
		setConversion(tx, opts.Key, opts.Own, conversion{done: true})
	}
}

func set(tx kv.Transaction, opts Options) {
	tx.Set(opts.Key, tuple.Tuple{opts.Own, opts.Release}.Pack())
	tx.ChangeMetadataVersion()
}
