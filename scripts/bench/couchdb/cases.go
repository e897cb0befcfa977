package couchdb

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"settee/internal/servers"
	"settee/scripts/bench/lab"
)

const (
	// docSize is the size of a document without its attachments, in bytes.
	docSize = 1000
	// poll is how often the target is asked whether it has all documents of a burst.
	poll = 20 * time.Millisecond
)

// benchCase is one comparison.
type benchCase struct {
	name       string
	usual      bool // it is in the default run
	docs       int
	attachment int           // bytes of the attachment of each document; 0 for none
	trip       time.Duration // the round trip to each of the endpoints
	continuous bool          // the documents are written to the source of a continuous job
}

var cases = []benchCase{
	{name: "docs", usual: true, docs: 50_000},
	{name: "large", usual: true, docs: 100, attachment: 4 << 20},
	{name: "small", usual: true, docs: 10_000, attachment: 10 << 10},
	{name: "far-50ms", docs: 50_000, trip: 50 * time.Millisecond},
	{name: "burst", usual: true, docs: 5000, continuous: true},
}

// describe says what is copied.
func (c benchCase) describe(b *bench) string {
	text := fmt.Sprintf("%d documents of %d bytes", b.scaled(c.docs), docSize)
	switch {
	case c.trip > 0:
		text += ", a round trip of " + c.trip.String() + " to both"
	case c.attachment > 0:
		text += fmt.Sprintf(", each with an attachment of %d KiB", c.attachment>>10)
	case c.continuous:
		text += " written at once to the source of a continuous job, until the target has them"
	}
	return text
}

// turn copies a source to a new target, and measures that.
func (b *bench) turn(ctx context.Context, c benchCase, system int, source string) (s lab.Sample, err error) {
	target, err := b.create(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.remove(context.WithoutCancel(ctx), target)) }()
	if c.continuous {
		return b.burst(ctx, c, system, source, target)
	}
	address := ""
	if c.trip > 0 {
		r, err := servers.StartRelay(ctx, b.server.Host(), c.trip)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		address = r.Address()
	}
	from, to := b.server.URL(source, address), b.server.URL(target, address)
	command := exec.CommandContext(ctx, b.Settee, "replicate", from, to)
	used, err := b.measure(ctx, nil, func() error {
		if system == couchDB {
			return b.server.Ask(ctx, http.MethodPost, "_replicate", map[string]any{"source": from, "target": to}, nil)
		}
		output, err := command.CombinedOutput()
		if err != nil {
			return fmt.Errorf("settee replicate: %w: %s", err, bytes.TrimSpace(output))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s = lab.Sample{wall: used.Seconds, endpoints: used.Of(0)}
	if ended := command.ProcessState; ended != nil {
		s[own] = (ended.UserTime() + ended.SystemTime()).Seconds()
		s[memory] = float64(ended.SysUsage().(*syscall.Rusage).Maxrss) / 1024 //nolint:forcetypeassert // on Linux, which counts kilobytes
	}
	return s, b.sameCount(ctx, source, target)
}

// burst writes documents to the source of a continuous job as fast as it takes them, and waits until all are on the target.
func (b *bench) burst(ctx context.Context, c benchCase, system int, source, target string) (s lab.Sample, err error) {
	host := b.server
	var node *lab.Node
	if system == settee {
		if node, err = b.StartNode(ctx, lab.NodeOptions{}); err != nil {
			return nil, err
		}
		defer node.Close()
		host = node.Server
	}
	job := map[string]any{"source": b.server.URL(source, ""), "target": b.server.URL(target, ""), "continuous": true}
	if err := host.Ask(ctx, http.MethodPost, "_replicate", job, nil); err != nil {
		return nil, err
	}
	defer func() {
		job["cancel"] = true
		err = errors.Join(err, host.Ask(context.WithoutCancel(ctx), http.MethodPost, "_replicate", job, nil))
	}()
	if err := b.burstOf(ctx, 1, source, target); err != nil { // so that the job runs
		return nil, err
	}
	used, err := b.measure(ctx, node, func() error { return b.burstOf(ctx, b.scaled(c.docs), source, target) })
	if err != nil {
		return nil, err
	}
	s = lab.Sample{wall: used.Seconds, endpoints: used.Of(0)}
	if node != nil {
		_, largest := node.Memory()
		s[own], s[memory] = used.Of(1), largest/(1<<20)
	}
	return s, nil
}

// measure waits until the server is idle, and returns what the server and a node, if there is one, use while f runs.
func (b *bench) measure(ctx context.Context, node *lab.Node, f func() error) (lab.Used, error) {
	if err := b.rest(ctx); err != nil {
		return lab.Used{}, err
	}
	meter := lab.Meter{{Name: "endpoints", Time: b.server.Processor}}
	if node != nil {
		meter = append(meter, lab.Party{Name: "settee", Time: node.Processor})
	}
	return meter.Measure(f)
}

// burstOf writes documents to a source, and waits until the target has as many.
func (b *bench) burstOf(ctx context.Context, docs int, source, target string) error {
	return b.Within(ctx, "a burst", func(ctx context.Context) error {
		if err := b.fill(ctx, source, docs, 0); err != nil {
			return err
		}
		return lab.Poll(ctx, poll, func(ctx context.Context) error { return b.sameCount(ctx, source, target) })
	})
}

// sameCount checks that a target has as many documents as its source.
func (b *bench) sameCount(ctx context.Context, source, target string) error {
	want, err := b.server.Count(ctx, source)
	if err != nil {
		return err
	}
	return b.server.CheckCount(ctx, target, want)
}

// newID returns a name that no other call has returned.
func newID() string { return strings.ToLower(rand.Text()) }

// fillBatch is the number of bytes in a request that fills a database, about.
const fillBatch = 1 << 20

// fill writes documents, each with an attachment of a size, 0 for none.
func (b *bench) fill(ctx context.Context, name string, docs, attachment int) error {
	prefix := newID()[:8]
	return b.server.Fill(ctx, name, docs, 1+fillBatch/(docSize+2*attachment), func(n int) map[string]any {
		doc := map[string]any{"_id": fmt.Sprintf("%s-%08d", prefix, n), "text": lab.Text(docSize)}
		if attachment > 0 {
			data := base64.StdEncoding.EncodeToString([]byte(lab.Text(attachment)))
			doc["_attachments"] = map[string]any{"attached": map[string]string{"content_type": "application/octet-stream", "data": data}}
		}
		return doc
	})
}
