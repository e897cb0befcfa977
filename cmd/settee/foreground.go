package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"settee/replicator"
	"settee/replicator/worker"
)

// foregroundFlags are the flags of the commands that copy or compare what two URLs name, in this process.
type foregroundFlags struct {
	clientFlags
	selectionFlags
	mirrorFlags
	json bool
}

// register adds the flags to a command that copies or compares documents, as verb says.
func (f *foregroundFlags) register(cmd *cobra.Command, verb string) {
	f.clientFlags.register(cmd)
	f.selectionFlags.register(cmd.Flags(), verb)
	f.mirrorFlags.register(cmd.Flags(), verb)
}

// run calls do with what a command line names. fields are further fields of the replication.
func (f *foregroundFlags) run(cmd *cobra.Command, urls []string, fields map[string]any, do func(*foreground) error) error {
	if err := f.mirrorFlags.check(cmd); err != nil {
		return usage(cmd, err)
	}
	c, err := f.open(cmd)
	if err != nil {
		return err
	}
	defer c.close()
	if fields["source"], fields["target"], err = c.endpoints(urls); err != nil {
		return err
	}
	f.mirrorFlags.add(fields)
	replication, err := f.parse(fields)
	if err != nil {
		return usage(cmd, err)
	}
	settings, err := c.workerSettings(replication)
	if err != nil {
		return err
	}
	stop, unwatch := stopOnSignal(cmd.Context())
	defer unwatch()
	return do(&foreground{cmd, replication, settings, stop, f.databases, f.json})
}

// foreground is a replication, or a mirror, that this process copies or compares.
type foreground struct {
	cmd         *cobra.Command
	replication *replicator.Replication
	settings    worker.Config
	stop        context.Context // ends when the command is asked to stop
	atATime     int             // databases of a mirror
	json        bool
}

func (f *foreground) newDisplay() *display {
	return newDisplay(f.cmd.OutOrStdout(), f.cmd.ErrOrStderr(), f.json)
}

// copy copies, and returns the error with the exit status: exitFindings if everything was copied, except for documents that the target
// refused.
func (f *foreground) copy() error {
	if f.replication.Mirror != nil {
		return f.copyMirror()
	}
	return f.copyDatabase()
}

// verify compares, and returns the error with the exit status. what has no replication and no functions. looked is when a mirror last
// read the list of databases, zero if that is not known.
func (f *foreground) verify(what worker.Verification, looked time.Time) error {
	what.Replication, what.Stop = f.replication, f.stop
	if f.replication.Mirror != nil {
		return f.verifyMirror(what, looked)
	}
	return f.verifyDatabase(what)
}

// selectionFlags are the flags that select documents.
type selectionFlags struct {
	winningRevsOnly                         bool
	docIDs                                  []string
	filter, queryParams, selector, sinceSeq string
}

// register adds the flags to a command that copies or compares documents, as verb says.
func (s *selectionFlags) register(f *pflag.FlagSet, verb string) {
	f.BoolVar(&s.winningRevsOnly, "winning-revs-only", false, "do not "+verb+" conflicting revisions")
	f.StringArrayVar(&s.docIDs, "doc-id", nil, verb+" only this document; may be repeated")
	f.StringVar(&s.filter, "filter", "", verb+" the documents that a filter function of the source passes: ddoc/name")
	f.StringVar(&s.queryParams, "query-params", "", "the parameters of the filter function, a JSON object")
	f.StringVar(&s.selector, "selector", "", verb+" the documents that match a selector, a JSON object")
}

// twoURLs checks the arguments of a command with a source and a target.
func twoURLs(_ *cobra.Command, args []string) error {
	if len(args) != 2 {
		return errors.New("two URLs are needed: the source's and the target's")
	}
	return nil
}

// parse converts the command line into a body of POST /_replicate and parses that, so that a command accepts what a
// node accepts, with the same error messages. body has the fields of other flags.
func (s *selectionFlags) parse(body map[string]any) (*replicator.Replication, error) {
	if s.winningRevsOnly {
		body["winning_revs_only"] = true
	}
	if s.docIDs != nil {
		body["doc_ids"] = s.docIDs
	}
	for field, text := range map[string]string{"filter": s.filter, "since_seq": s.sinceSeq} {
		if text != "" {
			body[field] = text
		}
	}
	for flag, text := range map[string]string{"query-params": s.queryParams, "selector": s.selector} {
		if text == "" {
			continue
		}
		if !json.Valid([]byte(text)) {
			return nil, fmt.Errorf("--%s must be a JSON object", flag)
		}
		body[strings.ReplaceAll(flag, "-", "_")] = json.RawMessage(text)
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("writing the replication: %w", err)
	}
	request, err := replicator.ParseRequest(text, replicator.ParseOptions{})
	if err != nil {
		return nil, nameFlags(err)
	}
	return request.Replication, nil
}
