package config

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"settee/pkg/audit"
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// ErrNotSet is the error of Delete if the store has no such value.
var ErrNotSet = errors.New("the store has no such value")

const (
	tokenSize = 16 // bytes
	// tokensKept is the number of latest changes that are remembered. A change whose commit had
	// an unknown result is recognised unless that many other changes followed before the check.
	tokensKept = 64
)

// locked begins the text of a value that cannot be opened. The reason follows.
const locked = "\x00sealed\x00"

// storage is the layer of the store:
//
//	("value", section, key) -> text, sealed if it is a secret, except the hashes of [admins]
//	("changes")             -> the tokens of the latest changes, the latest first; watched
type storage struct {
	db      kv.Database
	sealer  kv.Sealer
	values  tuple.Subspace
	changes []byte
}

func newStorage(db kv.Database, prefix []byte, sealer kv.Sealer) storage {
	if sealer == nil {
		sealer = kv.Plain{}
	}
	space := tuple.SubspaceFromBytes(prefix)
	return storage{db: db, sealer: sealer, values: space.Sub("value"), changes: space.Pack("changes")}
}

func place(n name) []string { return []string{"setting", n.section, n.key} }

// isSealed reports whether a value is sealed. The hashes of administrators' passwords are not.
func isSealed(n name) bool { return secret(n) && n.section != Admins.def.section }

// seal returns the stored form of a value.
func (s *storage) seal(v Value) []byte {
	if !isSealed(v.name()) {
		return []byte(v.Text)
	}
	return s.sealer.Seal([]byte(v.Text), place(v.name())...)
}

// open returns the text of a stored value.
func (s *storage) open(n name, stored []byte) string {
	text, err := s.sealer.Open(stored, place(n)...)
	if err != nil {
		return locked + err.Error()
	}
	return string(text)
}

// Reseal goes through the secrets in a store's layer of the configuration. It returns how
// many were sealed with each key, by the key's id; the empty id counts plain ones. If
// keyID is not empty, it is the id of the key that sealer seals with now, and secrets that
// were sealed with another are sealed anew, except those that cannot be opened.
func Reseal(ctx context.Context, db kv.Database, prefix []byte, sealer kv.Sealer, keyID string) (map[string]int64, error) {
	s := newStorage(db, prefix, sealer)
	return rows.Reseal(ctx, db, s.sealer, keyID, rows.Range(s.values), s.sealedValues)
}

// sealedValues reads the secrets, all at once. Reading conflicts with a change of any value.
func (s *storage) sealedValues(tx kv.Transaction, _ kv.KeyRange) (values []rows.Sealed, rest []byte, err error) {
	all, err := s.rows(tx)
	if err != nil {
		return nil, nil, err
	}
	for _, v := range all {
		if !isSealed(v.name()) {
			continue
		}
		stored, err := tx.Get(s.key(v.name())).Await()
		if err != nil {
			return nil, nil, err
		}
		values = append(values, rows.Sealed{Begin: s.key(v.name()), Stored: stored, Reseal: func() {
			if !strings.HasPrefix(v.Text, locked) {
				tx.Set(s.key(v.name()), s.seal(v))
			}
		}})
	}
	return values, nil, nil
}

func (s *storage) key(n name) []byte { return s.values.Pack(n.section, n.key) }

// rows returns all values, sorted by name. It ignores malformed keys.
func (s *storage) rows(tx kv.ReadTransaction) (Layer, error) {
	pairs, err := tx.GetRange(rows.Range(s.values), kv.RangeOptions{}).Slice()
	if err != nil {
		return nil, err
	}
	layer := make(Layer, 0, len(pairs))
	for _, pair := range pairs {
		var n name
		if rows.ScanKey("the name of a setting", s.values, pair.Key, &n.section, &n.key) == nil {
			layer = append(layer, Value{n.section, n.key, s.open(n, pair.Value), OriginStore.String()})
		}
	}
	return layer, nil
}

// stored is the result of one read.
type stored struct {
	rows    Layer
	version int64
}

// read reads all values.
func (s *storage) read(ctx context.Context) (stored, error) {
	return kv.TransactValue(ctx, s.db, s.readIn)
}

// watch reads all values, and returns a watch for the next change.
func (s *storage) watch(ctx context.Context) (out stored, watch kv.Watch, err error) {
	err = s.db.Transact(ctx, func(tx kv.Transaction) error {
		out, err = s.readIn(tx)
		if err == nil {
			watch = tx.Watch(s.changes)
		}
		return err
	})
	return out, watch, err
}

func (s *storage) readIn(tx kv.Transaction) (out stored, err error) {
	version := tx.ReadVersion()
	if out.rows, err = s.rows(tx.Snapshot()); err == nil {
		out.version, err = version.Await()
	}
	return out, err
}

