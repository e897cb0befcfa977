package pebblekv_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"settee/internal/seeds"
	"settee/pkg/kv"
	"settee/pkg/kv/memkv"
	"settee/pkg/kv/pebblekv"
)

// TestMetamorphic runs random programs of interleaved transactions on memkv and
// on pebblekv, which must give the same results and errors.
func TestMetamorphic(t *testing.T) {
	t.Parallel()
	seeds.Each(t, rand.Uint64(), 25, func(t *testing.T, seed uint64) {
		onDisk, inMemory := runProgram(t, seed, newDiskEngine(t)), runProgram(t, seed, newMemoryEngine(t))
		if !slices.Equal(onDisk, inMemory) {
			at := 0
			for at < min(len(onDisk), len(inMemory)) && onDisk[at] == inMemory[at] {
				at++
			}
			upTo := func(trace []string) string { return strings.Join(trace[:min(at+1, len(trace))], "\n") }
			require.Equal(t, upTo(inMemory), upTo(onDisk), "memkv (expected) and pebblekv (actual) differ")
		}
	})
}

// engine is a store under test that can be closed and opened again.
type engine struct {
	clock
	db     kv.Database
	reopen func() kv.Database // nil where there is nothing to open again
}

func newMemoryEngine(t *testing.T) *engine {
	e := &engine{}
	db, err := memkv.Open(memkv.Options{Now: e.Now})
	require.NoError(t, err)
	e.db = db
	return e
}

func newDiskEngine(t *testing.T) *engine {
	e := &engine{}
	opts := pebblekv.WithMemTables(pebblekv.Options{FS: vfs.NewMem(), Now: e.Now}, 32<<10)
	e.reopen = func() kv.Database { return open(t, "/store", opts) }
	e.db = e.reopen()
	return e
}

// program runs random operations and writes down what they give.
type program struct {
	t       *testing.T
	engine  *engine
	random  *rand.Rand
	trace   []string
	open    []*session // the transactions under way
	watches []kv.Watch
	stamps  int // of the running transaction's stamped writes
}

func runProgram(t *testing.T, seed uint64, e *engine) []string {
	p := &program{t: t, engine: e, random: rand.New(rand.NewPCG(seed, 0))}
	for range 600 {
		p.act()
	}
	for len(p.open) > 0 {
		p.end()
	}
	p.note("contents: %s", p.contents())
	require.NoError(t, p.engine.db.Close())
	return p.trace
}

func (p *program) note(format string, args ...any) {
	p.trace = append(p.trace, fmt.Sprintf("%d: ", len(p.trace))+fmt.Sprintf(format, args...))
}

// act does one random thing.
func (p *program) act() {
	switch n := p.random.IntN(100); {
	case len(p.open) == 0 || n < 4 && len(p.open) < 5:
		p.open = append(p.open, begin(p.engine.db))
	case n < 12:
		p.end()
	case n < 15:
		d := time.Duration(p.random.IntN(2000)) * time.Millisecond
		p.engine.Advance(d)
		p.note("advance %v", d)
	case n == 15:
		for len(p.open) > 0 {
			p.end()
		}
		if p.engine.reopen != nil {
			require.NoError(p.t, p.engine.db.Close())
			p.engine.db = p.engine.reopen()
		}
		for _, w := range p.watches {
			w.Cancel()
		}
		p.watches = nil
		p.note("reopen")
	default:
		s := p.open[p.random.IntN(len(p.open))]
		name, operate := p.operation(s)
		require.NoError(p.t, s.do(func(tx kv.Transaction) { p.note("%s: %s", name, operate(tx)) }))
	}
}

// end ends a transaction, mostly with a commit, and notes what became of it and
// which watches have ended.
func (p *program) end() {
	i := p.random.IntN(len(p.open))
	s := p.open[i]
	p.open = slices.Delete(p.open, i, i+1)
	err := s.end(p.random.IntN(8) > 0)
	var stamp kv.Versionstamp
	var noStamp error = kv.ErrNoCommitVersion
	if s.stamp != nil {
		stamp, noStamp = s.stamp.Await()
	}
	p.watches = append(p.watches, s.watches...)
	ended := []string{}
	for i, w := range p.watches {
		if err := w.Wait(expired); !errors.Is(err, context.Canceled) {
			ended = append(ended, fmt.Sprint(i, " ", err))
		}
	}
	p.note("end: %v, stamp %x %v, watches %v", err, stamp, noStamp, ended)
}

