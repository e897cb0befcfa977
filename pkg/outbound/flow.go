package outbound

import (
	"context"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

const (
	// gatherSize is how many bytes of a large answer a connection waits for before it reads, and gatherTime how long it
	// waits at most. CouchDB sends attachments in pieces of 8 KiB, and waking up for each costs more than the piece.
	gatherSize = aheadSize / 2
	gatherTime = 20 * time.Millisecond
	// minFlow is how many bytes are still to come of an answer that gathers. It is more than gatherSize and the buffers
	// between the connection and the reader of the answer, so that a connection never waits for bytes that were read.
	minFlow = 512 << 10
)

// Flow is what the reader of an answer knows of its length. An answer over HTTP/1.1 without TLS is read in larger pieces while
// much of it is to come. It is safe for concurrent use.
type Flow struct{ left atomic.Int64 }

// Expect says how many bytes the reader will at least read. The reader calls it again as it reads, and with 0 when it knows
// no longer, at the latest when it closes the answer.
func (f *Flow) Expect(bytes int64) { f.left.Store(bytes) }

// large reports whether the answer gathers. f may be nil.
func (f *Flow) large() bool { return f != nil && f.left.Load() >= minFlow }

type flowKey struct{}

// WithFlow returns a context for a request whose answer flow describes.
func WithFlow(ctx context.Context, flow *Flow) context.Context {
	return context.WithValue(ctx, flowKey{}, flow)
}

// traceFlow returns a context that passes the flow of a request to its connection.
func traceFlow(ctx context.Context) context.Context {
	flow, ok := ctx.Value(flowKey{}).(*Flow)
	if !ok {
		return ctx
	}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if c, ok := info.Conn.(*countedConn); ok && c.ahead != nil {
			c.ahead.flow.Store(flow)
		}
	}})
}
