package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"settee/fdbjobs"
	"settee/frontend/accounts"
	"settee/pkg/audit"
	"settee/pkg/config"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/check"
	"settee/pkg/kv/levels"
	"settee/pkg/kv/pebblekv"
	"settee/pkg/nodes"
	"settee/pkg/sealed"
	"settee/replicator/jobs"
)

// The exit statuses of settee check besides 0.
const (
	exitFaulty    = 1
	exitUnchecked = 2 // the store could not be checked, or the command line is wrong
)

type checkFlags struct {
	configFlags
	repair, json, repairLog bool
}

func newCheck() *cobra.Command {
	var flags checkFlags
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Read a whole store, and list the rows that are wrong",
		Long: "check reads all rows of the store (--store) and compares them with one another: documents with\n" +
			"their revisions, bodies, attachments and indexes, jobs with their queues, and all counters with\n" +
			"what they count. It prints a line for each fault: the layer, the key, and what is wrong. It never\n" +
			"prints values.\n\n" +
			"--repair writes what follows from other rows: indexes and counters. It never changes documents,\n" +
			"attachments or jobs, and it leaves unknown keys.\n\n" +
			"Only one process can open a store in a directory: stop the node before. With a store on\n" +
			"FoundationDB the nodes may run. A row that they write behind the place that the check has\n" +
			"reached is then not checked, and a counter that changes all the time is not compared.\n\n" +
			"Values that are encrypted are checked if [secrets] key_file has their keys, and counted otherwise.\n\n" +
			"--repair-log is for a store in a directory that is not opened because its log is damaged. If one bit\n" +
			"makes the log right, it is put right, and nothing is lost. Otherwise it gives up what was written\n" +
			"after the damage: restore a backup if there is one. It keeps the files as they were, and then checks\n" +
			"the store. Copy the directory before.\n\n" +
			"The exit status is 0 if the store is sound or everything was repaired, 1 if it has faults, and 2\n" +
			"if it could not be checked or the command line is wrong.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := checkStoreOf(cmd, flags)
			var exit *exitError
			if err != nil && !errors.As(err, &exit) {
				err = &exitError{exitUnchecked, err}
			}
			return err
		},
	}
	flags.register(cmd)
	cmd.Flags().BoolVar(&flags.repair, "repair", false, "write the indexes and counters that are wrong")
	cmd.Flags().BoolVar(&flags.repairLog, "repair-log", false, "put a damaged log right, or give up what was written after the damage")
	cmd.Flags().BoolVar(&flags.json, "json", false, "print a JSON object per line: the faults, and then the counts")
	return cmd
}

// faultObject is the JSON form of a fault.
type faultObject struct {
	Layer      string `json:"layer"`
	Place      string `json:"place,omitempty"`
	Key        string `json:"key"`
	Fault      string `json:"fault"`
	Repairable bool   `json:"repairable"`
	Repaired   bool   `json:"repaired"`
}

