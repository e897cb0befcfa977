package nodes

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/serverbudget"
	"settee/pkg/tuple"
)

const (
	// Interval is the time between two renewals of a row, and the time limit of each.
	Interval = 5 * time.Second
	// LiveFor is how long a process is live after its row has changed.
	LiveFor = 3 * Interval
	// ForgottenAfter is how long a row stays after it has changed last.
	ForgottenAfter = 10 * time.Minute

	// maxRows is the most rows that are read. Rows of processes that die young could add up to more in ForgottenAfter.
	maxRows = 1000
)

// Node is what a process says about itself.
type Node struct {
	Name     string    `json:"name"`
	Instance string    `json:"instance"` // drawn by New
	Roles    []string  `json:"roles"`
	Version  string    `json:"version"`
	Store    string    `json:"store"`   // the scheme of the store's URL
	Started  time.Time `json:"started"` // by the clock of the process; set by New
	Running  int       `json:"running"` // replication jobs
	Held     int       `json:"held"`    // jobs, those that end included
	MaxJobs  int       `json:"max_jobs"`
	MaxChurn int       `json:"max_churn"`
	Memory   int64     `json:"memory"` // that the process has from the system, in bytes; 0 means not known
	// Budgets is what the process needs and has taken of the budgets of servers, by server.
	Budgets map[string]serverbudget.Need `json:"budgets,omitempty"`
	// Level is the highest level of the store that the process knows ([levels.Options].Own).
	Level int64 `json:"level"`
}

// Seen is a process as another one sees it.
type Seen struct {
	Node
	// LastSeen is when a change of its row was last read, by the clock of the process that read it.
	LastSeen time.Time
	Live     bool
	// Cordon is nil for a process that is not cordoned.
	Cordon *Cordon
	// Ahead is by how much the clock of the process is ahead of the reader's, or behind if it is negative. The clocks
	// differ by at least that much, and by at most two Intervals more. It is 0 for what may be the time that the row took.
	Ahead time.Duration
}

// Options are the options of [New]. Store, Prefix and Describe are required.
type Options struct {
	Store kv.Database
	// Prefix is the prefix of all keys.
	Prefix []byte
	// Describe returns what the process says about itself. It is called by New and for each renewal, never by two
	// goroutines at a time. Registry sets Instance and Started. The name stays as the first call returned it.
	Describe func() Node
	// Cordoned, if not nil, is called when this process has been cordoned, when its cordon has changed, and with nil when it has
	// been taken back. No two calls run at a time.
	Cordoned func(*Cordon)
	// Budgets, if not nil, are divided among the live processes with each renewal. Registry sets Node.Budgets.
	Budgets *serverbudget.Node
}

// Registry keeps the row of this process, and knows the others.
type Registry struct {
	opts  Options
	space tuple.Subspace
	self  Node // as it was when the process started
	key   string

	renewals int64     // so far
	last     time.Time // when the last renewal that succeeded began
	running  sync.WaitGroup
	serving  context.Context // ends with Stop
	end      context.CancelFunc
	renewing context.Context // ends when the time for stopping is over
	cutOff   context.CancelFunc
	again    chan struct{} // holds a token when the row is to be renewed at once
	told     *Cordon       // what Options.Cordoned was called with last

	mu      sync.Mutex
	seen    map[string]reading // by key
	cordons map[string]*Cordon // by key of the row
}

// reading is a row as it was last read.
type reading struct {
	row
	value   string
	changed time.Time // when this value was first read
	ahead   time.Duration
}

// row is the value of a row.
type row struct {
	Node
	Renewals int64     `json:"renewals"`
	Clock    time.Time `json:"clock"`
}

// New returns a registry that knows only this process. It does not use the store.
func New(opts Options) *Registry {
	r := &Registry{opts: opts, space: tuple.SubspaceFromBytes(opts.Prefix), again: make(chan struct{}, 1)}
	r.self = opts.Describe()
	r.self.Instance, r.self.Started = rand.Text(), time.Now().UTC()
	r.key = string(r.space.Pack(r.self.Name, r.self.Instance))
	r.seen = map[string]reading{r.key: {row: row{Node: r.self}, changed: r.self.Started}}
	r.serving, r.end = context.WithCancel(context.Background())
	r.renewing, r.cutOff = context.WithCancel(context.Background())
	return r
}

// Start begins to renew the row of this process, until Stop.
func (r *Registry) Start() {
	r.running.Go(func() {
		tick := time.NewTicker(Interval)
		defer tick.Stop()
		for r.serving.Err() == nil {
			_ = r.renew() // the next renewal makes up for a failure
			select {
			case <-r.serving.Done():
			case <-tick.C:
			case <-r.again:
			case <-r.opts.Budgets.Wanted():
			}
		}
	})
}

// Stop ends the renewals and removes the row of this process. If that fails, the row stays, and the process counts as
// dead later. If ctx ends first, Stop returns its error. Stop must be called once, also without Start.
func (r *Registry) Stop(ctx context.Context) error {
	r.end()
	defer context.AfterFunc(ctx, r.cutOff)()
	// A renewal whose result is not known could be committed after the removal.
	r.running.Wait()
	removing, cancel := context.WithTimeout(r.renewing, Interval)
	defer cancel()
	_ = r.opts.Store.Transact(removing, func(tx kv.Transaction) error {
		remove(tx, []byte(r.key))
		return nil
	})
	r.cutOff()
	return ctx.Err()
}

