package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"settee/pkg/config"
	"settee/pkg/kv"
	"settee/pkg/kv/levels"
	"settee/pkg/retry"
	"settee/pkg/tuple"
)

// format is the format of a store, which says that the store is one of settee's. What has changed in it since 1.0.0 is said by
// its level: see storeLevels.
const format = int64(1)

// noteEvery is the interval at which a node stores the current version of the store, and its key.
const noteEvery = 10 * time.Second

// The prefixes of the layers' keys. All keys of a store begin with one of these, or with (meta).
var (
	accountsPrefix = tuple.NewSubspace("accounts").Bytes()
	configPrefix   = tuple.NewSubspace("config").Bytes()
	docsPrefix     = tuple.NewSubspace("docs").Bytes()
	jobsPrefix     = tuple.NewSubspace("fdbjobs").Bytes()
	nodesPrefix    = tuple.NewSubspace("nodes").Bytes() // no other version depends on these
	metaPrefix     = tuple.NewSubspace("meta").Bytes()
	// replicationsPrefix is the prefix of package jobs, which does not take it from here.
	replicationsPrefix = tuple.NewSubspace("replicator").Bytes()
)

// The keys of (meta):
//
//	(meta, "format") -> (format)
//	(meta, "level")  -> (level, release): see package levels
//	(meta, "level", level) -> how far the conversion to the level is: see package levels
//	(meta, "stamp")  -> versionstamp of the commit that wrote it last, 10 bytes
//	(meta, "keys", id): see metaKeys
//
// Many rows are ordered by versionstamps. If a backup is restored into a cluster whose versions are
// lower, new rows would come before old ones. The stamp shows this when a node starts.
var (
	metaFormat = tuple.NewSubspace("meta").Pack("format")
	metaLevel  = tuple.NewSubspace("meta").Pack("level")
	metaStamp  = tuple.NewSubspace("meta").Pack("stamp")
)

// openStore opens the configured store, and checks that this binary may use it. tooOld, if not nil, is called when the
// store has a level that this binary does not know, which another node may raise it to at any time.
func openStore(ctx context.Context, cfg *config.Config, opts kv.Options, tooOld func(error)) (*levels.Guard, error) {
	db, err := kv.Open(ctx, config.Store.Get(cfg), opts)
	if err != nil {
		return nil, fmt.Errorf("opening the store: %w", err)
	}
	guard, err := checkStore(ctx, db, tooOld)
	if err != nil {
		return nil, fmt.Errorf("opening the store: %w", errors.Join(err, db.Close()))
	}
	return guard, nil
}

// checkStore returns the store with its guard, or an error if this binary must not use it. It writes the format and the
// level into a new store.
func checkStore(ctx context.Context, db kv.Database, tooOld func(error)) (*levels.Guard, error) {
	if err := db.Transact(ctx, checkIn); err != nil {
		return nil, err
	}
	return levels.Open(ctx, db, levelOptions(tooOld))
}

// checkIn is the first transaction of checkStore.
func checkIn(tx kv.Transaction) error {
	stored, stamp, version := tx.Get(metaFormat), tx.Get(metaStamp), tx.ReadVersion()
	value, err := stored.Await()
	if err != nil {
		return err
	}
	highest, err := stamp.Await()
	if err != nil {
		return err
	}
	if value == nil {
		tx.Set(metaFormat, tuple.Tuple{format}.Pack())
		levels.Set(tx, levelOptions(nil))
	} else if err := checkKnown(tx, value); err != nil {
		return err
	}
	if err := checkVersion(highest, version); err != nil {
		return err
	}
	noteVersion(tx)
	return nil
}

// checkKnown returns an error if this binary does not know the given format, or the level of the store.
func checkKnown(tx kv.Transaction, stored []byte) error {
	if err := checkFormat(stored); err != nil {
		return err
	}
	return levels.Check(tx, levelOptions(nil))
}

// checkVersion returns an error if the store has been at a later version than it is now.
func checkVersion(highest []byte, version kv.Future[int64]) error {
	current, err := version.Await()
	if err != nil || len(highest) != len(kv.Versionstamp{}) {
		return err
	}
	if seen := int64(binary.BigEndian.Uint64(highest)); seen > current {
		return fmt.Errorf("the store has been at version %d and is at %d now, because it was restored into a younger cluster. "+
			"New rows would come before old ones. Stop all nodes, run `advanceversion %d` in fdbcli, and start them again",
			seen, current, seen+1_000_000_000)
	}
	return nil
}

// checkFormat returns an error if the format of a store is not this binary's.
func checkFormat(stored []byte) error {
	elements, err := tuple.Unpack(stored)
	switch {
	case err != nil || len(elements) != 1:
		return errors.New("the store's format is not one of settee's: something else uses this store")
	case elements[0] != format:
		return fmt.Errorf("the store has format %v, but this version of settee knows only %d", elements[0], format)
	}
	return nil
}

// noteVersion stores the versionstamp of this transaction's commit.
func noteVersion(tx kv.Transaction) {
	tx.SetVersionstampedValue(metaStamp, make([]byte, len(kv.Versionstamp{})+4)) // the last 4 bytes are the offset of the stamp, 0
}

// noteVersions calls noteVersion at intervals until ctx ends.
func (n *node) noteVersions(ctx context.Context) {
	for retry.Wait(ctx, noteEvery) == nil {
		// a later call makes up for a failure
		_ = n.db.Transact(ctx, func(tx kv.Transaction) error {
			noteVersion(tx)
			return nil
		})
	}
}
