package nodes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"settee/pkg/audit"
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// Cordon says that a process takes no jobs. It ends with the process.
type Cordon struct {
	// At is when the process was cordoned, and By the user who did that.
	At time.Time `json:"at"`
	By string    `json:"by"`
	// Drain reports that the process also gives back the jobs that it runs.
	Drain bool `json:"drain,omitempty"`
}

const cordonWord = "cordon"

// cordonEnd ends the key of the cordon of a process. The rest is the key of its row.
var cordonEnd = tuple.Tuple{cordonWord}.Pack()

// Drained reports whether a process has given back all jobs, and takes none.
func (s *Seen) Drained() bool { return s.Cordon != nil && s.Cordon.Drain && s.Held == 0 }

// Takes reports whether a process is live, has a role and may take jobs.
func (s *Seen) Takes(role string) bool {
	return s.Live && s.Cordon == nil && slices.Contains(s.Roles, role)
}

// ErrNoNode is returned by SetCordon if no live process with the role has the name.
var ErrNoNode = errors.New("no live node with the role replication has that name or instance")

// SetCordon cordons the live processes with a role whose name or instance is node, or takes their cordons back if cordon is nil. It
// returns their number. They notice within Interval. The user of the context is recorded.
func (r *Registry) SetCordon(ctx context.Context, node, role string, cordon *Cordon) (n int, err error) {
	action := audit.Uncordoned
	if cordon != nil {
		action = audit.Cordoned
		if cordon.Drain {
			action = audit.Drained
		}
	}
	entry, unchanged := audit.New(ctx, action), r.unchanged()
	entry.Node = node
	err = r.opts.Store.Transact(ctx, func(tx kv.Transaction) error {
		pairs, err := tx.Snapshot().GetRange(rows.Range(r.space), kv.RangeOptions{Limit: maxRows}).Slice()
		if err != nil {
			return err
		}
		processes, cordons := split(pairs)
		n = 0
		changed := false
		for _, pair := range processes {
			of, err := r.parse(pair)
			if err != nil || of.Name != node && of.Instance != node || !slices.Contains(of.Roles, role) || unchanged(pair) >= LiveFor {
				continue
			}
			if n++; cordons[string(pair.Key)].same(cordon) {
				continue
			}
			changed = true
			tx.AddReadConflictKey(pair.Key) // it may stop
			if err := writeCordon(tx, pair.Key, cordon); err != nil {
				return err
			}
		}
		switch {
		case n == 0:
			return ErrNoNode
		case !changed:
			return nil
		}
		return entry.Record(tx)
	})
	if err == nil {
		select { // so that this process shows the change at once
		case r.again <- struct{}{}:
		default:
		}
	}
	return n, err
}

// same reports whether two cordons have the same effect. A nil cordon means that there is none.
func (c *Cordon) same(as *Cordon) bool {
	if c == nil || as == nil {
		return c == as
	}
	return c.Drain == as.Drain
}

// writeCordon writes the cordon of the process with a row, or removes it if cordon is nil.
func writeCordon(tx kv.Transaction, row []byte, cordon *Cordon) error {
	if cordon == nil {
		tx.Clear(cordonKey(row))
		return nil
	}
	value, err := json.Marshal(cordon)
	if err == nil {
		tx.Set(cordonKey(row), value)
	}
	return err
}

// cordonKey returns the key of the cordon of the process with a row.
func cordonKey(row []byte) []byte { return slices.Concat(row, cordonEnd) }

// split splits pairs into the rows of processes, and the cordons by the keys of these rows. Malformed cordons are left out.
func split(pairs []kv.KeyValue) (processes []kv.KeyValue, cordons map[string]*Cordon) {
	cordons = map[string]*Cordon{}
	for _, pair := range pairs {
		row, is := bytes.CutSuffix(pair.Key, cordonEnd)
		if !is {
			processes = append(processes, pair)
			continue
		}
		cordon := new(Cordon)
		if json.Unmarshal(pair.Value, cordon) == nil {
			cordons[string(row)] = cordon
		}
	}
	return processes, cordons
}

// remove removes the row of a process, and its cordon.
func remove(tx kv.Transaction, row []byte) {
	tx.Clear(row)
	tx.Clear(cordonKey(row))
}

// tell tells this process whether it is cordoned, if that has changed.
func (r *Registry) tell(cordon *Cordon) {
	if cordon.same(r.told) {
		return
	}
	r.told = cordon
	if r.opts.Cordoned != nil {
		r.opts.Cordoned(cordon)
	}
}

// Cordoned reports whether this process is cordoned, as the last renewal found it.
func (r *Registry) Cordoned() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cordons[r.key] != nil
}
