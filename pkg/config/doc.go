// Package config holds the settings of settee: what they are called, what they
// may be, what they are when nobody says anything, and which place decides.
//
// Sections and keys are CouchDB's, so that an operator's local.ini means the same
// here. Every setting is one variable of this package (see settings.go, the one
// table of them), read with Get:
//
//	cfg, warnings, err := config.Load(config.Options{Files: files, Environ: os.Environ(), Flags: sets})
//	...
//	slots := config.MaxJobs.Get(cfg)
//
// # Layers
//
// A value can come from five places. Later beats earlier:
//
//	default < file (a later file beats an earlier one) < store < environment < flag
//
// Load reads files, environment and flags. The store's layer is known only once
// the store is open, and changes while settee runs: With puts it in, and puts in
// a file's layer that was read again.
//
// # While a node runs
//
// A Config never changes. A [Live] has the current one: it follows the store, where
// [Live.Set] and [Live.Delete] put values in and take them out for all nodes, and reads
// the node's own files again when it is told to ([Live.Reload]). What follows a change
// at run time asks it for the Config each time, and reads all it needs from that one,
// so that it never sees half of a change.
//
// Some settings count only when a node starts, and the store refuses them; their comments
// say so. What the store has that this node cannot use, because another version put it
// there or because it contradicts the node's own files, is ignored with a warning: a node
// that runs goes on running.
//
// Below the prefix of the store's layer, as tuples:
//
//	("value", section, key) -> text
//	("changes")             -> the tokens of the latest changes, the latest first; watched
//
// # What is refused and what is only said
//
// A value that a setting cannot have is an error, even where a later layer
// overrides it, and all of them are reported together. What settee does not know
// or does not do is a Warning: a CouchDB configuration file is accepted as it is,
// and every [replicator] key of CouchDB 3.5 either works or is named in a warning
// that says what happens instead.
//
// # Files
//
// The dialect is that of CouchDB's own reader: see parseINI.
//
// The package starts no goroutines.
package config
