//go:build fdb

package fdbkv

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

	"settee/pkg/kv"
)

func init() {
	kv.Register("fdb", kv.Engine{
		Check: func(u *url.URL) error {
			clusterFile, opts, err := parseURL(u)
			if err == nil {
				err = opts.check()
			}
			if err == nil {
				_, err = findClusterFile(clusterFile)
			}
			return ofStore(u, err)
		},
		Open: func(ctx context.Context, u *url.URL, common kv.Options) (kv.Database, error) {
			clusterFile, opts, err := parseURL(u)
			if err != nil {
				return nil, ofStore(u, err)
			}
			opts.Options = common
			db, err := Open(ctx, clusterFile, opts)
			return db, ofStore(u, err)
		},
	})
}

// ofStore returns err with the URL of the store, or nil if err is nil.
func ofStore(u *url.URL, err error) error {
	if err != nil {
		err = fmt.Errorf("store %q: %w", u.Redacted(), err)
	}
	return err
}

// Options of a store.
type Options struct {
	kv.Options
	// Prefix is the prefix of the store's keys in the cluster. Empty is the whole cluster. It has at most MaxPrefixSize
	// bytes and does not begin with \xff.
	Prefix []byte
	// MaxWatches is the maximum number of armed watches, up to MostWatches. 0 is kv.DefaultMaxWatches. Stores on one
	// cluster file share it, so they must use the same number.
	MaxWatches int
	// Timeout is how long Open waits for the cluster. 0 is DefaultTimeout.
	Timeout time.Duration
}

const (
	// MaxPrefixSize is the maximum length of a prefix, in bytes.
	MaxPrefixSize = 1_000
	// MostWatches is FoundationDB's limit for max_watches.
	MostWatches = 1_000_000
	// DefaultTimeout is the default of Options.Timeout.
	DefaultTimeout = 10 * time.Second
)

// parseURL parses a store's URL.
func parseURL(u *url.URL) (clusterFile string, opts Options, err error) {
	switch {
	case u.Host != "" && u.Host != "localhost":
		return "", opts, errors.New("the cluster file follows three slashes, as in fdb:///etc/foundationdb/fdb.cluster")
	case u.User != nil:
		return "", opts, errors.New("a FoundationDB store has no user")
	case u.Fragment != "":
		return "", opts, errors.New("write %23 for # in a prefix")
	}
	clusterFile = u.Path
	if u.Opaque != "" {
		if clusterFile, err = url.PathUnescape(u.Opaque); err != nil {
			return "", opts, err
		}
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return "", opts, err
	}
	for name, values := range query {
		if len(values) > 1 {
			return "", opts, fmt.Errorf("the parameter %s is given twice", name)
		}
		switch name {
		case "prefix":
			opts.Prefix = []byte(values[0])
		case "max_watches":
			opts.MaxWatches, err = strconv.Atoi(values[0])
			if err != nil || opts.MaxWatches < 1 || opts.MaxWatches > MostWatches {
				return "", opts, fmt.Errorf("max_watches is %q, not a number from 1 to %d", values[0], MostWatches)
			}
		default:
			return "", opts, fmt.Errorf("unknown parameter %q; there are prefix and max_watches", name)
		}
	}
	return clusterFile, opts, nil
}

// check returns an error if there is no store with these options.
func (opts Options) check() error {
	switch {
	case len(opts.Prefix) > MaxPrefixSize:
		return fmt.Errorf("the prefix has %d bytes, more than %d", len(opts.Prefix), MaxPrefixSize)
	case len(opts.Prefix) > 0 && opts.Prefix[0] == 0xff:
		return errors.New(`a prefix does not begin with \xff: those keys are FoundationDB's own`)
	case opts.MaxWatches < 0 || opts.MaxWatches > MostWatches:
		return fmt.Errorf("at most %d watches are possible, not %d", MostWatches, opts.MaxWatches)
	}
	return nil
}

// Open opens the store of a cluster. An empty clusterFile is the default of FoundationDB's own tools. Open returns when
// the cluster has answered a read. If that takes too long, the error names the cluster file.
func Open(ctx context.Context, clusterFile string, opts Options) (kv.Database, error) {
	if err := opts.check(); err != nil {
		return nil, err
	}
	if opts.MaxWatches == 0 {
		opts.MaxWatches = kv.DefaultMaxWatches
	}
	if opts.Timeout == 0 {
		opts.Timeout = DefaultTimeout
	}
	clusterFile, err := findClusterFile(clusterFile)
	if err != nil {
		return nil, err
	}
	c, err := connect(clusterFile, opts.MaxWatches)
	if err != nil {
		return nil, fmt.Errorf("cluster file %s: %w", clusterFile, err)
	}
	db := &database{connection: c, keys: keySpace{slices.Clone(opts.Prefix)}, opts: opts.Options}
	if err := db.probe(ctx, opts.Timeout); err != nil {
		return nil, errors.Join(fmt.Errorf("cluster file %s: %w", clusterFile, err), db.Close())
	}
	return db, nil
}

// findClusterFile returns the path of a readable cluster file. It looks up an empty name as FoundationDB does
// (https://apple.github.io/foundationdb/administration.html#default-cluster-file), so that errors can name the file.
func findClusterFile(name string) (string, error) {
	if name == "" {
		name = os.Getenv("FDB_CLUSTER_FILE")
	}
	if name == "" {
		name = "fdb.cluster"
		if _, err := os.Stat(name); err != nil {
			name = "/etc/foundationdb/fdb.cluster"
			if runtime.GOOS == "darwin" {
				name = "/usr/local/etc/foundationdb/fdb.cluster"
			}
		}
	}
	path, err := filepath.Abs(name)
	if err != nil {
		return "", fmt.Errorf("cluster file %s: %w", name, err)
	}
	if _, err := os.ReadFile(path); err != nil { // FoundationDB's own error has no reason
		return "", fmt.Errorf("cluster file %s cannot be read: %w", path, errors.Unwrap(err))
	}
	return path, nil
}

// probe waits until the cluster answers a read.
func (db *database) probe(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("the cluster did not answer within %s", timeout))
	defer cancel()
	return db.Transact(ctx, func(tx kv.Transaction) error {
		_, err := tx.Snapshot().Get(nil).Await()
		return err
	})
}