func checkStoreOf(cmd *cobra.Command, flags checkFlags) (err error) {
	cfg, _, err := flags.load()
	if err != nil {
		return err
	}
	keys, err := readKeys(cfg)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	if flags.repairLog {
		if err := repairLog(cmd, config.Store.Get(cfg)); err != nil {
			return err
		}
	}
	db, err := kv.Open(ctx, config.Store.Get(cfg), kv.Options{Existing: true})
	if err != nil {
		return fmt.Errorf("opening the store: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	display := newDisplay(cmd.OutOrStdout(), cmd.ErrOrStderr(), flags.json)
	c := check.Checker{
		DB: db, Repair: flags.repair,
		Report: func(f check.Fault) error {
			return display.say(faultObject{f.Layer, f.Place, check.Text(f.Key), f.What, f.Repairable, f.Repaired}, faultLine(f))
		},
		Progress: func(counts check.Counts) error { return display.show(describeChecked(counts), nil) },
	}
	failed := checkLayers(ctx, &c, keys)
	outcome := "sound"
	switch left := c.Counts.Faults - c.Counts.Repaired; {
	case failed != nil:
		outcome = "failed"
	case left > 0:
		outcome, failed = "faulty", &exitError{exitFaulty, nil}
	case c.Counts.Repaired > 0:
		outcome = "repaired"
	}
	took := time.Since(display.began)
	return cmp.Or(failed, display.say(struct {
		Outcome string `json:"outcome"`
		check.Counts
		Seconds float64 `json:"seconds"`
	}{outcome, c.Counts, took.Seconds()}, fmt.Sprintf("%s: %s in %s", outcome, describeChecked(c.Counts), took.Round(time.Millisecond))))
}

// repairLog repairs the log of a store, and says what was done.
func repairLog(cmd *cobra.Command, store string) error {
	done, err := pebblekv.RepairLog(store)
	if err != nil {
		return err
	}
	text := "no log is damaged: nothing was done"
	switch {
	case len(done.Bits) > 0:
		text = fmt.Sprintf("%s had wrong bits at %v, which are put right: nothing is lost. The file as it was is in %s", done.Log, done.Bits, done.Kept)
	case done.Log != "":
		text = fmt.Sprintf("%s was cut at %d: what was written later is gone from the store. The files as they were are in %s", done.Log, done.Cut, done.Kept)
	}
	_, err = fmt.Fprintln(cmd.ErrOrStderr(), text)
	return err
}

func faultLine(f check.Fault) string {
	line := f.Layer
	if f.Place != "" {
		line += ", " + f.Place
	}
	line += ": " + f.String()
	switch {
	case f.Repaired:
		line += " (repaired)"
	case f.Repairable:
		line += " (--repair repairs this)"
	}
	return line
}

// describeChecked says what was checked, without counts that are usually 0.
func describeChecked(c check.Counts) string {
	return fmt.Sprintf("%d rows checked, %d faults", c.Rows, c.Faults) + describeRare(
		rareCount{c.Repaired, "repaired"},
		rareCount{c.Sealed, "values not decrypted, because their keys are not in the key file"},
		rareCount{c.Unsettled, "counters not compared, because what they count changed or cannot be read"},
	)
}

// checkLayers checks everything in a store.
func checkLayers(ctx context.Context, c *check.Checker, keys *sealed.Keys) error {
	c.Layer = "meta"
	if err := checkSettee(ctx, c.DB); err != nil {
		return err
	}
	guard, err := levels.Open(ctx, c.DB, levelOptions(nil)) // a node may raise the level meanwhile
	if err != nil {
		return err
	}
	c.DB = guard
	layer := fdbjobs.Open(c.DB, jobsPrefix, fdbjobs.Options{Sealer: keys, Derive: jobs.Derivations()})
	defer layer.Close()
	docs := docstore.Open(c.DB, docsPrefix, docstore.Options{Sealer: keys, Sealed: sealedDatabase})
	defer docs.Close()
	// In the order of their keys.
	layers := []struct {
		name   string
		prefix []byte
		check  func() error
	}{
		{"accounts", accountsPrefix, func() error { return accounts.Check(ctx, c, accountsPrefix, keys) }},
		{"audit", audit.Prefix, func() error { return audit.Check(ctx, c) }},
		{"config", configPrefix, func() error { return config.CheckStored(ctx, c, configPrefix, keys) }},
		{"docs", docsPrefix, func() error { return docs.Check(ctx, c) }},
		{"jobs", jobsPrefix, func() error { return layer.Check(ctx, c) }},
		{"meta", metaPrefix, func() error { return checkMeta(ctx, c, keys) }},
		{"nodes", nodesPrefix, func() error { return nodes.Check(ctx, c, nodesPrefix) }},
		{"replications", replicationsPrefix, func() error { return jobs.Check(ctx, c, layer) }},
	}
	var known []kv.KeyRange
	for _, l := range layers {
		c.Layer = l.name
		if err := l.check(); err != nil {
			return fmt.Errorf("checking the store: %s: %w", l.name, err)
		}
		known = append(known, kv.PrefixRange(l.prefix))
	}
	c.Layer = "unknown"
	return c.Rest(ctx, kv.KeyRange{Begin: []byte{}, End: []byte{0xff}}, known...)
}

// checkSettee returns an error if the store is not one of settee's that this binary knows.
func checkSettee(ctx context.Context, db kv.Database) error {
	value, err := kv.TransactValue(ctx, db, func(tx kv.Transaction) ([]byte, error) { return tx.Get(metaFormat).Await() })
	switch {
	case err != nil:
		return err
	case value == nil:
		return errors.New("there is no settee store here: no node has used it")
	}
	return checkFormat(value)
}

// checkMeta checks the rows of (meta). A version that has gone back is a fault.
func checkMeta(ctx context.Context, c *check.Checker, keys *sealed.Keys) error {
	return c.Walk(ctx, kv.PrefixRange(metaPrefix), func(p *check.Page, pair kv.KeyValue) (func() error, error) {
		key, err := metaKeys.Unpack(pair.Key)
		switch string(pair.Key) {
		case string(metaFormat):
			return nil, nil // checkSettee has read it
		case string(metaStamp):
			version := p.ReadVersion()
			return func() error {
				if _, err := version.Await(); err != nil {
					return err
				}
				if err := checkVersion(pair.Value, version); err != nil || len(pair.Value) != len(kv.Versionstamp{}) {
					p.Fault(pair.Key, nil, "the store has been at a later version than it is now, or the value is not a version")
				}
				return nil
			}, nil
		}
		if bytes.HasPrefix(pair.Key, metaLevel) {
			if !levels.Known(metaLevel, pair) {
				p.Fault(pair.Key, nil, "unknown key, or a value that settee does not write")
			}
			return nil, nil
		}
		if err != nil || len(key) != 1 {
			p.Fault(pair.Key, nil, "unknown key")
			return nil, nil
		}
		id, _ := key[0].(string)
		switch _, err := keys.Open(pair.Value, "key", id); {
		case kv.UnknownKey(err):
			p.Sealed()
		case err != nil:
			p.Fault(pair.Key, nil, "the key %q of the key file is not the one that the store's values are sealed with", id)
		}
		return nil, nil
	})
}
