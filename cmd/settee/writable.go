package main

import (
	"context"

	"github.com/rs/zerolog"

	"settee/pkg/kv"
)

// logWriteFailure waits until the store takes no more writes, or ctx ends. What goes on then are
// reads: whoever has written is told, and so is who asks for /_up.
func logWriteFailure(ctx context.Context, db kv.Database, log zerolog.Logger) {
	writable := kv.Writable(db)
	select {
	case <-writable.Done():
		log.Error().Err(context.Cause(writable)).
			Msg("the store takes no more writes since one has failed: mend what failed, and start this node again")
	case <-ctx.Done():
	}
}
