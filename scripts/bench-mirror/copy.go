package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"settee/scripts/internal/lab"
)

const (
	// makers is the number of databases that are made, counted or deleted at a time.
	makers = 16
	// shards is the number of shards of a database, CouchDB's default.
	shards = 2
	// lookEvery is how often the target is asked for each of makers databases, until it has all documents of them. Then the
	// next ones follow. So most databases are asked for once.
	lookEvery = 250 * time.Millisecond

	mirrorPath = "_replicator/bench"
)

// bench is the servers, and what is known of them.
type bench struct {
	*options
	progress       io.Writer
	source, target *lab.CouchDB
	node           *lab.Node
	random         *rand.Rand
	report         report
}

// measure measures. The report has what was measured, even with an error.
func measure(ctx context.Context, o *options, progress io.Writer) (r *report, err error) {
	dir, err := os.MkdirTemp("", "bench-mirror-")
	if err != nil {
		return nil, err
	}
	b := &bench{
		options: o, progress: progress, random: rand.New(rand.NewPCG(o.seed, 0)),
		report: report{Databases: o.databases, Docs: o.docs, Starts: o.starts},
	}
	defer func() { err = errors.Join(err, b.stop(), os.RemoveAll(dir)) }()
	if o.settee == "" {
		o.settee = filepath.Join(dir, "settee")
		if err := lab.Build(ctx, o.settee); err != nil {
			return nil, err
		}
	}
	if b.report.Settee, err = lab.Version(ctx, o.settee); err != nil {
		return nil, err
	}
	if err := b.start(ctx); err != nil {
		return nil, err
	}
	return &b.report, b.run(ctx)
}

// start starts the servers and makes the databases of the source.
func (b *bench) start(ctx context.Context) (err error) {
	if b.source, err = lab.OpenCouchDB(ctx, "", shards); err != nil {
		return err
	}
	b.report.CouchDB = b.source.About
	if b.target, err = lab.OpenCouchDB(ctx, "", shards); err != nil {
		return err
	}
	if err := b.source.Ask(ctx, http.MethodPut, "_global_changes", nil, nil); err != nil {
		return err
	}
	b.node, err = lab.StartNode(ctx, lab.NodeOptions{Program: b.settee, Settings: []string{
		"log/level=warning", fmt.Sprintf("replicator/mirror_starts=%d", b.starts),
	}})
	if err != nil {
		return err
	}
	began := time.Now()
	err = b.each(ctx, b.names(), func(ctx context.Context, name string) error { return b.makeDatabase(ctx, name, b.docs) })
	b.say("%d databases made in %.1f s", b.databases, time.Since(began).Seconds())
	return err
}

func (b *bench) stop() (err error) {
	if b.node != nil {
		err = b.node.Close()
	}
	for _, db := range []*lab.CouchDB{b.source, b.target} {
		if db != nil {
			err = errors.Join(err, db.Close())
		}
	}
	return err
}

func (b *bench) say(format string, args ...any) { _, _ = fmt.Fprintf(b.progress, format+"\n", args...) }

// names returns the names of the source's databases.
func (b *bench) names() []string {
	names := make([]string, b.databases)
	for i := range names {
		names[i] = fmt.Sprintf("db%06d", i)
	}
	return names
}

// each calls do for all names, makers at a time.
func (b *bench) each(ctx context.Context, names []string, do func(ctx context.Context, name string) error) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(makers)
	for _, name := range names {
		all.Go(func() error { return do(ctx, name) })
	}
	return all.Wait()
}

// makeDatabase makes a database of the source with a number of documents.
func (b *bench) makeDatabase(ctx context.Context, name string, docs int) error {
	if err := b.source.Ask(ctx, http.MethodPut, name, nil, nil); err != nil {
		return err
	}
	list := make([]map[string]string, docs)
	for i := range list {
		list[i] = map[string]string{"_id": fmt.Sprintf("doc%06d", i), "text": strings.Repeat("x", b.size)}
	}
	body, err := json.Marshal(map[string]any{"docs": list})
	if err != nil {
		return err
	}
	return b.source.Ask(ctx, http.MethodPost, name+"/_bulk_docs", body, nil)
}

// run measures both ways, and then new databases.
func (b *bench) run(ctx context.Context) error {
	ways := []struct {
		copy func(context.Context) error
		into *[]used
		what string
	}{{b.mirror, &b.report.Mirror, "the mirror"}, {b.loop, &b.report.Loop, "the loop"}}
	for pair := range b.pairs {
		for i := range ways {
			way := ways[(pair+i)%len(ways)]
			u, err := b.measured(ctx, way.copy)
			if err != nil {
				return fmt.Errorf("%s: %w", way.what, err)
			}
			*way.into = append(*way.into, u)
			b.say("%s: %.1f s", way.what, u.Seconds)
		}
	}
	return b.newDatabases(ctx)
}

