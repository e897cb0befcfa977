package watch_test

import (
	"errors"

	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
)

var errBroken = errors.New("the store is broken")

func control(db kv.Database) *enginetest.Controlled { return enginetest.Control(db) }
