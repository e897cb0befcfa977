package docstore

import (
	"context"

	"github.com/google/uuid"

	"settee/pkg/kv"
	"settee/pkg/kv/check"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// Check checks all rows of the store against the invariants of the package's doc comment, and the contents of
// attachments against their digests. It repairs what follows from the leaves of documents: the rows in changes and all,
// the references to contents, and the counters. From the rows in changes and lives follow those in updates and
// deletions. Rows of deleted databases are not checked.
//
// Its memory grows with the number of databases and of uploads that no revision refers to yet.
//
// The store's Sealer opens the bodies. A body whose key is not known is not a fault.
func (s *Store) Check(ctx context.Context, c *check.Checker) error {
	k := storeChecker{store: s, to: c, live: map[uuid.UUID]string{}, uploads: map[string]bool{}}
	defer func() { c.Place = "" }()
	err := c.Rest(ctx, kv.PrefixRange(s.keys.root.Bytes()),
		rows.Range(s.keys.databases), rows.Range(s.keys.trash), rows.Range(s.keys.uploads), rows.Range(s.keys.instances),
		rows.Range(s.keys.updates), rows.Range(s.keys.lives), rows.Range(s.keys.deletions))
	walk := func(space tuple.Subspace, visit check.Visit) {
		if err == nil {
			err = c.Walk(ctx, rows.Range(space), visit)
		}
	}
	walk(s.keys.databases, k.database)
	walk(s.keys.trash, k.deleted)
	walk(s.keys.uploads, k.upload)
	if err == nil {
		err = k.instances(ctx)
	}
	// What follows from the changes of databases is compared after these were repaired.
	walk(s.keys.updates, k.updateRow)
	walk(s.keys.lives, k.lifeRow)
	walk(s.keys.deletions, k.deletionRow)
	return err
}

type storeChecker struct {
	store   *Store
	to      *check.Checker
	live    map[uuid.UUID]string // names
	uploads map[string]bool      // prefixes of the chunks of uploads
}

// unknown notes a key that the store cannot have written.
func unknown(p *check.Page, pair kv.KeyValue) (func() error, error) {
	p.Fault(pair.Key, nil, "unknown key")
	return nil, nil
}

// unreadable notes a value that the store cannot have written.
func unreadable(p *check.Page, pair kv.KeyValue, what string) (func() error, error) {
	p.Fault(pair.Key, nil, "%s: the value is not one that settee writes", what)
	return nil, nil
}

func (k *storeChecker) database(p *check.Page, pair kv.KeyValue) (func() error, error) {
	name, err := rows.LastString(k.store.keys.databases, pair.Key)
	if err != nil {
		return unknown(p, pair)
	}
	row, err := awaitDatabaseRow(kv.Known(pair.Value))
	if err != nil {
		return unreadable(p, pair, "a database")
	}
	deleted, life := p.Get(k.store.keys.trash.Pack(row.instance)), p.Get(k.store.keys.lives.Pack(name))
	return func() error {
		value, err := deleted.Await()
		if err != nil {
			return err
		}
		if value != nil {
			p.Fault(pair.Key, nil, "the database %s is also among the deleted ones", quote(name))
		}
		if value, err = life.Await(); err == nil && value == nil {
			p.Fault(pair.Key, nil, "when the database %s was created is missing", quote(name))
		}
		p.After(func() error {
			k.live[row.instance] = name
			return nil
		})
		return err
	}, nil
}

func (k *storeChecker) deleted(p *check.Page, pair kv.KeyValue) (func() error, error) {
	key, err := k.store.keys.trash.Unpack(pair.Key)
	var instance uuid.UUID
	if err != nil || len(key) != 1 || !rows.As(key[0], &instance) {
		return unknown(p, pair)
	}
	return nil, nil
}

func (k *storeChecker) upload(p *check.Page, pair kv.KeyValue) (func() error, error) {
	place, blob := k.uploadOf(pair.Key)
	if place == "" {
		return unknown(p, pair)
	}
	referred := p.Get(blob)
	return func() error {
		value, err := referred.Await()
		if err == nil && value != nil {
			p.Stray(pair.Key, "an upload to whose content a revision refers")
		}
		p.After(func() error {
			k.uploads[place] = true
			return nil
		})
		return err
	}, nil
}

// uploadOf parses a key of uploads. It returns the prefix of the chunks, and the key in blobs. They are empty for an
// unknown key.
func (k *storeChecker) uploadOf(key []byte) (place string, blob []byte) {
	e, err := k.store.keys.uploads.Unpack(key)
	var stamp int64
	var instance uuid.UUID
	var id string
	var content []byte
	if err != nil || len(e) != 4 || !rows.As(e[0], &stamp) || !rows.As(e[1], &instance) || !rows.As(e[2], &id) || !rows.As(e[3], &content) {
		return "", nil
	}
	keys := newDatabaseKeys(&k.store.keys, "", instance)
	return string(keys.chunks.Sub(id, content).Bytes()), keys.blobs.Pack(id, content)
}

// instances checks the databases one by one, in the order of their rows.
func (k *storeChecker) instances(ctx context.Context) error {
	rest := rows.Range(k.store.keys.instances)
	for {
		first, err := k.firstKey(ctx, rest)
		if err != nil || first == nil {
			return err
		}
		e, err := k.store.keys.instances.Unpack(first)
		var instance uuid.UUID
		if err != nil || len(e) < 2 || !rows.As(e[0], &instance) {
			end := kv.KeyAfter(first)
			if err := k.to.Unknown(ctx, kv.KeyRange{Begin: first, End: end}); err != nil {
				return err
			}
			rest.Begin = end
			continue
		}
		if err := k.instance(ctx, instance); err != nil {
			return err
		}
		rest.Begin = rows.Range(k.store.keys.instances.Sub(instance)).End
	}
}

// firstKey returns the first key of a range, or nil.
func (k *storeChecker) firstKey(ctx context.Context, r kv.KeyRange) ([]byte, error) {
	return kv.TransactValue(ctx, k.to.DB, func(tx kv.Transaction) ([]byte, error) {
		pairs, err := tx.Snapshot().GetRange(r, kv.RangeOptions{Limit: 1}).Slice()
		if err != nil || len(pairs) == 0 {
			return nil, err
		}
		return pairs[0].Key, nil
	})
}

func (k *storeChecker) instance(ctx context.Context, instance uuid.UUID) error {
	if _, is := k.live[instance]; !is { // it may be new
		quiet := check.Checker{DB: k.to.DB}
		if err := quiet.Walk(ctx, rows.Range(k.store.keys.databases), k.database); err != nil {
			return err
		}
	}
	name, is := k.live[instance]
	if !is {
		return k.nowhere(ctx, instance)
	}
	k.to.Place = "database " + quote(name)
	defer func() { k.to.Place = "" }()
	d := databaseChecker{storeChecker: k, Database: k.store.database(name, instance)}
	return d.check(ctx)
}

// nowhere notes the rows of a database that does not exist, unless it is being removed.
func (k *storeChecker) nowhere(ctx context.Context, instance uuid.UUID) error {
	all := k.store.keys.instances.Sub(instance)
	return k.to.Do(ctx, func(p *check.Page) error {
		trash, err := p.Get(k.store.keys.trash.Pack(instance)).Await()
		if err != nil || trash != nil {
			return err
		}
		left, err := p.GetRange(rows.Range(all), kv.RangeOptions{Limit: 1}).Slice()
		if err == nil && len(left) > 0 {
			p.Fault(all.Bytes(), nil, "rows of a database that does not exist")
		}
		return err
	})
}
