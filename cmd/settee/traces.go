package main

import (
	"context"

	"settee/cmd/settee/internal/lifecycle"
	"settee/cmd/settee/internal/tracing"
)

// tracesPart sends traces to a collector, if the environment asks for it. It ends last, so that it has the spans of the
// other parts.
func (n *node) tracesPart() lifecycle.Part {
	return lifecycle.Part{
		Start: func(ctx context.Context) (err error) {
			n.traces, err = tracing.Open(ctx, tracing.Options{Version: currentVersion(), Host: nodeName(), Log: n.log})
			return err
		},
		Stop: func(ctx context.Context) error {
			n.traces.Close(ctx)
			return nil
		},
	}
}