// measured measures a way of copying to an empty target, and removes the copies.
func (b *bench) measured(ctx context.Context, way func(context.Context) error) (used, error) {
	limited, cancel := context.WithTimeoutCause(ctx, b.limit, fmt.Errorf("it takes longer than %s", b.limit))
	defer cancel()
	before, err := b.use()
	if err != nil {
		return used{}, err
	}
	err = way(limited)
	if cause := context.Cause(limited); cause != nil {
		err = cause
	}
	if err != nil {
		return used{}, err
	}
	u, err := b.since(before)
	if err != nil {
		return u, err
	}
	if err := b.complete(ctx); err != nil {
		return u, err
	}
	if err := b.removeMirror(ctx); err != nil {
		return u, err
	}
	return u, b.each(ctx, b.names(), func(ctx context.Context, name string) error { return b.target.Remove(ctx, name) })
}

// complete checks that the target has all documents.
func (b *bench) complete(ctx context.Context) error {
	return b.each(ctx, b.names(), func(ctx context.Context, name string) error {
		docs, err := b.copied(ctx, name)
		if err == nil && docs != b.docs {
			err = fmt.Errorf("%s has %d documents at the target instead of %d", name, docs, b.docs)
		}
		return err
	})
}

// loop does what people's scripts do.
func (b *bench) loop(ctx context.Context) error {
	var names []string
	if err := b.source.Ask(ctx, http.MethodGet, "_all_dbs", nil, &names); err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, "_") {
			continue
		}
		body, err := json.Marshal(map[string]any{
			"source": b.source.URL(name, ""), "target": b.target.URL(name, ""), "create_target": true,
		})
		if err != nil {
			return err
		}
		if err := b.target.Ask(ctx, http.MethodPost, "_replicate", body, nil); err != nil {
			return err
		}
	}
	return nil
}

// mirror adds the mirror's document, and returns when the target has all documents.
func (b *bench) mirror(ctx context.Context) error {
	if err := b.addMirror(ctx); err != nil {
		return err
	}
	return b.each(ctx, b.names(), func(ctx context.Context, name string) error {
		for {
			if docs, err := b.copied(ctx, name); err == nil && docs == b.docs {
				return nil
			}
			if err := lab.Pause(ctx, lookEvery); err != nil {
				return err
			}
		}
	})
}

// copied returns the number of documents that a database of the target has.
func (b *bench) copied(ctx context.Context, name string) (int, error) {
	var info struct {
		Docs int `json:"doc_count"`
	}
	err := b.target.Ask(ctx, http.MethodGet, name, nil, &info)
	return info.Docs, err
}

func (b *bench) addMirror(ctx context.Context) error {
	body, err := json.Marshal(map[string]any{
		"source": b.source.URL("", ""), "target": b.target.URL("", ""), "mirror": map[string]any{}, "continuous": true,
	})
	if err != nil {
		return err
	}
	return b.node.Ask(ctx, http.MethodPut, mirrorPath, body, nil)
}

// removeMirror deletes the mirror's document, if there is one, and returns when its jobs are gone.
func (b *bench) removeMirror(ctx context.Context) error {
	var list struct {
		Rows []struct {
			ID    string
			Value struct{ Rev string }
		}
	}
	if err := b.node.Ask(ctx, http.MethodGet, "_replicator/_all_docs?key=%22bench%22", nil, &list); err != nil {
		return err
	}
	for _, row := range list.Rows {
		if err := b.node.Ask(ctx, http.MethodDelete, mirrorPath+"?rev="+row.Value.Rev, nil, nil); err != nil {
			return err
		}
	}
	_, err := b.node.Jobs(ctx, func(states map[string]int) bool {
		left := 0
		for _, n := range states {
			left += n
		}
		return left == 0
	})
	return err
}

// newDatabases measures how long new databases take to be at the target, with all databases mirrored.
func (b *bench) newDatabases(ctx context.Context) error {
	if err := b.mirror(ctx); err != nil {
		return err
	}
	for i := range b.fresh {
		// Not in step with anything that happens periodically.
		if err := lab.Pause(ctx, time.Second+time.Duration(b.random.Int64N(int64(2*time.Second)))); err != nil {
			return err
		}
		took, err := b.newDatabase(ctx, fmt.Sprintf("new%06d", i))
		if err != nil {
			return err
		}
		b.report.New = append(b.report.New, took.Seconds())
	}
	return nil
}

func (b *bench) newDatabase(ctx context.Context, name string) (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, b.limit, fmt.Errorf("the new database %s is not at the target after %s", name, b.limit))
	defer cancel()
	if err := b.makeDatabase(ctx, name, 1); err != nil {
		return 0, err
	}
	began := time.Now()
	for b.target.Ask(ctx, http.MethodGet, name+"/doc000000", nil, nil) != nil {
		if err := lab.Pause(ctx, b.poll); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}
