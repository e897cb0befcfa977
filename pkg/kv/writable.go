package kv

import "context"

// WriteStopper is a [Database] that can come to take no more writes until it is opened again,
// as an embedded one does whose disk is full.
type WriteStopper interface {
	// Writable returns a context that ends when that happens. Its cause says why.
	Writable() context.Context
}

// Writable returns the context of the [WriteStopper] that db is, or wraps: a database that
// wraps another one has a method Unwrap() Database. Where there is none the context never ends.
// Asking costs nothing: no transaction is made.
func Writable(db Database) context.Context {
	for {
		switch known := db.(type) {
		case WriteStopper:
			return known.Writable()
		case interface{ Unwrap() Database }:
			db = known.Unwrap()
		default:
			return context.Background()
		}
	}
}
