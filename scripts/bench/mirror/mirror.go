// Package mirror measures how long it takes to copy all databases of a CouchDB to another one: by a mirror, which is one
// document on a node of settee, and by a loop of the obvious kind, which asks the target for `_replicate` of one database of
// `_all_dbs` after another. Then it measures how long a new database takes to be at the target.
//
// The source has a database `_global_changes`. The databases of the target are deleted between two ways of copying. The order
// of the two ways changes with each pair.
//
// A delay is from the answer to the write of the first document of a new database until the target has the document.
package mirror

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"settee/pkg/retry"
	"settee/scripts/bench/lab"
)

// Scenario compares a mirror with a loop.
var Scenario = lab.Scenario{Name: "mirror", New: func(r *lab.Run) lab.Measurement { return &bench{Run: r} }}

const (
	// makers is the number of databases that are made, counted or deleted at a time.
	makers = 16
	// lookEvery is how often the target is asked for each of makers databases, until it has all documents of them. Then the
	// next ones follow. So most databases are asked for once.
	lookEvery = 250 * time.Millisecond
	// poll is how often the target is asked for the document of a new database.
	poll = 20 * time.Millisecond

	document = "_replicator/bench"
)

// text is the text of a document.
var text = strings.Repeat("x", 200)

// bench is the flags, the servers, and what was measured.
type bench struct {
	databases, docs, pairs, fresh int

	*lab.Run
	source, target *lab.Server
	node           *lab.Node // has the mirror
}

// Register implements lab.Measurement.
func (b *bench) Register(f *flag.FlagSet) {
	f.IntVar(&b.databases, "databases", 1000, "databases of the source")
	f.IntVar(&b.docs, "docs", 100, "documents of each")
	f.IntVar(&b.pairs, "pairs", 1, "how many times all databases are copied by each of the two")
	f.IntVar(&b.fresh, "new", 20, "new databases")
}

// Check implements lab.Measurement.
func (b *bench) Check() error {
	if min(b.databases, b.docs, b.pairs, b.fresh) < 1 {
		return errors.New("numbers must be positive")
	}
	return nil
}

// Measure implements lab.Measurement.
func (b *bench) Measure(ctx context.Context) (err error) {
	if b.source, err = b.StartEndpoints(ctx, lab.OnCouchDB); err != nil {
		return err
	}
	if b.target, err = b.StartEndpoints(ctx, lab.OnCouchDBWithoutFeed); err != nil {
		return err
	}
	b.Report.Targets("%s, from %s to another one: %d databases of %d documents", b.Version, b.source.About, b.databases, b.docs)
	return lab.InOrder(ctx, b.fill, b.compare, func(ctx context.Context) error {
		return b.Within(ctx, "copying new databases", b.newDatabases)
	})
}

// fill makes the databases of the source.
func (b *bench) fill(ctx context.Context) error {
	return b.each(ctx, func(ctx context.Context, name string) error { return b.makeDatabase(ctx, name, b.docs) })
}

// each calls f with the names of the source's databases, makers at a time.
func (b *bench) each(ctx context.Context, f func(ctx context.Context, name string) error) error {
	return lab.Each(ctx, makers, b.databases, func(ctx context.Context, n int) error { return f(ctx, fmt.Sprintf("db%06d", n)) })
}

// makeDatabase makes a database of the source with a number of documents.
func (b *bench) makeDatabase(ctx context.Context, name string, docs int) error {
	if err := b.source.Ask(ctx, http.MethodPut, name, nil, nil); err != nil {
		return err
	}
	return b.source.Fill(ctx, name, docs, docs, func(n int) map[string]any {
		return map[string]any{"_id": fmt.Sprintf("doc%06d", n), "text": text}
	})
}

