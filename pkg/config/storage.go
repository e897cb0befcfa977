package config

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"settee/pkg/kv"
	"settee/pkg/tuple"
)

// ErrNotSet says that the store has no value to give up.
var ErrNotSet = errors.New("the store has no such value")

const (
	tokenSize = 16 // bytes
	// tokensKept is how many of the latest changes are known. A change whose commit had
	// an unknown result is recognized unless as many others came before it was looked for.
	tokensKept = 64
)

// locked begins the text of a value that cannot be opened. What follows is why.
const locked = "\x00sealed\x00"

// storage is the layer of the store:
//
//	("value", section, key) -> text, sealed if it is a secret, but for the hashes of [admins]
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

// isSealed says whether a value is to be sealed: the store has no passwords of administrators, but
// their hashes.
func isSealed(n name) bool { return secret(n) && n.section != Admins.def.section }

// seal returns what is stored of a value.
func (s *storage) seal(v Value) []byte {
	if !isSealed(v.name()) {
		return []byte(v.Text)
	}
	return s.sealer.Seal([]byte(v.Text), place(v.name())...)
}

// open returns the text of a value.
func (s *storage) open(n name, stored []byte) string {
	text, err := s.sealer.Open(stored, place(n)...)
	if err != nil {
		return locked + err.Error()
	}
	return string(text)
}

// Reseal goes through the secrets that the layer of a store has. It returns with which keys they
// were sealed, and how many with each; the empty id is that of plain ones. If keyID is not empty
// it is that of the key that is sealed with now, and secrets with any other are sealed anew, but
// for those that cannot be opened.
func Reseal(ctx context.Context, db kv.Database, prefix []byte, sealer kv.Sealer, keyID string) (map[string]int64, error) {
	s := newStorage(db, prefix, sealer)
	return kv.TransactValue(ctx, db, func(tx kv.Transaction) (map[string]int64, error) {
		counts := map[string]int64{}
		rows, err := s.rows(tx)
		if err != nil {
			return nil, err
		}
		for _, v := range rows {
			if !isSealed(v.name()) {
				continue
			}
			stored, err := tx.Get(s.key(v.name())).Await()
			if err != nil {
				return nil, err
			}
			found := s.sealer.KeyID(stored)
			counts[found]++
			if keyID != "" && found != keyID && !strings.HasPrefix(v.Text, locked) {
				tx.Set(s.key(v.name()), s.seal(v))
			}
		}
		return counts, nil
	})
}

func (s *storage) key(n name) []byte { return s.values.Pack(n.section, n.key) }

// rows reads all values, in the order of their names. A key that is none of a value's, as
// no version writes, is left out.
func (s *storage) rows(tx kv.ReadTransaction) (Layer, error) {
	begin, end := s.values.Range()
	pairs, err := tx.GetRange(kv.KeyRange{Begin: begin, End: end}, kv.RangeOptions{Mode: kv.StreamWantAll}).Slice()
	if err != nil {
		return nil, err
	}
	layer := make(Layer, 0, len(pairs))
	for _, pair := range pairs {
		key, err := s.values.Unpack(pair.Key)
		if err != nil || len(key) != 2 {
			continue
		}
		var n name
		var ok, fine bool
		n.section, ok = key[0].(string)
		n.key, fine = key[1].(string)
		if ok && fine {
			layer = append(layer, Value{n.section, n.key, s.open(n, pair.Value), OriginStore.String()})
		}
	}
	return layer, nil
}

// stored is what one reading found.
type stored struct {
	rows    Layer
	version int64
}

// read reads all values.
func (s *storage) read(ctx context.Context) (stored, error) {
	return kv.TransactValue(ctx, s.db, s.readIn)
}

// watch reads all values, and watches for the next change.
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

// write changes one value as plan says, which is given all there is and returns what is
// to be there instead, and the answer to give. It runs with each run of the transaction.
//
// A run whose result was unknown left its token if it was committed: the answer is then
// the one that it had.
func write[T any](ctx context.Context, s *storage, plan func(rows Layer) (Layer, T, error)) (T, error) {
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
		token := rand.Text()[:tokenSize]
		runs = append(runs, run{token, answer})
		tx.Set(s.changes, append([]byte(token), tokens[:min(len(tokens), (tokensKept-1)*tokenSize)]...))
		return answer, nil
	})
}

// replace writes what two states differ in, and reports whether they do.
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

// Check decides whether the store's layer may change. before and after are this node's configuration without and with the
// change. An error refuses the change. A Check is called inside the change's transaction, which may run several times.
type Check func(before, after *Config) error

// Set puts a value into the store, from where it reaches all nodes; of several spellings
// of a setting the store has the latest that was set. An empty text is none: the store
// gives up what it has. It returns the text that held before, of whatever origin, and
// masked if it is a secret: empty where there was none.
//
// The error is a *RefusedError where the store does not take the value: the setting
// cannot have it, or it counts when a node starts, or settee does not know it in a section
// that is its own. Others are those of checks, of the store, or ctx's.
func (l *Live) Set(ctx context.Context, section, key, text string, checks ...Check) (old string, err error) {
	v := Value{section, key, text, "request"}
	return l.write(ctx, v, func(own *Config, rows Layer) (Layer, string, error) {
		now, _ := own.withStored(rows)
		before, _ := now.text(v.name())
		next, err := own.checked(rows, v, checks)
		return next, show(v.name(), before), err
	})
}

// Delete takes a value out of the store, so that what the other places say holds again. It
// returns the text that the store had, masked if it is a secret. The error is ErrNotSet
// where it had none, and otherwise one of Set's.
func (l *Live) Delete(ctx context.Context, section, key string, checks ...Check) (old string, err error) {
	v := Value{Section: section, Key: key}
	return l.write(ctx, v, func(own *Config, rows Layer) (Layer, string, error) {
		at := slices.IndexFunc(rows, func(row Value) bool { return row.name() == v.name() })
		if at < 0 {
			return nil, "", fmt.Errorf("%v: %w", v.name(), ErrNotSet)
		}
		next, err := own.checked(rows, v, checks)
		return next, show(v.name(), rows[at].Text), err
	})
}

// write changes the store, and takes the change in here: who asks this node afterwards
// finds it.
func (l *Live) write(
	ctx context.Context, v Value, plan func(own *Config, rows Layer) (Layer, string, error),
) (string, error) {
	old, err := write(ctx, &l.storage, func(rows Layer) (Layer, string, error) { return plan(l.without(), rows) })
	if err != nil {
		return "", err
	}
	if found, err := l.storage.read(ctx); err == nil {
		l.take(found)
	} // or else the watch makes up for it
	l.note(v)
	return old, nil
}
