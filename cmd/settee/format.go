package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"settee/fdbjobs/upgrade"
	"settee/pkg/config"
	"settee/pkg/kv"
	"settee/pkg/kv/levels"
	"settee/pkg/tuple"
)

// format is the version of everything that the first level of a store has: see storeLevels. Nodes of the same
// format may run together. A node converts a store of formats 4, 5 and 8 to 11, and refuses other
// formats than this one, sealedFormat and leveledFormat. Version 0.1.0 wrote 4 and 5; no release wrote the others.
//
// 2 adds the usage of owners, an index of jobs by owner, and expiries to the job layer. A store of
// format 1 cannot be converted: no release wrote it.
//
// 3 adds databases and the jobs of their documents. A node of format 2 would run such a job
// without writing the result into the document, and would go on after the document's database was
// deleted. So nodes of 2 and 3 must not run together. A store of format 2 cannot be converted: no
// release wrote it.
//
// 4 adds counts of an owner's jobs by tag to the job layer, which a node of format 3 does not
// maintain. A store of format 3 cannot be converted: no release wrote it. 5 is 4 with sealed values.
//
// 8 has other keys of jobs: see package upgrade. 9 is 8 with sealed values. A store of formats 6 and
// 7 cannot be converted: no release wrote it.
//
// 10 has the number of each change in the rows of documents, which nodes of 8 and 9 cannot read.
// Rows without it are read as they are. 11 is 10 with sealed values.
//
// 12 has no other rows of jobs than today's. Nodes of 8 to 11 also read and write earlier ones.
const format = int64(12)

// sealedFormat is the format of a store that may have sealed values, because a node had keys
// ([secrets] key_file). Everything else is as in format 12. A node that knows only format 12
// refuses such a store: it would treat sealed values as corrupt, and fail the jobs.
const sealedFormat = int64(13)

// leveledFormat is the format of a store whose level was raised. The level says which rows it has. Versions without levels
// refuse this format: they would commit without looking at the level.
const leveledFormat = int64(14)

// converted has the formats that are converted, and what each becomes.
var converted = map[int64]int64{
	4: format, 5: sealedFormat, 8: format, 9: sealedFormat, 10: format, 11: sealedFormat,
}

const (
	// noteEvery is the interval at which a node stores the current version of the store, and its key.
	noteEvery = 10 * time.Second
	// quietFor is how long no node may have stored the version of a store that is to be converted.
	quietFor = 2 * noteEvery
)

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

// checkStore returns the store with its guard, or an error if this binary must not use it. It writes the format into a
// new store, and converts a store of an earlier format, unless nodes that know only that one use it.
func checkStore(ctx context.Context, db kv.Database, tooOld func(error)) (*levels.Guard, error) {
	var earlier []byte // the stamp of a store to convert
	err := db.Transact(ctx, func(tx kv.Transaction) (err error) {
		earlier, err = checkIn(tx, nil, kv.Exclusive(db))
		return err
	})
	if err == nil && earlier != nil {
		kv.Sleep(ctx, quietFor)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		err = db.Transact(ctx, func(tx kv.Transaction) error {
			_, err := checkIn(tx, earlier, false)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	// Nodes of earlier formats refuse the store from here on.
	guard, err := levels.Open(ctx, db, levelOptions(tooOld))
	if err != nil {
		return nil, err
	}
	if err := upgrade.Jobs(ctx, guard, jobsPrefix); err != nil {
		return nil, fmt.Errorf("converting the jobs of an earlier version: %w", err)
	}
	return guard, nil
}

// checkIn is a transaction of checkStore. It converts a store of an earlier format if it is quiet: if no other process
// has it, or if its stamp is still the one given. Otherwise it returns the stamp, or an error if one was given.
func checkIn(tx kv.Transaction, given []byte, exclusive bool) (earlier []byte, err error) {
	stored, stamp, version := tx.Get(metaFormat), tx.Get(metaStamp), tx.ReadVersion()
	value, err := stored.Await()
	if err != nil {
		return nil, err
	}
	highest, err := stamp.Await()
	if err != nil {
		return nil, err
	}
	next, err := nextFormat(value)
	switch {
	case err != nil:
		return nil, err
	case next == 0: // this one
		if err := levels.Check(tx, levelOptions(nil)); err != nil {
			return nil, err
		}
	case value == nil || exclusive || given != nil && bytes.Equal(highest, given):
		tx.Set(metaFormat, tuple.Tuple{next}.Pack())
		if value == nil {
			levels.Set(tx, levelOptions(nil))
		}
	case given == nil:
		return append([]byte{}, highest...), nil // not nil
	default:
		return nil, errors.New("the store has the format of an earlier version of settee, and nodes of that version use it: stop all of them, and start this one again")
	}
	if err := checkVersion(highest, version); err != nil {
		return nil, err
	}
	noteVersion(tx)
	return nil, nil
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

// nextFormat returns the format to give a store that has one, nil if it is new: 0 if it has this binary's.
func nextFormat(value []byte) (int64, error) {
	if value == nil {
		return format, nil
	}
	elements, err := tuple.Unpack(value)
	if err != nil || len(elements) != 1 {
		return 0, errors.New("the store's format is not one of settee's: something else uses this store")
	}
	switch elements[0] {
	case format, sealedFormat, leveledFormat:
		return 0, nil
	}
	stored, _ := elements[0].(int64)
	if next := converted[stored]; next != 0 {
		return next, nil
	}
	return 0, fmt.Errorf("the store has format %v, but this version of settee knows only 4, 5 and 8 to %d", elements[0], leveledFormat)
}

// noteVersion stores the versionstamp of this transaction's commit.
func noteVersion(tx kv.Transaction) {
	tx.SetVersionstampedValue(metaStamp, make([]byte, len(kv.Versionstamp{})+4)) // the last 4 bytes are the offset of the stamp, 0
}

// noteVersions calls noteVersion at intervals until ctx ends.
func (n *node) noteVersions(ctx context.Context) {
	tick := time.NewTicker(noteEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// a later call makes up for a failure
		_ = n.db.Transact(ctx, func(tx kv.Transaction) error {
			noteVersion(tx)
			return nil
		})
	}
}