// expired is a context that has ended.
var expired = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func (p *program) contents() string {
	var text string
	err := p.engine.db.Transact(p.t.Context(), func(tx kv.Transaction) error {
		text = pairs(tx.GetRange(kv.PrefixRange(nil), kv.RangeOptions{}).Slice())
		return nil
	})
	require.NoError(p.t, err)
	return text
}

// session is a transaction that does what it is told.
type session struct {
	orders  chan func(tx kv.Transaction) error
	done    chan error
	stamp   kv.Future[kv.Versionstamp]
	watches []kv.Watch
}

var (
	errNext     = errors.New("next")
	errRollback = errors.New("rolled back")
	errConflict = errors.New("ran again")
)

// begin begins a transaction in a goroutine of its own, in which it stays until
// end. Only one of all sessions runs at a time.
func begin(db kv.Database) *session {
	s := &session{orders: make(chan func(tx kv.Transaction) error), done: make(chan error)}
	go func() {
		var cause error
		s.done <- db.Transact(context.Background(), func(tx kv.Transaction) error {
			if cause != nil {
				return errConflict
			}
			cause = errConflict
			s.stamp = tx.Versionstamp()
			for order := range s.orders {
				if err := order(tx); !errors.Is(err, errNext) {
					return err
				}
				s.done <- nil
			}
			return nil
		})
	}()
	return s
}

// do runs one operation.
func (s *session) do(operate func(tx kv.Transaction)) error {
	s.orders <- func(tx kv.Transaction) error {
		operate(tx)
		return errNext
	}
	return <-s.done
}

// end ends the transaction and returns what Transact returned.
func (s *session) end(commit bool) error {
	s.orders <- func(kv.Transaction) error {
		if commit {
			return nil
		}
		return errRollback
	}
	return <-s.done
}

// key returns one of few keys, so that transactions meet.
func (p *program) key() []byte {
	if p.random.IntN(200) == 0 {
		return [][]byte{{}, []byte("\xff"), []byte("\xff/x"), make([]byte, kv.MaxKeySize+2)}[p.random.IntN(4)]
	}
	return fmt.Appendf(nil, "%02d", p.random.IntN(30))
}

func (p *program) keyRange() kv.KeyRange {
	a, b := p.key(), p.key()
	if string(a) > string(b) && p.random.IntN(50) > 0 {
		a, b = b, a
	}
	return kv.KeyRange{Begin: a, End: b}
}

func (p *program) selector() kv.KeySelector {
	return kv.KeySelector{Key: p.key(), OrEqual: p.random.IntN(2) == 0, Offset: p.random.IntN(15) - 7}
}

func (p *program) value() []byte {
	if p.random.IntN(20) == 0 {
		return make([]byte, p.random.IntN(4000))
	}
	value := make([]byte, p.random.IntN(5))
	for i := range value {
		value[i] = byte(p.random.Uint32())
	}
	return value
}

// stamped ends b, at a place in it, with the offset of a stamp.
func (p *program) stamped(b []byte) []byte {
	p.stamps++
	offset := len(b)
	b = append(b, make([]byte, 10)...)
	b = binary.BigEndian.AppendUint16(b, uint16(p.stamps))
	if p.random.IntN(50) == 0 {
		offset += 3 // there is no room
	}
	return binary.LittleEndian.AppendUint32(b, uint32(offset))
}

