package main

import (
	"context"

	"settee/pkg/kv"
)

// logWriteFailure logs when the store stops accepting writes, and returns. It also returns when ctx ends. The node
// continues to read. Each write fails with an error, and so does GET /_up.
func (n *node) logWriteFailure(ctx context.Context) {
	writable := kv.Writable(n.db)
	select {
	case <-writable.Done():
		n.log.Error().Err(context.Cause(writable)).
			Msg("the store no longer accepts writes because one has failed: remove the cause and restart this node")
	case <-ctx.Done():
	}
}
