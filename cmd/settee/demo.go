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
	"sync"
	"syscall"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

const (
	demoDocuments = 10_000
	demoBatch     = 1_000 // documents of one _bulk_docs
	demoSource    = "animals"
	demoTarget    = "animals-copy"
	demoAdmin     = "demo" // the name of the administrator
	// demoAnswer bounds what the demo waits for an answer, and for the node to start or stop.
	demoAnswer = 30 * time.Second
)

func newDemo() *cobra.Command {
	documents := demoDocuments
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show a replication: start a node, fill a database, copy it, and clean up",
		Long: "demo starts a node on a temporary directory and a free port, fills a database, and copies it\n" +
			"to another one of the same node with a document in _replicator. It shows the requests that it\n" +
			"makes, how far the replication is, and the result. Then it stops the node and removes the\n" +
			"directory.",
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
	cmd.Flags().IntVar(&documents, "documents", documents, "how many documents to copy")
	return cmd
}

// demo runs the demonstration with a node of its own.
func demo(ctx context.Context, out io.Writer, documents int) (err error) {
	dir, err := os.MkdirTemp("", "settee-demo")
	if err != nil {
		return fmt.Errorf("making a directory for the store: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	node, err := startDemoNode(ctx, dir)
	if err != nil {
		return err
	}
	d := demonstration{out: out, url: node.url, password: node.password}
	d.say("A node of its own runs at %s, its store is in %s.", node.url, dir)
	err = d.run(ctx, documents)
	if stopErr := node.stop(); err == nil {
		err = stopErr
	}
	if err == nil {
		d.say("The node has stopped, and its store is removed.")
	}
	return err
}

// demoNode is settee serve in a process of its own.
type demoNode struct {
	cmd      *exec.Cmd
	url      string // ends in a slash
	password string // of its administrator
	log      *tail
}

// startDemoNode returns when the node accepts requests.
func startDemoNode(ctx context.Context, dir string) (*demoNode, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding the program: %w", err)
	}
	n := &demoNode{
		// Not killed with ctx: the node is stopped as operators do it.
		//nolint:gosec // the program is this one
		cmd:      exec.CommandContext(context.WithoutCancel(ctx), self, "serve", "--store", "pebble:"+dir, "--set", "chttpd/port=0", "--set", "log/level=info"),
		log:      &tail{url: make(chan string, 1)},
		password: rand.Text(),
	}
	n.cmd.Stderr = n.log
	// Whatever roles and administrators this shell gives its nodes, this one needs both, and has its
	// own: not in a flag, which others can see.
	n.cmd.Env = append(os.Environ(), "COUCHDB_NODE_TYPE_API_FRONTEND=true", "COUCHDB_NODE_TYPE_REPLICATION=true",
		"COUCHDB_USER="+demoAdmin, "COUCHDB_PASSWORD="+n.password)
	if err := n.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the node: %w", err)
	}
	select {
	case n.url = <-n.log.url:
		return n, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-time.After(demoAnswer):
		err = fmt.Errorf("it does not accept requests after %s", demoAnswer)
	}
	return nil, errors.Join(fmt.Errorf("starting the node: %w", err), n.stop())
}

// stop stops the node, and returns what it ended with.
func (n *demoNode) stop() error {
	_ = n.cmd.Process.Signal(syscall.SIGTERM) // the error is that it has ended
	killer := time.AfterFunc(demoAnswer, func() { _ = n.cmd.Process.Kill() })
	defer killer.Stop()
	if err := n.cmd.Wait(); err != nil {
		return fmt.Errorf("the node ended with %w; the end of its log:\n%s", err, n.log)
	}
	return nil
}

// tail keeps the end of a node's log, and finds in it where the node listens.
type tail struct {
	url chan string

	mu    sync.Mutex
	lines bytes.Buffer
}

// maxTail is how much of a log is kept, about.
const maxTail = 4_000

func (t *tail) Write(text []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lines.Len() > maxTail {
		t.lines.Reset()
	}
	t.lines.Write(text)
	scanner := bufio.NewScanner(bytes.NewReader(text))
	for scanner.Scan() {
		var line struct {
			URL string `json:"url"`
		}
		if json.Unmarshal(scanner.Bytes(), &line) == nil && line.URL != "" {
			select {
			case t.url <- line.URL:
			default:
			}
		}
	}
	return len(text), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lines.String()
}

// demonstration is the requests of the demo.
type demonstration struct {
	out      io.Writer
	url      string
	password string // of the node's administrator
}

// endpoint is the URL of a database, with the administrator's name and a password.
func (d *demonstration) endpoint(database, password string) string {
	return strings.Replace(d.url, "://", "://"+demoAdmin+":"+password+"@", 1) + database
}

// definition is the replication.
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
		return fmt.Errorf("the copy has %d documents, and the source %d", target.Documents, documents)
	}
	return nil
}

// fill makes the source database.
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

// follow shows how far the replication is, until it has ended.
func (d *demonstration) follow(ctx context.Context, documents int) error {
	bar := progressbar.DefaultSilent(int64(documents))
	if file, ok := d.out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
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

// demoError is an answer that is not the one that the demo expects.
type demoError struct{ request, answer string }

func (e *demoError) Error() string { return e.request + ": " + e.answer }

// do makes a request, with a body as JSON if there is one, and reads the answer's.
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