// operation draws an operation, and everything that it needs, and returns it
// with its name.
func (p *program) operation(s *session) (name string, operate func(tx kv.Transaction) string) {
	if p.random.IntN(2) == 0 {
		return p.readOperation()
	}
	key, value, r := p.key(), p.value(), p.keyRange()
	apply := func(name string, write func(tx kv.Transaction)) (string, func(tx kv.Transaction) string) {
		return name, func(tx kv.Transaction) string {
			write(tx)
			return ""
		}
	}
	switch p.random.IntN(14) {
	case 0, 1, 2:
		return apply(fmt.Sprintf("set %q %.10q", key, value), func(tx kv.Transaction) { tx.Set(key, value) })
	case 3:
		return apply(fmt.Sprintf("clear %q", key), func(tx kv.Transaction) { tx.Clear(key) })
	case 4:
		return apply(fmt.Sprintf("clear %q", r), func(tx kv.Transaction) { tx.ClearRange(r) })
	case 5, 6, 7:
		op := kv.MutationType(p.random.IntN(5))
		return apply(fmt.Sprintf("atomic %d %q %.10q", op, key, value), func(tx kv.Transaction) { tx.Atomic(op, key, value) })
	case 8:
		key = p.stamped(key)
		return apply(fmt.Sprintf("stamp key %q", key), func(tx kv.Transaction) { tx.SetVersionstampedKey(key, value) })
	case 9:
		value = p.stamped(value)
		return apply(fmt.Sprintf("stamp value of %q", key), func(tx kv.Transaction) { tx.SetVersionstampedValue(key, value) })
	case 10:
		return apply(fmt.Sprintf("read conflict %q", key), func(tx kv.Transaction) { tx.AddReadConflictKey(key) })
	case 11:
		return apply(fmt.Sprintf("read conflict %q", r), func(tx kv.Transaction) { tx.AddReadConflictRange(r) })
	case 12:
		return apply(fmt.Sprintf("write conflict %q", r), func(tx kv.Transaction) { tx.AddWriteConflictRange(r) })
	default:
		return apply(fmt.Sprintf("watch %q", key), func(tx kv.Transaction) { s.watches = append(s.watches, tx.Watch(key)) })
	}
}

func (p *program) readOperation() (name string, operate func(tx kv.Transaction) string) {
	key, r, sel := p.key(), p.keyRange(), p.selector()
	selectors := kv.SelectorRange{Begin: p.selector(), End: p.selector()}
	opts := kv.RangeOptions{Limit: p.random.IntN(5), Reverse: p.random.IntN(2) == 0, Mode: kv.StreamingMode(p.random.IntN(2))}
	stop, snapshot := p.random.IntN(10), p.random.IntN(3) == 0
	view := func(tx kv.Transaction) kv.ReadTransaction {
		if snapshot {
			return tx.Snapshot()
		}
		return tx
	}
	switch p.random.IntN(6) {
	case 0, 1:
		return fmt.Sprintf("get %q", key), func(tx kv.Transaction) string {
			value, err := view(tx).Get(key).Await()
			return fmt.Sprintf("%q %t %v", value, value == nil, err)
		}
	case 2:
		return fmt.Sprintf("key %+v", sel), func(tx kv.Transaction) string {
			got, err := view(tx).GetKey(sel).Await()
			return fmt.Sprintf("%q %v", got, err)
		}
	case 3:
		return fmt.Sprintf("range %q %+v", r, opts), func(tx kv.Transaction) string {
			return pairs(view(tx).GetRange(r, opts).Slice())
		}
	case 4:
		return fmt.Sprintf("range %+v %+v", selectors, opts), func(tx kv.Transaction) string {
			return pairs(view(tx).GetRange(selectors, opts).Slice())
		}
	default:
		return fmt.Sprintf("range %q %+v up to %d", r, opts, stop), func(tx kv.Transaction) string {
			var taken []kv.KeyValue
			for pair, err := range view(tx).GetRange(r, opts).All() {
				if err != nil {
					return pairs(taken, err)
				}
				if taken = append(taken, pair); len(taken) > stop {
					break
				}
			}
			return pairs(taken, nil)
		}
	}
}

func pairs(list []kv.KeyValue, err error) string {
	var text strings.Builder
	for _, pair := range list {
		fmt.Fprintf(&text, "%q=%.20q/%d ", pair.Key, pair.Value, len(pair.Value))
	}
	fmt.Fprintf(&text, "%v", err)
	return text.String()
}