// write changes the layer as plan says, and returns plan's answer. plan gets all values and
// returns the new ones; it is called for each attempt of the transaction.
//
// If an attempt had an unknown result and its token is there, it was committed, and its answer is
// returned. changed, if not nil, is called in the transaction of a change.
func write[T any](
	ctx context.Context, s *storage, plan func(rows Layer) (Layer, T, error), changed func(tx kv.Transaction, answer T) error,
) (T, error) {
	type run struct {
		token  string
		answer T
	}
	var runs []run
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (answer T, err error) {
		latest := tx.Get(s.changes)
		rows, err := s.rows(tx)
		if err != nil {
			return answer, err
		}
		tokens, err := latest.Await()
		if err != nil {
			return answer, err
		}
		known := slices.Collect(slices.Chunk(tokens, tokenSize))
		for _, earlier := range runs {
			if slices.ContainsFunc(known, func(token []byte) bool { return string(token) == earlier.token }) {
				return earlier.answer, nil
			}
		}
		next, answer, err := plan(rows)
		if err != nil {
			return answer, err
		}
		if !s.replace(tx, rows, next) {
			return answer, nil
		}
		if changed != nil {
			if err := changed(tx, answer); err != nil {
				return answer, err
			}
		}
		token := rand.Text()[:tokenSize]
		runs = append(runs, run{token, answer})
		tx.Set(s.changes, append([]byte(token), tokens[:min(len(tokens), (tokensKept-1)*tokenSize)]...))
		return answer, nil
	})
}

// replace writes the differences between two states, and reports whether there are any.
func (s *storage) replace(tx kv.Transaction, rows, next Layer) bool {
	gone := make(map[name]string, len(rows))
	for _, row := range rows {
		gone[row.name()] = row.Text
	}
	changed := false
	for _, v := range next {
		if text, ok := gone[v.name()]; !ok || text != v.Text {
			tx.Set(s.key(v.name()), s.seal(v))
			changed = true
		}
		delete(gone, v.name())
	}
	for n := range gone {
		tx.Clear(s.key(n))
		changed = true
	}
	return changed
}

// Check decides whether the store's layer may change. before and after are this node's
// configuration without and with the change. An error refuses the change. A Check may be called
// several times for one change.
type Check func(before, after *Config) error

// Set stores a value for all nodes. It replaces the values of other spellings of the setting. An
// empty text is shown as it is, and has no effect: the other origins apply. In [admins] it removes
// the administrator. Set returns the text that was in effect before, from any origin,
// masked if it is a secret, and empty if there was none.
//
// The error is a *RefusedError if the setting cannot have the value, is read only when a node
// starts, or is unknown in a section whose keys are all known. Other errors come from checks,
// of the store, or ctx's.
func (l *Live) Set(ctx context.Context, section, key, text string, checks ...Check) (old string, err error) {
	v := Value{section, key, text, "request"}
	return l.write(ctx, audit.Set, v, func(own *Config, rows Layer) (Layer, string, error) {
		now, _ := own.withStored(rows)
		before, _ := now.text(v.name())
		next, err := own.change(rows, v)
		if err == nil {
			err = own.passes(rows, next, checks)
		}
		return next, show(v.name(), before), err
	})
}

// Delete removes a value from the store, so that the other origins apply again. It returns the
// stored text, masked if it is a secret. The error is ErrNotSet if there is no value, and
// otherwise one of Set's.
func (l *Live) Delete(ctx context.Context, section, key string, checks ...Check) (old string, err error) {
	v := Value{Section: section, Key: key}
	return l.write(ctx, audit.Unset, v, func(own *Config, rows Layer) (Layer, string, error) {
		at := slices.IndexFunc(rows, func(row Value) bool { return row.name() == v.name() })
		if at < 0 {
			return nil, "", fmt.Errorf("%v: %w", v.name(), ErrNotSet)
		}
		next, err := own.remove(rows, v.name())
		if err == nil {
			err = own.passes(rows, next, checks)
		}
		return next, show(v.name(), rows[at].Text), err
	})
}

// write changes the store and applies the change to this node before it returns. It records who made the change.
func (l *Live) write(
	ctx context.Context, action audit.Action, v Value, plan func(own *Config, rows Layer) (Layer, string, error),
) (string, error) {
	entry := audit.New(ctx, action)
	entry.Section, entry.Key, entry.New = v.Section, v.Key, show(v.name(), v.Text)
	old, err := write(ctx, &l.storage, func(rows Layer) (Layer, string, error) {
		return plan(l.without(), rows)
	}, func(tx kv.Transaction, old string) error {
		entry.Old = old
		return entry.Record(tx)
	})
	if err != nil {
		return "", err
	}
	if found, err := l.storage.read(ctx); err == nil {
		l.take(found)
	} // otherwise Run applies the change
	l.note(v)
	return old, nil
}
