package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"settee/cmd/settee/internal/lifecycle"
	"settee/cmd/settee/internal/remote"
	"settee/pkg/config"
	"settee/pkg/retry"
)

// demoBatch is the number of documents of one _bulk_docs.
const demoBatch = 1_000

func newDemo() *cobra.Command {
	documents := 10_000
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show a replication: start a node, fill a database, copy it, and clean up",
		Long: "demo starts a node on a temporary directory and a free port, fills a database, and copies it\n" +
			"to another one of the same node with a document in _replicator. It shows its requests, the\n" +
			"progress of the replication and the result. Then it stops the node and removes the directory.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if documents < 1 {
				return usage(cmd, errors.New("--documents must be at least 1"))
			}
			return demo(cmd, documents)
		},
	}
	cmd.Flags().IntVar(&documents, "documents", documents, "the number of documents to copy")
	return cmd
}

// demo runs a node whose last part is the demonstration. The node has both roles and its own administrator, whatever the
// environment says.
func demo(cmd *cobra.Command, documents int) (err error) {
	dir, err := os.MkdirTemp("", "settee-demo")
	if err != nil {
		return fmt.Errorf("creating a directory for the store: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	password := rand.Text()
	cfg, _, err := config.Load(config.Options{
		Environ: []string{"COUCHDB_USER=demo", "COUCHDB_PASSWORD=" + password},
		Flags:   []string{"chttpd/port=0", "log/level=error"}, Store: "pebble:" + dir,
	})
	if err != nil {
		return err
	}
	stop, unwatch := stopOnSignal(cmd.Context())
	defer unwatch()
	ctx, end := context.WithCancel(stop)
	defer end()
	d := demonstration{out: cmd.OutOrStdout()}
	n := &node{cfg: cfg, log: newLog(cmd.ErrOrStderr(), config.LogLevel.Get(cfg))}
	err = n.run(ctx, lifecycle.Part{Start: func(ctx context.Context) error {
		defer end()
		d.say("A node for this demo runs at %s. Its store is in %s.", n.url, dir)
		return d.run(ctx, strings.Replace(n.url, "://", "://demo:"+password+"@", 1), password, documents)
	}})
	switch {
	case stop.Err() != nil:
		return stopped(stop, nil)
	case err == nil:
		d.say("The node has stopped, and its store is removed.")
	}
	return err
}

// demonstration makes the requests of the demo.
type demonstration struct {
	*remote.Server
	out io.Writer
}

func (d *demonstration) say(format string, args ...any) {
	_, _ = fmt.Fprintf(d.out, format+"\n", args...)
}

// run fills a database of the node at url, which has the password, and copies it.
func (d *demonstration) run(ctx context.Context, url, password string, documents int) (err error) {
	if d.Server, err = remote.Connect("settee", url, http.DefaultTransport); err != nil {
		return err
	}
	d.say("PUT  /animals, POST /animals/_bulk_docs: %d documents", documents)
	if err := d.fill(ctx, documents); err != nil {
		return err
	}
	replication, err := json.Marshal(map[string]any{"source": url + "animals", "target": url + "animals-copy", "create_target": true})
	if err != nil {
		return fmt.Errorf("writing the replication: %w", err)
	}
	d.say("PUT  /_replicator/demo %s", strings.ReplaceAll(string(replication), password, "..."))
	began := time.Now()
	if err := d.Ask(ctx, http.MethodPut, "/_replicator/demo", json.RawMessage(replication), nil); err != nil {
		return err
	}
	if err := d.follow(ctx, documents); err != nil {
		return err
	}
	took := time.Since(began)
	copied, err := d.copied(ctx)
	d.say("GET  /animals-copy: %d documents, after %s (%.0f a second)", copied, took.Round(time.Millisecond), perSecond(copied, took))
	return err
}

// fill creates and fills the source database.
func (d *demonstration) fill(ctx context.Context, documents int) error {
	err := d.Ask(ctx, http.MethodPut, "/animals", nil, nil)
	for first := 0; first < documents && err == nil; first += demoBatch {
		var batch []map[string]any
		for n := first; n < min(first+demoBatch, documents); n++ {
			batch = append(batch, map[string]any{"_id": fmt.Sprintf("animal-%05d", n), "number": n})
		}
		err = d.Ask(ctx, http.MethodPost, "/animals/_bulk_docs", map[string]any{"docs": batch}, nil)
	}
	return err
}

// follow shows the progress of the replication until it has ended.
func (d *demonstration) follow(ctx context.Context, documents int) error {
	display := newDisplay(d.out, d.out, false)
	for {
		var job struct {
			State  string          `json:"_replication_state"`
			Reason string          `json:"_replication_state_reason"`
			Stats  json.RawMessage `json:"_replication_stats"`
		}
		if err := d.Get(ctx, "/_replicator/demo", &job); err != nil {
			return err
		}
		switch job.State {
		case "completed":
			defer d.say("GET  /_replicator/demo: completed, %s", job.Stats)
			return display.end()
		case "failed":
			return errors.Join(display.end(), fmt.Errorf("the replication failed: %s", job.Reason))
		}
		copied, err := d.copied(ctx)
		if err != nil {
			return err
		}
		left := int64(documents) - copied
		if err := display.draw("     replicating", &left); err != nil {
			return err
		}
		if err := retry.Wait(ctx, progressEvery); err != nil {
			return err
		}
	}
}

// copied returns the number of documents in the target, 0 while there is none.
func (d *demonstration) copied(ctx context.Context) (int64, error) {
	var target struct {
		Documents int64 `json:"doc_count"`
	}
	err := d.Get(ctx, "/animals-copy", &target)
	if remote.IsStatus(err, http.StatusNotFound) {
		err = nil
	}
	return target.Documents, err
}
