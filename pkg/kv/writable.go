package kv

import "context"

// WriteStopper is a [Database] that may stop writing until it is opened again, as an embedded engine does when its disk
// is full.
type WriteStopper interface {
	// Writable returns a context that ends when the database stops writing. Its cause is the reason.
	Writable() context.Context
}

// Writable returns the context of the [WriteStopper] that db is or wraps. A database that wraps another one has a
// method Unwrap() Database. Without a WriteStopper the context never ends. Writable makes no transaction.
func Writable(db Database) context.Context {
	if stopper, ok := find[WriteStopper](db); ok {
		return stopper.Writable()
	}
	return context.Background()
}

// Exclusive reports whether only one process at a time can have db open, as with an embedded engine. Such a [Database],
// or one that it wraps, has a method Exclusive().
func Exclusive(db Database) bool {
	_, ok := find[interface{ Exclusive() }](db)
	return ok
}

// find returns the T that db is or wraps.
func find[T any](db Database) (found T, ok bool) {
	for {
		if found, ok = db.(T); ok {
			return found, true
		}
		outer, wraps := db.(interface{ Unwrap() Database })
		if !wraps {
			return found, false
		}
		db = outer.Unwrap()
	}
}
