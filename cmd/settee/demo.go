package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
)

const (
	demoDocuments = 10_000
	demoBatch     = 1_000 // documents of one _bulk_docs
	demoSource    = "animals"
	demoTarget    = "animals-copy"
	demoAdmin     = "demo" // the name of the administrator
	// demoAnswer is the time limit for a response, and for starting and stopping the node.
	demoAnswer = 30 * time.Second
)

func newDemo() *cobra.Command {
	documents := demoDocuments
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
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return demo(ctx, cmd.OutOrStdout(), documents)
		},
	}
	cmd.Flags().IntVar(&documents, "documents", documents, "the number of documents to copy")
	return cmd
}

// demo starts a node, runs the demonstration with it and stops it.
func demo(ctx context.Context, out io.Writer, documents int) (err error) {
	dir, err := os.MkdirTemp("", "settee-demo")
	if err != nil {
		return fmt.Errorf("creating a directory for the store: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	node, err := startDemoNode(ctx, dir)
	if err != nil {
		return err
	}
	d := demonstration{out: out, url: node.url, password: node.password}
	d.say("A node for this demo runs at %s. Its store is in %s.", node.url, dir)
	err = d.run(ctx, documents)
	if stopErr := node.stop(); err == nil {
		err = stopErr
	}
	if err == nil {
		d.say("The node has stopped, and its store has been removed.")
	}
	return err
}

// demoNode is a process that runs settee serve.
type demoNode struct {
	cmd      *exec.Cmd
	url      string // ends in a slash
	password string // the administrator's

	read chan struct{} // closed when the process has closed its standard error
	log  string        // the end of it, once read is closed
}

// startDemoNode starts a node and returns when it accepts requests.
func startDemoNode(ctx context.Context, dir string) (*demoNode, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding the program: %w", err)
	}
	n := &demoNode{
		// ctx does not kill the node; stop stops it with SIGTERM.
		//nolint:gosec // it runs this program
		cmd:      exec.CommandContext(context.WithoutCancel(ctx), self, "serve", "--store", "pebble:"+dir, "--set", "chttpd/port=0", "--set", "log/level=info"),
		password: rand.Text(),
		read:     make(chan struct{}),
	}
	// The node has both roles and its own administrator, whatever the environment says. The password
	// is not in a flag, because other users of this host can see flags.
	n.cmd.Env = append(os.Environ(), "COUCHDB_NODE_TYPE_API_FRONTEND=true", "COUCHDB_NODE_TYPE_REPLICATION=true",
		"COUCHDB_USER="+demoAdmin, "COUCHDB_PASSWORD="+n.password)
	stderr, err := n.cmd.StderrPipe()
	if err == nil {
		err = n.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("starting the node: %w", err)
	}
	url := make(chan string, 1)
	go n.readLog(stderr, url)
	select {
	case n.url = <-url:
		return n, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-time.After(demoAnswer):
		err = fmt.Errorf("it did not accept requests within %s", demoAnswer)
	}
	return nil, errors.Join(fmt.Errorf("starting the node: %w", err), n.stop())
}

// maxLog is the approximate number of bytes of a log that are kept.
const maxLog = 4_000

// readLog reads the node's log, and sends the node's URL.
func (n *demoNode) readLog(stderr io.Reader, url chan<- string) {
	defer close(n.read)
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		n.log = n.log[max(0, len(n.log)-maxLog):] + lines.Text() + "\n"
		var line struct {
			URL string `json:"url"`
		}
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.URL != "" {
			select {
			case url <- line.URL:
			default: // it is known
			}
		}
	}
}

// stop stops the node, and returns an error if it ended with one.
func (n *demoNode) stop() error {
	_ = n.cmd.Process.Signal(syscall.SIGTERM) // fails only if the node has ended
	killer := time.AfterFunc(demoAnswer, func() { _ = n.cmd.Process.Kill() })
	defer killer.Stop()
	<-n.read
	if err := n.cmd.Wait(); err != nil {
		return fmt.Errorf("the node ended with %w. The end of its log:\n%s", err, n.log)
	}
	return nil
}

// demonstration makes the requests of the demo.
type demonstration struct {
	out      io.Writer
	url      string
	password string // of the node's administrator
}

// endpoint returns the URL of a database, with the administrator's name and the given password.
func (d *demonstration) endpoint(database, password string) string {
	return strings.Replace(d.url, "://", "://"+demoAdmin+":"+password+"@", 1) + database
}

