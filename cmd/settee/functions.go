package main

import (
	"context"
	"time"

	"settee/pkg/docstore"
	"settee/pkg/script"
)

// warmFunctions compiles what runs functions, so that the first write after a start does not wait for that in a database
// with a validate function. A store without databases of users has no functions: there the first function that is called
// does it.
func (n *node) warmFunctions(ctx context.Context) {
	for _, err := range n.docs.Databases(ctx, docstore.ListOptions{Start: "a"}) { // those of the system begin with _
		if err != nil {
			return // the first call does it
		}
		began := time.Now()
		if err := script.WarmUp(); err != nil {
			n.log.Error().Err(err).Msg("functions of design documents cannot run on this node")
			return
		}
		n.log.Debug().Dur("took", time.Since(began)).Msg("functions of design documents are ready to run")
		return
	}
}
