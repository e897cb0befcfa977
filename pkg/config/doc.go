// Package config holds the settings of settee: their names, values, defaults and origins.
//
// Sections and keys are CouchDB's, so that an operator's local.ini means the same here. Every
// setting is one variable of this package (settings.go has the table), read with Get:
//
//	cfg, warnings, err := config.Load(config.Options{Files: files, Environ: os.Environ(), Flags: sets})
//	...
//	slots := config.MaxJobs.Get(cfg)
//
// # Layers
//
// A value can come from five origins. Later ones override earlier ones:
//
//	default < file (a later file overrides an earlier one) < store < environment < flag
//
// Load reads files, environment and flags. The store's layer is known only once the store is
// open, and changes while settee runs: With adds it, and replaces the layers of files that were
// read again.
//
// # Changes at run time
//
// A Config never changes. A [Live] has the current one. It follows the store, where [Live.Set]
// and [Live.Delete] change values for all nodes, and reads the node's files again on request
// ([Live.Reload]). Code that follows changes gets the current Config for each use, and reads all
// settings of one use from the same Config, so that it never sees half of a change.
//
// Settings that are read only when a node starts say so, and the store refuses them. A stored
// value that this node cannot use, because another version of settee stored it or because it
// contradicts the node's own files, is ignored with a warning, so that the node keeps running.
//
// Keys of the store's layer, below its prefix, as tuples:
//
//	("value", section, key) -> text
//	("changes")             -> the tokens of the latest changes, the latest first; watched
//
// # Errors and warnings
//
// A value that a setting cannot have is an error, even if a later layer overrides it, and all
// errors are reported together. Unknown and unsupported settings are a Warning: a configuration
// file of CouchDB is accepted as it is, and every [replicator] key of CouchDB 3.5 either works or
// is named in a warning that says what happens instead.
//
// # Files
//
// The syntax is the one that CouchDB's own reader accepts, see parseINI.
//
// The package starts no goroutines.
package config
