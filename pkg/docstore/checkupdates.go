package docstore

import (
	"bytes"

	"settee/pkg/kv"
	"settee/pkg/kv/check"
	"settee/pkg/kv/rows"
)

// updateRow checks a row below (updates, stripe). Rows that writers at a time have left behind are no faults:
// RemoveUpdates removes them.
func (k *storeChecker) updateRow(p *check.Page, pair kv.KeyValue) (func() error, error) {
	keys := &k.store.keys
	e, err := keys.updates.Unpack(pair.Key)
	var stripe, kind int64
	if err != nil || len(e) < 2 || !rows.As(e[0], &stripe) || stripe < 0 || stripe >= stripes || !rows.As(e[1], &kind) {
		return unknown(p, pair)
	}
	of := &keys.stripes[stripe]
	switch {
	case bytes.Equal(pair.Key, of.armed):
		if _, err := rows.ParseInt(pair.Value); err != nil {
			p.Stray(pair.Key, "a row for those who follow updates: the value is not one that settee writes")
		}
		return nil, nil
	case bytes.Equal(pair.Key, of.judged):
		if _, err := parseJudged(pair.Value); err != nil {
			p.Stray(pair.Key, "how far updates are judged: the value is not one that settee writes")
		}
		return nil, nil
	case kind != tagRows:
		return unknown(p, pair)
	}
	row, bad := keys.parseUpdate(pair)
	if bad != nil {
		return stray(p, pair, "an update: it is not one that settee writes")
	}
	if !bytes.Equal(pair.Key, keys.updateKey(row.Database, row.Sequence.stamp)) {
		return stray(p, pair, "an update of the database %s in another place than its own", quote(row.Database))
	}
	if row.Type == Updated {
		return nil, nil
	}
	reading := p.Get(keys.lives.Pack(row.Database))
	return func() error {
		value, err := reading.Await()
		if err != nil {
			return err
		}
		if last, bad := parseLife(value); value == nil || bad == nil && (last.kind != row.Type || last.stamp != row.Sequence.stamp) {
			p.Stray(pair.Key, "an update that says that the database %s was %s, which is not the last time", quote(row.Database), row.Type)
		}
		return nil
	}, nil
}

// lifeRow checks a database's creation or deletion: it has a row in updates, and the last change of a database that exists
// has one, too.
func (k *storeChecker) lifeRow(p *check.Page, pair kv.KeyValue) (func() error, error) {
	keys := &k.store.keys
	name, err := rows.LastString(keys.lives, pair.Key)
	if err != nil || !bytes.Equal(pair.Key, keys.lives.Pack(name)) {
		return unknown(p, pair)
	}
	last, err := parseLife(pair.Value)
	if err != nil {
		return unreadable(p, pair, "the creation or deletion of a database")
	}
	key, deletion := keys.updateKey(name, last.stamp), keys.deletions.Pack(last.time, name)
	row, database, deleted, changed := p.Get(key), p.Get(keys.databases.Pack(name)), p.Get(deletion), k.store.newest(p, name)
	return func() error {
		value, err := row.Await()
		if err != nil {
			return err
		}
		if kind, _, _ := parseUpdateValue(value); kind != last.kind {
			p.Wrong(key, last.kind.packed(0), "the update that says that the database %s was %s is missing, or says something else", quote(name), last.kind)
		}
		if value, err = database.Await(); err != nil {
			return err
		}
		if exists := value != nil; exists != (last.kind == Created) {
			p.Fault(pair.Key, nil, "the database %s was last %s, and that is not how it is", quote(name), last.kind)
			return nil
		}
		if last.kind == Created {
			return k.changeUpdate(p, name, changed)
		}
		if value, err = deleted.Await(); err == nil && value == nil {
			p.Wrong(deletion, nil, "the deletion of the database %s is missing among those that are forgotten one day", quote(name))
		}
		return err
	}, nil
}

// changeUpdate checks that the last change of a database has a row in updates.
func (k *storeChecker) changeUpdate(p *check.Page, name string, changed newest) error {
	last, err := changed.await()
	if err != nil || !last.IsComplete() {
		return err
	}
	key := k.store.keys.updateKey(name, last)
	value, err := p.Get(key).Await()
	if kind, _, _ := parseUpdateValue(value); err == nil && kind != Updated {
		p.Wrong(key, Updated.packed(0), "the update of the last change of the database %s is missing, or says something else", quote(name))
	}
	return err
}

// deletionRow checks that a database was last deleted when a row of deletions says so.
func (k *storeChecker) deletionRow(p *check.Page, pair kv.KeyValue) (func() error, error) {
	keys := &k.store.keys
	e, ok := elements(keys.deletions, pair.Key, 2)
	var at int64
	var name string
	if !ok || !rows.As(e[0], &at) || !rows.As(e[1], &name) {
		return unknown(p, pair)
	}
	reading := p.Get(keys.lives.Pack(name))
	return func() error {
		value, err := reading.Await()
		if err != nil {
			return err
		}
		if last, bad := parseLife(value); value == nil || bad == nil && (last.kind != Deleted || last.time != at) {
			p.Stray(pair.Key, "a deletion of the database %s that is not the last thing that happened to it", quote(name))
		}
		return nil
	}, nil
}

// stray notes a row that must not exist.
func stray(p *check.Page, pair kv.KeyValue, format string, args ...any) (func() error, error) {
	p.Stray(pair.Key, format, args...)
	return nil, nil
}