// compare measures both ways.
func (b *bench) compare(ctx context.Context) error {
	ways := []struct {
		what string
		copy func(context.Context) error
	}{{"a mirror copies all databases", b.mirror}, {"a loop of _replicate, by CouchDB", b.loop}}
	measured, err := lab.InTurns(b.pairs, []string{ways[0].what, ways[1].what}, func(_, n int) (lab.Sample, error) {
		used, err := b.measure(ctx, ways[n].what, ways[n].copy)
		if err != nil {
			return nil, err
		}
		b.Report.Measured(ways[n].what, "", "%.1f s (%.1f databases/s)", used.Seconds, float64(b.databases)/used.Seconds)
		b.Report.Measured("  processor, of a core", "", "%s", used)
		return lab.Sample{"seconds": used.Seconds}, nil
	})
	if err != nil {
		return err
	}
	b.Report.Measured("the mirror's time, of the loop's", "0.5", "%.2f", measured[0].Median("seconds")/measured[1].Median("seconds"))
	return nil
}

// measure measures a way of copying to an empty target, and removes the copies.
func (b *bench) measure(ctx context.Context, what string, way func(context.Context) error) (used lab.Used, err error) {
	if err := b.startNode(ctx); err != nil {
		return used, err
	}
	meter := lab.Meter{{Name: "node", Time: b.node.Processor}, {Name: "source", Time: b.source.Processor}, {Name: "target", Time: b.target.Processor}}
	if used, err = meter.Measure(func() error { return b.Within(ctx, what, way) }); err != nil {
		return used, err
	}
	b.Say("%s: %.1f s", what, used.Seconds)
	if err := b.each(ctx, b.complete); err != nil {
		return used, err
	}
	b.node.Close() // with its mirror
	return used, b.each(ctx, func(ctx context.Context, name string) error {
		return b.target.Ask(ctx, http.MethodDelete, name, nil, nil)
	})
}

// startNode starts a node without jobs.
func (b *bench) startNode(ctx context.Context) (err error) {
	b.node, err = b.StartNode(ctx, lab.NodeOptions{})
	return err
}

// complete checks that the target has all documents of a database.
func (b *bench) complete(ctx context.Context, name string) error {
	return b.target.CheckCount(ctx, name, b.docs)
}

// loop does what people's scripts do.
func (b *bench) loop(ctx context.Context) error {
	var names []string
	if err := b.source.Ask(ctx, http.MethodGet, "_all_dbs", nil, &names); err != nil {
		return err
	}
	for _, name := range slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, "_") }) {
		asked := map[string]any{"source": b.source.URL(name, ""), "target": b.target.URL(name, ""), "create_target": true}
		if err := b.target.Ask(ctx, http.MethodPost, "_replicate", asked, nil); err != nil {
			return err
		}
	}
	return nil
}

// mirror adds the mirror's document, and returns when the target has all documents.
func (b *bench) mirror(ctx context.Context) error {
	added := map[string]any{
		"source": b.source.URL("", ""), "target": b.target.URL("", ""), "mirror": map[string]any{}, "continuous": true,
	}
	if err := b.node.Ask(ctx, http.MethodPut, document, added, nil); err != nil {
		return err
	}
	return b.each(ctx, func(ctx context.Context, name string) error {
		return lab.Poll(ctx, lookEvery, func(ctx context.Context) error { return b.complete(ctx, name) })
	})
}

// newDatabases measures how long new databases take to be at the target, with all databases mirrored.
func (b *bench) newDatabases(ctx context.Context) error {
	if err := lab.InOrder(ctx, b.startNode, b.mirror); err != nil {
		return err
	}
	var delays lab.Delays
	for i := range b.fresh {
		// Not in step with anything that happens periodically.
		if err := retry.Wait(ctx, time.Second+time.Duration(b.Random.Int64N(int64(2*time.Second)))); err != nil {
			return err
		}
		name := fmt.Sprintf("new%06d", i)
		if err := b.makeDatabase(ctx, name, 1); err != nil {
			return err
		}
		began := time.Now()
		err := lab.Poll(ctx, poll, func(ctx context.Context) error {
			return b.target.Ask(ctx, http.MethodGet, name+"/doc000000", nil, nil)
		})
		if err != nil {
			return err
		}
		delays = append(delays, time.Since(began))
	}
	b.Report.Measured("first document of a new database: at the target", "median 3 s", "%s databases", delays)
	return nil
}