// renew writes the row of this process, and reads the others.
func (r *Registry) renew() error {
	ctx, cancel := context.WithTimeout(r.renewing, Interval)
	defer cancel()
	self := r.opts.Describe()
	self.Name, self.Instance, self.Started = r.self.Name, r.self.Instance, r.self.Started
	r.renewals++
	began := time.Now()
	needs := r.opts.Budgets.Needs()
	unchanged, exclusive := r.unchanged(), kv.Exclusive(r.opts.Store)
	var cordons map[string]*Cordon
	pairs, err := kv.TransactValue(ctx, r.opts.Store, func(tx kv.Transaction) ([]kv.KeyValue, error) {
		// Without conflicts: otherwise the renewals of all processes would conflict with each other.
		pairs, err := tx.Snapshot().GetRange(rows.Range(r.space), kv.RangeOptions{Limit: maxRows}).Slice()
		if err != nil {
			return nil, err
		}
		pairs, cordons = split(pairs)
		pairs = slices.DeleteFunc(pairs, func(pair kv.KeyValue) bool {
			own, forgotten := string(pair.Key) == r.key, exclusive || unchanged(pair) >= ForgottenAfter
			if forgotten && !own {
				tx.AddReadConflictKey(pair.Key)
				remove(tx, pair.Key)
			}
			return forgotten || own
		})
		if len(needs) > 0 && r.opts.Budgets.Divide(needs, r.key, needsOf(pairs, unchanged)) {
			tx.AddReadConflictRange(rows.Range(r.space)) // no two processes take the same
		}
		self.Budgets = needs
		value, err := json.Marshal(row{self, r.renewals, began.UTC()})
		if err != nil {
			return nil, err
		}
		tx.Set([]byte(r.key), value)
		return append(pairs, kv.KeyValue{Key: []byte(r.key), Value: value}), nil
	})
	if err == nil {
		r.opts.Budgets.Use()
		r.take(pairs, cordons)
		r.last = began
		r.tell(cordons[r.key])
	}
	return err
}

// unchanged returns a function that returns for how long a row has been known to be the same, 0 for one that is new or has changed.
func (r *Registry) unchanged() func(kv.KeyValue) time.Duration {
	last := r.readings()
	return func(pair kv.KeyValue) time.Duration {
		row, known := last[string(pair.Key)]
		if !known || row.value != string(pair.Value) {
			return 0
		}
		return time.Since(row.changed)
	}
}

// needsOf returns what the live processes of rows need and have taken of budgets, by the rows' keys.
func needsOf(pairs []kv.KeyValue, unchanged func(kv.KeyValue) time.Duration) map[string]map[string]serverbudget.Need {
	needs := map[string]map[string]serverbudget.Need{}
	for _, pair := range pairs {
		var n row
		if unchanged(pair) < LiveFor && json.Unmarshal(pair.Value, &n) == nil && len(n.Budgets) > 0 {
			needs[string(pair.Key)] = n.Budgets
		}
	}
	return needs
}

// readings returns the rows that were read last. It must not be changed.
func (r *Registry) readings() map[string]reading {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen
}

// take notes which rows have changed, and the cordons. It ignores malformed rows.
func (r *Registry) take(pairs []kv.KeyValue, cordons map[string]*Cordon) {
	now := time.Now()
	last, seen := r.readings(), make(map[string]reading, len(pairs))
	for _, pair := range pairs {
		key, value := string(pair.Key), string(pair.Value)
		row, known := last[key]
		if !known || row.value != value {
			parsed, err := r.parse(pair)
			if err != nil {
				continue
			}
			row = reading{row: parsed, value: value, changed: now}
			row.ahead = r.ahead(row.Clock, now, known)
		}
		seen[key] = row
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen, r.cordons = seen, cordons
}

// parse returns the row of a process.
func (r *Registry) parse(pair kv.KeyValue) (of row, err error) {
	if err = json.Unmarshal(pair.Value, &of); err == nil {
		err = rows.ScanKey("the row of a node", r.space, pair.Key, &of.Name, &of.Instance)
	}
	return of, err
}

// Renewed returns when the row of this process was last renewed, or when the process started before the first renewal.
func (r *Registry) Renewed() time.Time { return r.readings()[r.key].changed }

// ahead returns Seen.Ahead for a row that was written at a time by the clock of its process, and read at now. If an
// earlier value of the row is known, this one was written after the last renewal read that one, or was under way then.
func (r *Registry) ahead(written, now time.Time, known bool) time.Duration {
	switch {
	case written.After(now):
		return written.Sub(now)
	case known:
		return min(0, written.Sub(r.last.Add(-Interval)))
	}
	return 0
}

// Nodes returns the known processes as the last renewal found them, sorted by name and by when they started. It does not
// use the store. This process is always live.
func (r *Registry) Nodes() []Seen {
	var all []Seen
	r.mu.Lock()
	seen, cordons := r.seen, r.cordons
	r.mu.Unlock()
	for key, row := range seen {
		live := key == r.key || time.Since(row.changed) < LiveFor
		all = append(all, Seen{Node: row.Node, LastSeen: row.changed.UTC(), Live: live, Cordon: cordons[key], Ahead: row.ahead})
	}
	slices.SortFunc(all, func(a, b Seen) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), a.Started.Compare(b.Started), cmp.Compare(a.Instance, b.Instance))
	})
	return all
}
