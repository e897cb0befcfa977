package fdbjobs

import (
	"context"
	cryptorand "crypto/rand"
	"encoding/hex"
	"math/rand/v2"
	"sync"
	"time"

	"settee/pkg/kv"
	"settee/pkg/tuple"
)

// DefaultTimeout is the activity timeout of a type that was given none.
const DefaultTimeout = 60 * time.Second

// reread is how long something is waited for before the store is read again: a
// watch may miss a change (package kv, "Watches").
const reread = 30 * time.Second

// closingTime is how long Close lets a claim go on that is under way: the jobs of
// one that is cut off would wait for the activity monitor.
const closingTime = 5 * time.Second

// Layer is the jobs below one prefix of a store. It is safe for concurrent use.
type Layer struct {
	db    kv.Database
	space tuple.Subspace
	// sealer is of the args.
	sealer kv.Sealer

	ctx     context.Context // of waiting; Close ends it at once
	close   context.CancelFunc
	claims  context.Context // of claims; Close ends it after closingTime
	abandon context.CancelFunc
	wg      sync.WaitGroup

	turnstile turnstile // nil in production

	mu     sync.Mutex // guards what follows; never held during I/O
	random *rand.Rand
	types  map[string]*Type
	closed bool
}

// Open returns the job layer of db below prefix. It reads nothing and starts
// nothing yet. Whoever uses it calls Close before the store's.
func Open(db kv.Database, prefix []byte) *Layer {
	var seed [32]byte
	_, _ = cryptorand.Read(seed[:]) // never fails (crypto/rand.Read)
	return OpenSeeded(db, prefix, seed)
}

// OpenSeeded is Open with the seed of all that the layer draws at random: locks,
// and which of several jobs to take. Two processes must not have the same.
func OpenSeeded(db kv.Database, prefix []byte, seed [32]byte) *Layer {
	l := &Layer{
		db: db, space: tuple.SubspaceFromBytes(prefix), sealer: kv.Plain{},
		random: rand.New(rand.NewChaCha8(seed)), types: map[string]*Type{},
	}
	l.ctx, l.close = context.WithCancel(context.Background())
	l.claims, l.abandon = context.WithCancel(context.Background())
	return l
}

// Close ends all waiting, with ErrClosed, and returns when the layer's
// goroutines have ended, after five seconds at most of a store that does not
// answer. Jobs that are held stay held, and can be finished.
func (l *Layer) Close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.close()
	timer := time.AfterFunc(closingTime, l.abandon)
	defer timer.Stop()
	l.wg.Wait()
	l.abandon()
}

// Type returns the jobs of that type. It costs nothing to call it again.
func (l *Layer) Type(name string) *Type {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.types[name]; t != nil {
		return t
	}
	t := &Type{layer: l, name: name, keys: newKeyspace(l.space, name)}
	t.claimer = newClaimer(t)
	t.subscribers = subscribers{typ: t, waiting: map[string]map[*waiter]struct{}{}, wake: make(chan struct{}, 1)}
	l.types[name] = t
	return t
}

// start runs f in a goroutine that Close waits for, unless the layer was closed.
func (l *Layer) start(name string, f func(ctx context.Context)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	ctx := l.named(l.ctx, name)
	l.wg.Go(func() {
		l.pass(ctx)
		f(ctx)
	})
	return true
}

// newLock draws a name for one holding of one job.
func (l *Layer) newLock() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newID()
}

// newID draws a name for something. The caller holds mu.
func (l *Layer) newID() string {
	var b [16]byte
	for i := range b {
		b[i] = byte(l.random.Uint32())
	}
	return hex.EncodeToString(b[:])
}

// draw returns a source of random numbers for one transaction: seeded, so that a
// function that runs again can draw the same.
func (l *Layer) draw() *rand.Rand {
	l.mu.Lock()
	defer l.mu.Unlock()
	return rand.New(rand.NewPCG(l.random.Uint64(), l.random.Uint64()))
}

// Type is the jobs of one type.
type Type struct {
	layer *Layer
	name  string
	keys  keyspace

	claimer     *claimer
	subscribers subscribers
}

// Name returns the type's name.
func (t *Type) Name() string { return t.name }
