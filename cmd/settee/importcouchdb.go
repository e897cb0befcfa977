package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"settee/cmd/settee/internal/credentials"
	"settee/cmd/settee/internal/migrate"
	"settee/replicator"
	"settee/replicator/worker"
)

// importFlags are the flags of settee import-couchdb.
type importFlags struct {
	clientFlags
	to, ini, match       string
	limit                int
	move, back, takeOver bool
	all, json, overwrite bool
}

func newImportCouchDB() *cobra.Command {
	var flags importFlags
	cmd := &cobra.Command{
		Use:   "import-couchdb COUCHDB [DATABASE...]",
		Short: "Move the replications of a CouchDB cluster to settee, or back",
		Long: "import-couchdb shows what a move of the replications of the CouchDB at the URL COUCHDB to settee\n" +
			"would do: settings that differ, and for each replication document the checkpoint from which its\n" +
			"job goes on. It changes nothing, unless --move or --back say so. It asks both servers with the\n" +
			"name and the password of a server administrator. The endpoints of the jobs are asked by this\n" +
			"command, with the settings of --config and --set.\n\n" +
			"--move moves the named replicator databases, one after the other: the jobs of a database are\n" +
			"stopped in CouchDB, and when none runs any more they start in settee. --back does the reverse.\n" +
			"A command that was interrupted continues when it is run again. Until then the jobs that it has\n" +
			"stopped run nowhere, and --back leaves the database paused in settee; the command says so. At no\n" +
			"time do both servers run a job.\n\n" +
			"A document that has moved is marked with the store that has it, and other stores are refused, so\n" +
			"that its job does not run twice. If that store is lost, say --take-over.\n\n" +
			"--match and --limit select some documents, for instance ten to begin with. The others stay.\n\n" +
			credentialsHelp(credentials.CouchDB, credentials.Node) +
			"The exit status is 0 if everything can move or has moved, 1 if the command failed, 2 if the\n" +
			"command line is wrong, 3 if some documents stay where they are, and 130 or 143 if a signal\n" +
			"stopped it.",
		Example: "  settee import-couchdb http://couchdb.example:5984 --to http://127.0.0.1:5984 --credentials admin.netrc\n" +
			"  settee import-couchdb http://couchdb.example:5984 _replicator --move --to http://127.0.0.1:5984 --credentials admin.netrc\n" +
			"  settee import-couchdb http://couchdb.example:5984 _replicator --move --match 'films-*' --limit 10 --to http://127.0.0.1:5984 --credentials admin.netrc",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("the URL of a CouchDB is needed")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.check(args, cmd.Flags().Changed("limit")); err != nil {
				return usage(cmd, err)
			}
			return flags.run(cmd, args[0], args[1:])
		},
	}
	f := cmd.Flags()
	flags.clientFlags.register(cmd)
	f.StringVar(&flags.to, "to", "", "the URL of a node of settee that runs")
	f.BoolVar(&flags.move, "move", false, "move the databases to settee")
	f.BoolVar(&flags.back, "back", false, "move the databases back to CouchDB")
	f.BoolVar(&flags.all, "all", false, "with --move and --back: all replicator databases")
	f.BoolVar(&flags.takeOver, "take-over", false, "also take documents that have moved to a store that is lost")
	f.StringVar(&flags.match, "match", "", "only documents whose id matches the pattern: * is any text, ? any character")
	f.IntVar(&flags.limit, "limit", 0, "at most this many documents of each database")
	f.StringVar(&flags.ini, "ini", "", "write the settings for settee's nodes to this file, which must not exist")
	f.BoolVar(&flags.overwrite, "overwrite", false, "overwrite the file of --ini")
	f.BoolVar(&flags.json, "json", false, "print a JSON object per line")
	return cmd
}

func (f *importFlags) check(args []string, limited bool) error {
	for _, name := range args[1:] {
		if !replicator.IsReplicatorDatabase(name) {
			return fmt.Errorf("%q is not the name of a replicator database, which is _replicator or ends with /_replicator", name)
		}
	}
	switch {
	case limited && f.limit < 1:
		return errors.New("--limit must be at least 1")
	case f.move && f.back:
		return errors.New("--move and --back exclude each other")
	case (f.move || f.back) && f.to == "":
		return errors.New("--to is needed: the URL of a node of settee")
	case f.to == "" && f.ini == "":
		return errors.New("--to or --ini is needed")
	case (f.move || f.back) && f.all == (len(args) > 1):
		return errors.New("name the databases to move, or say --all")
	}
	return nil
}

func (f *importFlags) run(cmd *cobra.Command, couchDB string, databases []string) (err error) {
	c, err := f.open(cmd)
	if err != nil {
		return err
	}
	defer c.close()
	told := newImportOutput(cmd, f.json)
	defer func() { err = errors.Join(err, told.end()) }()
	mover := &migrate.Mover{TakeOver: f.takeOver, Tell: told.tell, Report: told.report}
	from, err := c.connect("CouchDB", credentials.CouchDB, couchDB)
	if err != nil {
		return err
	}
	mover.CouchDB = &migrate.Server{Server: from}
	if f.to != "" {
		to, err := c.connect("settee", credentials.Node, f.to)
		if err != nil {
			return err
		}
		mover.Settee = &migrate.Server{Server: to}
	}
	ctx, unwatch := stopOnSignal(cmd.Context())
	defer unwatch()
	kept, err := f.perform(ctx, mover, told, databases, c.requestSettings())
	switch {
	case err != nil && ctx.Err() != nil:
		return stopped(ctx, errors.New("stopped; the same command continues"))
	case err != nil:
		return err
	case kept > 0:
		return &exitError{exitFindings, nil}
	}
	return nil
}

// perform does what the flags say, and returns the number of documents that stay where they are.
func (f *importFlags) perform(
	ctx context.Context, m *migrate.Mover, told *importOutput, databases []string, settings worker.Config,
) (kept int, err error) {
	portion, moves := migrate.NewPortion(f.match, f.limit), f.move || f.back
	var cluster *migrate.Cluster
	if f.ini != "" || !moves {
		if cluster, err = m.Cluster(ctx); err != nil {
			return 0, err
		}
	}
	if f.ini != "" {
		if err := f.writeINI(cluster.INI()); err != nil {
			return 0, err
		}
	}
	switch {
	case moves:
		return f.transfer(ctx, m, told, databases, portion)
	case f.to == "":
		return 0, nil
	case len(databases) == 0:
		if databases, err = m.CouchDB.Databases(ctx); err != nil {
			return 0, err
		}
	}
	return m.Plan(ctx, cluster, databases, portion, settings)
}

// transfer moves databases, and returns the number of documents that stay where they are.
func (f *importFlags) transfer(
	ctx context.Context, m *migrate.Mover, told *importOutput, databases []string, portion migrate.Portion,
) (kept int, err error) {
	move, from := m.Move, m.CouchDB
	if f.back {
		move, from = m.Back, m.Settee
	}
	if f.all {
		if databases, err = from.Databases(ctx); err != nil {
			return 0, err
		}
	}
	for _, name := range databases {
		moved, err := move(ctx, name, portion)
		if err != nil {
			told.warn(ctx, m, moved)
			return kept, err
		}
		kept += moved.Kept
		if err := m.Tell(moved); err != nil {
			return kept, err
		}
	}
	return kept, nil
}

// writeINI writes the file of --ini.
func (f *importFlags) writeINI(text []byte) error {
	if !f.overwrite {
		if _, err := os.Lstat(f.ini); err == nil {
			return fmt.Errorf("%s exists: say --overwrite, or name another file", f.ini)
		}
	}
	return writeForService(f.ini, text)
}