// definition returns the replication document.
func (d *demonstration) definition(password string) map[string]any {
	return map[string]any{
		"source": d.endpoint(demoSource, password), "target": d.endpoint(demoTarget, password), "create_target": true,
	}
}

func (d *demonstration) say(format string, args ...any) {
	_, _ = fmt.Fprintf(d.out, format+"\n", args...)
}

func (d *demonstration) run(ctx context.Context, documents int) error {
	began := time.Now()
	d.say("PUT  /%s, POST /%s/_bulk_docs", demoSource, demoSource)
	if err := d.fill(ctx, documents); err != nil {
		return err
	}
	d.say("     %d documents in %s", documents, time.Since(began).Round(time.Millisecond))

	text, err := json.Marshal(d.definition("..."))
	if err != nil {
		return fmt.Errorf("writing the replication: %w", err)
	}
	d.say("PUT  /_replicator/demo %s", text)
	began = time.Now()
	if err := d.do(ctx, http.MethodPut, "_replicator/demo", d.definition(d.password), nil); err != nil {
		return err
	}
	if err := d.follow(ctx, documents); err != nil {
		return err
	}
	var target struct {
		Documents int `json:"doc_count"`
	}
	if err := d.do(ctx, http.MethodGet, demoTarget, nil, &target); err != nil {
		return err
	}
	took := time.Since(began)
	d.say("GET  /%s: %d documents, after %s (%.0f a second)",
		demoTarget, target.Documents, took.Round(time.Millisecond), float64(target.Documents)/took.Seconds())
	if target.Documents != documents {
		return fmt.Errorf("the copy has %d documents, but the source has %d", target.Documents, documents)
	}
	return nil
}

// fill creates and fills the source database.
func (d *demonstration) fill(ctx context.Context, documents int) error {
	if err := d.do(ctx, http.MethodPut, demoSource, nil, nil); err != nil {
		return err
	}
	kinds := []string{"cat", "dog", "owl", "bee", "eel"}
	for first := 0; first < documents; first += demoBatch {
		var batch []map[string]any
		for n := first; n < min(first+demoBatch, documents); n++ {
			batch = append(batch, map[string]any{"_id": fmt.Sprintf("animal-%05d", n), "kind": kinds[n%len(kinds)], "number": n})
		}
		if err := d.do(ctx, http.MethodPost, demoSource+"/_bulk_docs", map[string]any{"docs": batch}, nil); err != nil {
			return err
		}
	}
	return nil
}

// follow shows the progress of the replication until it has ended.
func (d *demonstration) follow(ctx context.Context, documents int) error {
	bar := progressbar.DefaultSilent(int64(documents))
	if file := terminal(d.out); file != nil {
		bar = progressbar.NewOptions(documents, progressbar.OptionSetWriter(file), progressbar.OptionSetDescription("     replicating"),
			progressbar.OptionShowCount(), progressbar.OptionClearOnFinish(), progressbar.OptionFullWidth())
	}
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	for {
		var job struct {
			State  string          `json:"_replication_state"`
			Reason string          `json:"_replication_state_reason"`
			Stats  json.RawMessage `json:"_replication_stats"`
		}
		if err := d.do(ctx, http.MethodGet, "_replicator/demo", nil, &job); err != nil {
			return err
		}
		switch job.State {
		case "completed":
			_ = bar.Finish()
			d.say("GET  /_replicator/demo: completed, %s", job.Stats)
			return nil
		case "failed":
			return fmt.Errorf("the replication failed: %s", job.Reason)
		}
		var target struct {
			Documents int `json:"doc_count"`
		}
		var missing *demoError
		if err := d.do(ctx, http.MethodGet, demoTarget, nil, &target); err != nil && !errors.As(err, &missing) {
			return err
		}
		_ = bar.Set(min(target.Documents, documents-1))
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// demoError is the error of a response with a status of 400 or more.
type demoError struct{ request, answer string }

func (e *demoError) Error() string { return e.request + ": " + e.answer }

// do makes a request, with body as JSON if it is not nil, and decodes the response into into if that
// is not nil.
func (d *demonstration) do(ctx context.Context, method, path string, body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, demoAnswer)
	defer cancel()
	text := []byte(nil)
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return fmt.Errorf("writing a request: %w", err)
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, d.url+path, bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("making a request: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.SetBasicAuth(demoAdmin, d.password)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("asking the node: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("%s /%s: %w", method, path, err)
	}
	if response.StatusCode >= http.StatusBadRequest {
		return &demoError{method + " /" + path, strings.TrimSpace(string(answer))}
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("%s /%s: %w", method, path, err)
	}
	return nil
}
