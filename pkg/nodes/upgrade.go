package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"settee/pkg/kv"
	"settee/pkg/kv/levels"
	"settee/pkg/kv/rows"
)

// Upgrade raises the level of the store, when all live processes know the next one. It counts a process as live by the
// same rule as [Registry.Nodes], but reads the rows in the transaction that raises the level, with conflicts: a process
// that writes its row at the same time either is seen, or finds the new level.
type Upgrade struct {
	// Raising, if not nil, is called in the transaction that raises the level.
	Raising func(kv.Transaction) error

	guard *levels.Guard
	nodes *Registry
}

// NewUpgrade returns the upgrade of the store of a guard, whose processes are in a registry.
func NewUpgrade(guard *levels.Guard, registry *Registry) *Upgrade {
	return &Upgrade{guard: guard, nodes: registry}
}

// LevelStatus is the level of a store, and what it waits for.
type LevelStatus struct {
	Level int64
	// Next is the level that this process can raise the store to, or 0 if the store has the highest one that it knows.
	Next int64
	// Behind are the live processes that do not know Next, as the last renewal found them.
	Behind []Node
}

// Status returns the level of the store as this process last read it. It does not use the store.
func (u *Upgrade) Status() LevelStatus {
	s := LevelStatus{Level: u.guard.Latest()}
	if s.Level >= u.guard.Own() {
		return s
	}
	s.Next = u.guard.Own()
	for _, n := range u.nodes.Nodes() {
		if n.Live && n.Level < s.Next {
			s.Behind = append(s.Behind, n.Node)
		}
	}
	return s
}

// Converting reports whether rows of before the store's level have yet to be converted, before which it is not raised again.
func (u *Upgrade) Converting(ctx context.Context) (bool, error) {
	_, yet, err := u.guard.Converting(ctx)
	return yet, err
}

// BehindError is the error of [Upgrade.Raise] while live processes do not know the next level.
type BehindError struct {
	Level int64  // the next one
	Nodes []Node // that do not know it
}

func (e *BehindError) Error() string {
	names := make([]string, len(e.Nodes))
	for i, n := range e.Nodes {
		names[i] = fmt.Sprintf("%s (%s)", n.Name, n.Version)
	}
	return fmt.Sprintf("the store cannot have level %d yet, because live nodes do not know it: %s", e.Level, strings.Join(names, ", "))
}

// Raise raises the store to the highest level that this process knows. It reports whether it did: the store may have that
// level. The error is a [*BehindError] if a live process does not know it, or a [*levels.ConvertingError].
func (u *Upgrade) Raise(ctx context.Context) (raised bool, err error) {
	return u.guard.Raise(ctx, func(tx kv.Transaction) error {
		behind, err := u.nodes.behind(tx, u.guard.Own())
		if err == nil && len(behind) > 0 {
			err = &BehindError{u.guard.Own(), behind}
		}
		if err == nil && u.Raising != nil {
			err = u.Raising(tx)
		}
		return err
	})
}

// behind reads which live processes do not know a level.
func (r *Registry) behind(tx kv.Transaction, level int64) ([]Node, error) {
	pairs, err := tx.GetRange(rows.Range(r.space), kv.RangeOptions{Limit: maxRows}).Slice()
	if err != nil {
		return nil, err
	}
	if len(pairs) == maxRows {
		return nil, fmt.Errorf("the store lists more than %d nodes, most of them dead: try again in %v", maxRows-1, ForgottenAfter)
	}
	unchanged := r.unchanged()
	pairs, _ = split(pairs)
	var behind []Node
	for _, pair := range pairs {
		if string(pair.Key) == r.key || unchanged(pair) >= LiveFor {
			continue
		}
		var row row
		if err := json.Unmarshal(pair.Value, &row); err != nil {
			return nil, fmt.Errorf("reading the row of a node: %w", err)
		}
		if row.Level < level {
			behind = append(behind, row.Node)
		}
	}
	return behind, nil
}

// Run raises the store's level by itself, once all live processes have known the next one for a time: after returns the
// time, and 0 means never. It returns when ctx ends or the store has the highest level that this process knows. told is
// called when a raise has succeeded or failed.
func (u *Upgrade) Run(ctx context.Context, after func() time.Duration, told func(level int64, err error)) {
	var since time.Time // all know the next level; zero if not
	tick := time.NewTicker(Interval)
	defer tick.Stop()
	for {
		s := u.Status()
		if s.Next == 0 {
			return
		}
		switch wait := after(); {
		case len(s.Behind) > 0:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case wait > 0 && time.Since(since) >= wait:
			raised, err := u.Raise(ctx)
			var behind *BehindError
			var converting *levels.ConvertingError
			switch {
			case ctx.Err() != nil:
				return
			case errors.As(err, &behind):
				since = time.Time{}
			case errors.As(err, &converting): // it ends by itself
			case err != nil || raised:
				told(s.Next, err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
