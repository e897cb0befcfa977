package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"settee/pkg/config"
	"settee/pkg/kv"
	"settee/pkg/tuple"
)

// format is the version of everything that this binary writes into a store. Nodes
// of one format may run together, and on a store of theirs alone.
//
// 2: the job layer has owners' standings, an index by owner, and expiries. There is no
// way from 1, which no release wrote.
//
// 3: there are databases, and jobs of their documents. A node of 2 would run such a job
// without writing its end into the document, and on after the document's database was
// deleted, so the two must not run together. There is no way from 2, which no release wrote.
//
// 4: the job layer counts an owner's jobs by tag, which a node of 3 does not. There is no way
// from 3, which no release wrote.
const format = int64(4)

// sealedFormat is that of a store in which something may be sealed, since a node has had keys
// ([secrets] key_file). Otherwise it is 4, so nodes that know nothing of it must be replaced
// before: they would take what is sealed for broken, and end the jobs.
const sealedFormat = int64(5)

// noteEvery is how often a node notes how far the store's versions have come.
const noteEvery = 10 * time.Second

// The keys of (meta):
//
//	(meta, "format") -> (format)
//	(meta, "stamp")  -> versionstamp of the latest noting, 10 bytes
//	(meta, "keys", id): see metaKeys
//
// Rows are ordered by versionstamps throughout. A backup that is restored into a
// cluster whose versions are lower would get new rows in front of old ones: hence
// the stamp.
var (
	metaFormat = tuple.NewSubspace("meta").Pack("format")
	metaStamp  = tuple.NewSubspace("meta").Pack("stamp")
)

// openStore opens the store of a configuration, having checked that this binary may use it.
func openStore(ctx context.Context, cfg *config.Config) (kv.Database, error) {
	db, err := kv.Open(ctx, config.Store.Get(cfg))
	if err == nil {
		if err = checkStore(ctx, db); err != nil {
			err = errors.Join(err, db.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("opening the store: %w", err)
	}
	return db, nil
}

// checkStore makes sure that this binary may use the store, and makes a new one
// its own.
func checkStore(ctx context.Context, db kv.Database) error {
	return db.Transact(ctx, func(tx kv.Transaction) error {
		stored, stamp, version := tx.Get(metaFormat), tx.Get(metaStamp), tx.ReadVersion()
		value, err := stored.Await()
		if err != nil {
			return err
		}
		if value == nil {
			tx.Set(metaFormat, tuple.Tuple{format}.Pack())
		} else if err := checkFormat(value); err != nil {
			return err
		}
		highest, err := stamp.Await()
		if err != nil {
			return err
		}
		current, err := version.Await()
		if err != nil {
			return err
		}
		if len(highest) == len(kv.Versionstamp{}) {
			if seen := int64(binary.BigEndian.Uint64(highest)); seen > current {
				return fmt.Errorf("the store has seen version %d, and is at %d now: it was restored into a younger cluster. "+
					"New rows would come before old ones. Stop all nodes, run `advanceversion %d` in fdbcli, and start again",
					seen, current, seen+1_000_000_000)
			}
		}
		noteVersion(tx)
		return nil
	})
}

func checkFormat(value []byte) error {
	elements, err := tuple.Unpack(value)
	if err != nil || len(elements) != 1 {
		return errors.New("the store's format is not one of settee's: something else is kept there")
	}
	if elements[0] != format && elements[0] != sealedFormat {
		return fmt.Errorf("the store has format %v, and this version of settee knows %d and %d only", elements[0], format, sealedFormat)
	}
	return nil
}

// noteVersion stores the stamp of this transaction's commit.
func noteVersion(tx kv.Transaction) {
	tx.SetVersionstampedValue(metaStamp, make([]byte, len(kv.Versionstamp{})+4)) // 4 bytes of offset: 0
}

// noteVersions notes how far the versions have come until ctx ends.
func noteVersions(ctx context.Context, db kv.Database) {
	tick := time.NewTicker(noteEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// One that fails is made up for by the next.
		_ = db.Transact(ctx, func(tx kv.Transaction) error {
			noteVersion(tx)
			return nil
		})
	}
}
