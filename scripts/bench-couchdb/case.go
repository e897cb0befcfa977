package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// system is one of the two replicators.
type system string

const (
	settee  system = "settee"
	couchDB system = "CouchDB"
)

// sample is what a turn measured. What is unknown, or has no meaning for the system, is 0.
type sample struct {
	wall      time.Duration
	endpoints time.Duration // processor time of CouchDB
	own       time.Duration // processor time of settee
	memory    int64         // settee's largest resident set, in bytes

	delays []time.Duration // of documents, in continuous cases
	resets int64           // of connections
}

// kind says which table a case is in.
type kind int

const (
	copies     kind = iota // the time until everything is copied
	deliveries             // the delay of single documents
	idling                 // the cost of waiting
)

// benchCase is one comparison.
type benchCase struct {
	name  string
	usual bool // it is in the default run
	kind  kind
	about func(o *options) string
	// prepare returns the sources, also with an error.
	prepare func(ctx context.Context, b *bench) ([]string, error)
	turn    func(ctx context.Context, b *bench, c benchCase, s system, sources []string) (sample, error)

	trip   time.Duration // the round trip to each of the endpoints
	resets bool
}

var cases []benchCase

// Not an initializer, because a case refers to functions that refer to cases.
func init() {
	plain := func(o *options) string { return fmt.Sprintf("%d documents of %s", o.docs, size(o.docSize)) }
	documents := func(ctx context.Context, b *bench) ([]string, error) {
		return b.source(ctx, b.options.docs, 0, 1)
	}
	far := func(name, more string, trip time.Duration, resets bool) benchCase {
		return benchCase{
			name: name, prepare: documents, turn: transfer, trip: trip, resets: resets,
			about: func(o *options) string { return plain(o) + ", a round trip of " + trip.String() + " to both" + more },
		}
	}
	cases = []benchCase{
		{name: "docs", usual: true, about: plain, prepare: documents, turn: transfer},
		{
			name: "large", usual: true, turn: transfer,
			about: func(o *options) string { return fmt.Sprintf("%d attachments of %s", o.large, size(o.largeSize)) },
			prepare: func(ctx context.Context, b *bench) ([]string, error) {
				return b.source(ctx, b.options.large, b.options.largeSize, 1)
			},
		},
		{
			name: "small", usual: true, turn: transfer,
			about: func(o *options) string { return fmt.Sprintf("%d attachments of %s", o.small, size(o.smallSize)) },
			prepare: func(ctx context.Context, b *bench) ([]string, error) {
				return b.source(ctx, b.options.small, b.options.smallSize, 1)
			},
		},
		{
			name: "mixed", usual: true, turn: transfer,
			about: func(o *options) string {
				return fmt.Sprintf("%d documents, every tenth with an attachment of %s", o.mixed, size(o.mixedSize))
			},
			prepare: func(ctx context.Context, b *bench) ([]string, error) {
				return b.source(ctx, b.options.mixed, b.options.mixedSize, 10)
			},
		},
		{
			name: "huge", turn: transfer,
			about: func(o *options) string { return "one attachment of " + size(o.hugeSize) },
			prepare: func(ctx context.Context, b *bench) ([]string, error) {
				return b.source(ctx, 1, b.options.hugeSize, 1)
			},
		},
		far("far-50ms", "", 50*time.Millisecond, false),
		far("far-200ms", "", 200*time.Millisecond, false),
		far("far-200ms-resets", ", with resets", 200*time.Millisecond, true),
		{
			name: "burst", usual: true, turn: burst,
			about: func(o *options) string {
				return fmt.Sprintf("%d documents of %s written at once to the source of a continuous job, until the target has them", o.burst, size(o.docSize))
			},
			prepare: func(ctx context.Context, b *bench) ([]string, error) {
				return b.empty(ctx, 1)
			},
		},
		{
			name: "delivery", usual: true, kind: deliveries, turn: deliver,
			about: func(*options) string { return "one document at a time" },
			prepare: func(ctx context.Context, b *bench) ([]string, error) {
				return b.empty(ctx, 1)
			},
		},
		{
			name: "many", kind: deliveries, turn: deliverMany,
			about: func(o *options) string { return fmt.Sprintf("%d jobs, a document a second each", o.many) },
			prepare: func(ctx context.Context, b *bench) ([]string, error) {
				return b.empty(ctx, b.options.many)
			},
		},
		{
			name: "idle", kind: idling, turn: idle,
			about: func(o *options) string { return fmt.Sprintf("%d jobs", o.idle) },
			prepare: func(ctx context.Context, b *bench) ([]string, error) {
				return b.empty(ctx, b.options.idle)
			},
		},
	}
}

func caseNames() []string {
	var names []string
	for _, c := range cases {
		names = append(names, c.name)
	}
	return names
}

// source returns a database with documents.
func (b *bench) source(ctx context.Context, docs, attachment, every int) ([]string, error) {
	sources, err := b.empty(ctx, 1)
	if err != nil {
		return sources, err
	}
	return sources, b.server.fill(ctx, sources[0], docs, b.options.docSize, attachment, every, b.options.contentType)
}

// empty returns n empty databases.
func (b *bench) empty(ctx context.Context, n int) ([]string, error) {
	var all []string
	for range n {
		name, err := b.server.Create(ctx)
		if err != nil {
			return all, err
		}
		all = append(all, name)
	}
	return all, nil
}

// transfer copies a source once.
func transfer(ctx context.Context, b *bench, c benchCase, s system, sources []string) (sample sample, err error) {
	source := sources[0]
	target, err := b.server.Create(ctx)
	if err != nil {
		return sample, err
	}
	defer func() { err = errors.Join(err, b.server.Remove(context.WithoutCancel(ctx), target)) }()
	address := ""
	if c.trip > 0 {
		resets := 0
		if c.resets {
			resets = b.options.resets
		}
		r, err := startRelay(ctx, b.server.Host(), c.trip, resets)
		if err != nil {
			return sample, err
		}
		defer func() { sample.resets = r.reset.Load() }()
		defer r.close()
		address = r.address()
	}
	if err := b.server.rest(ctx); err != nil {
		return sample, err
	}
	before, err := b.server.Processor()
	if err != nil {
		return sample, err
	}
	if sample, err = b.copyOnce(ctx, s, b.server.URL(source, address), b.server.URL(target, address)); err != nil {
		return sample, err
	}
	after, err := b.server.Processor()
	if err != nil {
		return sample, err
	}
	sample.endpoints = after - before
	return sample, b.sameCount(ctx, source, target)
}

// sameCount checks that a target has as many documents as its source.
func (b *bench) sameCount(ctx context.Context, source, target string) error {
	want, err := b.server.count(ctx, source)
	if err != nil {
		return err
	}
	got, err := b.server.count(ctx, target)
	if err == nil && got != want {
		err = fmt.Errorf("the target has %d documents, not %d", got, want)
	}
	return err
}
