package main

import (
	"context"
	"time"

	"settee/pkg/config"
	"settee/pkg/kv/levels"
)

// storeLevel is a level of a store: what the nodes that use it may rely on.
type storeLevel struct {
	number int64
	since  string // the first release that knows it
	// changes says what it has that the level before has not, reads what a node reads and writes of the level before, and
	// tested how that is tested. They are a row of the table in docs/operations.md.
	changes, reads, tested string
}

// storeLevels are the levels that releases of settee know, the lowest first. A release adds at most one, and then knows that
// one and the one before: it reads the rows of both, and writes those of the store's level, for which it asks in each
// transaction ([levels.Guard.Level]). If earlier rows have to be converted, a task of the upkeep does that once the store
// has the new level, in bounded transactions that another node can go on from.
var storeLevels = append([]storeLevel{{
	number: levels.First, since: "1.0.0", changes: "the rows of the formats `12` and `13`",
	reads:  "nothing: stores of earlier formats are converted with a stop",
	tested: "`TestConvertStore`: stores of earlier formats are converted",
}}, testLevels...)

// ownLevel is the level of this release.
var ownLevel = storeLevels[len(storeLevels)-1].number

// levelOptions returns the options of a store's guard.
func levelOptions(unknown func(error)) levels.Options {
	opts := levels.Options{Key: metaLevel, Own: ownLevel, Release: currentVersion()}
	if unknown != nil {
		opts.Unknown = func(err *levels.UnknownLevelError) { unknown(err) }
	}
	return opts
}

// raiseLevel raises the level of the store once all live nodes have known the next one for [settee] upgrade_after_sec.
func (n *node) raiseLevel(ctx context.Context) {
	n.upgrade.Run(ctx, func() time.Duration { return config.UpgradeAfter.Get(n.live.Current()) }, func(level int64, err error) {
		if err != nil {
			n.log.Error().Err(err).Int64("level", level).Msg("the level of the store could not be raised, and is tried again")
			return
		}
		n.log.Info().Int64("level", level).Msg("raised the level of the store: nodes of earlier releases that do not know it stop")
	})
}
