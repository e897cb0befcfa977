package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"settee/fdbjobs"
	"settee/fdbjobs/upkeep"
	"settee/pkg/config"
	"settee/pkg/kv"
	"settee/pkg/kv/levels"
)

// storeLevel is a level of a store: what the nodes that use it may rely on.
type storeLevel struct {
	number int64
	since  string // the first release that knows it
	// changes says what it has that the level before has not, reads what a node reads and writes of the level before, and
	// tested how that is tested. They are a row of the table in docs/backup-and-upgrade.md.
	changes, reads, tested string
	// convert returns a step of the conversion of the level before's rows, on a node of an api_frontend: see
	// [levels.Conversion]. nil means that no rows have to be converted.
	convert func(n *node) func(tx kv.Transaction, from []byte) (next []byte, err error)
}

// storeLevels are the levels that releases of settee know, the lowest first. A release adds at most one, and then knows that
// one and the one before: it reads the rows of both, and writes the rows of the store's level, for which it asks in each
// transaction ([levels.Guard.Reached]). If earlier rows have to be converted, a task of the upkeep does that once the store
// has the new level, in bounded transactions that another node can go on from. What needs all rows converted asks for that
// ([levels.Guard.Converted]).
var storeLevels = []storeLevel{{
	number: levels.First, since: "1.0.0", changes: "it is the first one", reads: "there is none",
	tested: "`TestRolling`: the raise from it in a cluster. The older program is 1.0.0, and the newer one has a made-up level 2",
}}

// ownLevel returns the level of this release.
func ownLevel() int64 { return storeLevels[len(storeLevels)-1].number }

// levelOptions returns the options of a store's guard.
func levelOptions(unknown func(error)) levels.Options { return optionsOf(storeLevels, unknown) }

// optionsOf returns the options of a guard for a release with the given levels.
func optionsOf(known []storeLevel, unknown func(error)) levels.Options {
	opts := levels.Options{Key: metaLevel, Own: known[len(known)-1].number, Release: currentVersion()}
	for _, l := range converting(known) {
		opts.Conversions = append(opts.Conversions, l.number)
	}
	if unknown != nil {
		opts.Unknown = func(err *levels.UnknownLevelError) { unknown(err) }
	}
	return opts
}

// converting returns the levels with conversions, of the two that a release with the given levels knows.
func converting(known []storeLevel) []storeLevel {
	return slices.DeleteFunc(slices.Clone(known[max(0, len(known)-2):]), func(l storeLevel) bool { return l.convert == nil })
}

// conversionTasks returns the tasks that convert rows after the raise of one of the given levels.
func (n *node) conversionTasks(known []storeLevel) (tasks []upkeep.Task) {
	if n.guard == nil { // a test has set db
		return nil
	}
	for _, l := range converting(known) {
		c := levels.Conversion{Level: l.number, Step: l.convert(n)}
		tasks = append(tasks, upkeep.Task{
			Name: conversionTask(l.number), Every: documentUpkeepEvery,
			Run: func(ctx context.Context, _ *fdbjobs.Held) error { return n.convert(ctx, c) },
		})
	}
	return tasks
}

// conversionTurn is how long a conversion runs before other tasks of the upkeep may.
const conversionTurn = 10 * time.Second

// convert runs a conversion for conversionTurn.
func (n *node) convert(ctx context.Context, c levels.Conversion) error {
	turn, cancel := context.WithTimeout(ctx, conversionTurn)
	defer cancel()
	err := n.guard.Convert(turn, c)
	if err != nil && turn.Err() != nil && ctx.Err() == nil {
		return upkeep.ErrUnfinished
	}
	return err
}

// conversionTask returns the name of the task that converts rows to a level.
func conversionTask(level int64) string { return fmt.Sprint("conversion to level ", level) }

// beginConversion makes the conversion to this release's level due, in the transaction that raises the store to it.
func (n *node) beginConversion(tx kv.Transaction) error {
	if storeLevels[len(storeLevels)-1].convert == nil {
		return nil
	}
	return n.layer.Queue(upkeep.Queue).Add(tx, fdbjobs.Spec{ID: conversionTask(ownLevel())})
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
