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

// DefaultTimeout is the default of [Options].Timeout.
const DefaultTimeout = 60 * time.Second

// closingTime is how long Close lets a claim in progress continue. The jobs of an interrupted claim would wait for the
// activity monitor.
const closingTime = 5 * time.Second

// Layer is the jobs below one prefix of a store. It is safe for concurrent use.
type Layer struct {
	db    kv.Database
	space tuple.Subspace
	// sealer seals the args.
	sealer kv.Sealer
	// claimers is Options.Claimers.
	claimers func() int
	derive   map[string]Derivation
	timeout  time.Duration // Options.Timeout
	now      func() time.Time

	ctx     context.Context // for waiting calls; Close ends it at once
	close   context.CancelFunc
	claims  context.Context // for claims; Close ends it after closingTime
	abandon context.CancelFunc
	wg      sync.WaitGroup

	turnstile turnstile // nil in production

	mu     sync.Mutex // guards the fields below; never held during I/O
	random *rand.Rand
	queues map[string]*Queue
	closed bool
}

// Options are the options of [Open]. The zero value works.
type Options struct {
	// Sealer seals the stored args. The keys of lists and the state are not sealed. Default: nothing is sealed.
	Sealer kv.Sealer
	// Seed seeds all random choices of the layer: locks, and which of several jobs to take. Each process must have its
	// own. Default: a random seed.
	Seed [32]byte
	// Claimers returns the number of processes that accept jobs of a queue, as far as the caller knows: the more
	// there are, the less often each idle one looks for jobs. Default: 16.
	Claimers func() int
	// Derive says what follows from the jobs of a queue, by the queue's name. All processes must give the same, and so must
	// those that only check the store. Default: nothing follows from any job.
	Derive map[string]Derivation
	// Timeout is the activity timeout: a running job is queued again if its holder has not renewed its hold for so long. All
	// processes should use one value. If they differ, as during an upgrade, the holder's value counts: each renewal stores
	// it. So no monitor takes a job from a holder that still works on it, but a monitor with another value may queue the job
	// late, by at most the longer of the two values. Default: DefaultTimeout.
	Timeout time.Duration
	// Now is the clock: see "Clocks" in the package's doc comment. Timers are from package time. Default: time.Now.
	Now func() time.Time
}

// Open returns the job layer of db below prefix. It reads nothing and starts nothing. The caller calls Close before it
// closes db.
func Open(db kv.Database, prefix []byte, opts Options) *Layer {
	if opts.Seed == ([32]byte{}) {
		_, _ = cryptorand.Read(opts.Seed[:]) // never fails (crypto/rand.Read)
	}
	if opts.Sealer == nil {
		opts.Sealer = kv.Plain{}
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Claimers == nil {
		opts.Claimers = func() int { return 16 }
	}
	if opts.Timeout <= 0 {
		opts.Timeout = DefaultTimeout
	}
	l := &Layer{
		db: db, space: tuple.SubspaceFromBytes(prefix), sealer: opts.Sealer, now: opts.Now, claimers: opts.Claimers, derive: opts.Derive,
		timeout: opts.Timeout,
		random:  rand.New(rand.NewChaCha8(opts.Seed)), queues: map[string]*Queue{},
	}
	l.ctx, l.close = context.WithCancel(context.Background())
	l.claims, l.abandon = context.WithCancel(context.Background())
	return l
}

// Close ends all waiting calls with ErrClosed, and returns when the layer's goroutines have ended. If the store does
// not answer, that takes up to five seconds. Held jobs stay held, and can be finished.
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

// Queue returns the queue with a name, whether or not it has jobs. Further calls return the same value.
func (l *Layer) Queue(name string) *Queue {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q := l.queues[name]; q != nil {
		return q
	}
	q := newQueue(l, name)
	q.claimer = newClaimer(q)
	q.writer = &sharedWriter{queue: q, atOnce: sharedAtOnce}
	l.queues[name] = q
	return q
}

// Timeout returns the activity timeout of the queue's jobs: [Options].Timeout.
func (q *Queue) Timeout() time.Duration { return q.layer.timeout }

// start runs f in a goroutine that Close waits for. It reports false if the layer is closed.
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

// newID returns a new random id or lock.
func newID(random *rand.Rand) string {
	var b [16]byte
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return hex.EncodeToString(b[:])
}

// draw returns a source of random numbers for one transaction. It is seeded, so that a repeated function can draw the
// same numbers.
func (l *Layer) draw() *rand.Rand {
	l.mu.Lock()
	defer l.mu.Unlock()
	return rand.New(rand.NewPCG(l.random.Uint64(), l.random.Uint64()))
}

// Queue is a durable queue of jobs of one kind: what RFC 016 calls a job type. Its name is an element of all its keys.
type Queue struct {
	layer *Layer
	name  string
	keys  *keyspace
	share *fairShare
	// derivation is nil if nothing follows from the queue's jobs.
	derivation *Derivation

	bounds  bounds
	claimer *claimer
	writer  *sharedWriter
}

// newQueue returns a queue that neither accepts nor writes held jobs.
func newQueue(l *Layer, name string) *Queue {
	q := &Queue{layer: l, name: name, keys: newKeyspace(l.space, name)}
	q.share = &fairShare{keyspace: q.keys, queue: q}
	if d, has := l.derive[name]; has {
		q.derivation = &d
	}
	return q
}
