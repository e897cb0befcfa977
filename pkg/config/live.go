package config

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"settee/pkg/kv"
	"settee/pkg/retry"
)

const (
	// firstPause and longestPause bound the pauses between readings of a store that fails.
	firstPause   = time.Second
	longestPause = 30 * time.Second
)

// LiveOptions are the options of OpenLive.
type LiveOptions struct {
	// Store and Prefix are where the store's layer is.
	Store  kv.Database
	Prefix []byte
	// Sealer seals the secrets in the store. Default: none.
	Sealer kv.Sealer
	// Files are the files that Reload reads, as given to Load.
	Files []string
	// Log gets changes, with secrets masked, and warnings about stored values without effect.
	Log zerolog.Logger
}

// Live is the configuration of a running node: what Load has read, the layer of the store, which
// may change at any time, and the files, which may be read again. It is safe for concurrent use.
type Live struct {
	storage storage
	files   []string
	log     zerolog.Logger
	started *Config // as the node started with it

	current atomic.Pointer[Config]
	reloads atomic.Int64 // the number of started reloads

	mu       sync.Mutex       // guards the fields below; never held during I/O
	own      *Config          // without the layer of the store
	stored   stored           // the latest
	reloaded int64            // the reload that own is from
	warned   map[Warning]bool // about the layer of the store
	changed  chan struct{}
}

// OpenLive adds the layer of the store to cfg. Run keeps it up to date.
func OpenLive(ctx context.Context, cfg *Config, opts LiveOptions) (*Live, error) {
	l := &Live{
		storage: newStorage(opts.Store, opts.Prefix, opts.Sealer), files: slices.Clone(opts.Files), log: opts.Log,
		started: cfg, own: cfg, changed: make(chan struct{}),
	}
	found, err := l.storage.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration in the store: %w", err)
	}
	now, warnings := cfg.withStored(found.rows)
	l.stored = found
	l.current.Store(now)
	l.warn(l.renew(warnings))
	return l, nil
}

// renew records the warnings about the layer of the store, and returns the new ones.
func (l *Live) renew(warnings []Warning) (fresh []Warning) {
	known := l.warned
	l.warned = make(map[Warning]bool, len(warnings))
	for _, w := range warnings {
		l.warned[w] = true
		if !known[w] {
			fresh = append(fresh, w)
		}
	}
	return fresh
}

func (l *Live) warn(warnings []Warning) {
	for _, w := range warnings {
		l.log.Warn().Msg(w.String())
	}
}

// Current returns the current configuration. Read settings that belong together from one Config,
// so that you never see half of a change.
func (l *Live) Current() *Config { return l.current.Load() }

// Changed returns a channel that is closed at the next change of Current. Call it before Current
// to miss no change.
func (l *Live) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// Run follows the store until ctx ends, and then returns ctx's error, or until the store is
// closed, and then returns kv.ErrClosed. A change by any node is applied within about a second.
// While the store cannot be read the configuration stays as it is, and Run tries again at least
// every half minute.
func (l *Live) Run(ctx context.Context) error {
	pauses := retry.Backoff{First: firstPause, Most: longestPause}
	for {
		found, watch, err := l.storage.watch(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, kv.ErrClosed):
			return err
		case err != nil:
			l.log.Error().Err(err).Msg("the configuration in the store could not be read: trying again")
			_ = retry.Wait(ctx, pauses.Next())
			continue
		}
		pauses.Reset()
		l.take(found)
		kv.AwaitChange(ctx, watch, kv.AwaitOptions{})
	}
}

// Reload reads the node's files again. The error joins everything that is wrong with them, as Load's
// does; then the configuration stays as it is.
func (l *Live) Reload() error {
	reading := l.reloads.Add(1)
	layers, warnings, err := ReadFiles(l.files)
	own, without, wrong := l.started.With(OriginFile, layers...)
	if err := errors.Join(err, wrong); err != nil {
		return err
	}
	taken := l.update(func() bool {
		if reading < l.reloaded { // a later reload has finished already
			return false
		}
		l.own, l.reloaded = own, reading
		return true
	})
	if !taken {
		return nil
	}
	l.warn(append(warnings, without...))
	for _, d := range l.started.differences(own) {
		if d.atStart {
			l.log.Warn().Stringer("setting", d.name).Str("from", d.from).
				Msg("the setting has changed since the node started: the new value takes effect when the node restarts")
		}
	}
	return nil
}

// without returns the configuration without the layer of the store.
func (l *Live) without() *Config {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.own
}

// take applies what was read from the store, unless it is older than what is known.
func (l *Live) take(found stored) {
	l.update(func() bool {
		if found.version <= l.stored.version {
			return false
		}
		same := slices.Equal(found.rows, l.stored.rows)
		l.stored = found
		return !same
	})
}

// update builds the current configuration again, if prepare reports that its parts have changed.
func (l *Live) update(prepare func() bool) bool {
	l.mu.Lock()
	if !prepare() {
		l.mu.Unlock()
		return false
	}
	before := l.current.Load()
	now, warnings := l.own.withStored(l.stored.rows)
	l.current.Store(now)
	close(l.changed)
	l.changed = make(chan struct{})
	fresh := l.renew(warnings)
	l.mu.Unlock()

	l.warn(fresh)
	for _, d := range before.differences(now) {
		l.log.Info().Stringer("setting", d.name).Str("value", show(d.name, d.now)).
			Str("was", show(d.name, d.was)).Str("from", d.from).Msg("the configuration has changed")
	}
	return true
}

// note logs a warning if a value that was stored is overridden on this node.
func (l *Live) note(v Value) {
	if from := l.Current().from(v.name()); v.Text != "" && from != OriginStore.String() {
		l.log.Warn().Stringer("setting", v.name()).Str("from", from).
			Msg("the stored value has no effect on this node, because the value of another origin overrides it")
	}
}

// SetFirst stores a value unless its section has one in the store, and reports whether it did. If
// several nodes call it at the same time, one of them succeeds. It returns the errors of Set.
func (l *Live) SetFirst(ctx context.Context, section, key, text string) (first bool, err error) {
	first, err = write(ctx, &l.storage, func(rows Layer) (Layer, bool, error) {
		if slices.ContainsFunc(rows, func(row Value) bool { return row.Section == section }) {
			return rows, false, nil
		}
		next, err := l.without().change(rows, Value{section, key, text, "start"})
		return next, true, err
	}, nil)
	if err != nil {
		return false, err
	}
	found, err := l.storage.read(ctx)
	if err != nil {
		return first, fmt.Errorf("reading the configuration in the store: %w", err)
	}
	l.take(found)
	return first, nil
}

// Replace stores a value if the stored text is was, and reports whether it did. It
// returns the errors of Set.
func (l *Live) Replace(ctx context.Context, section, key, was, text string) (replaced bool, err error) {
	v := Value{section, key, text, OriginStore.String()}
	replaced, err = write(ctx, &l.storage, func(rows Layer) (Layer, bool, error) {
		if !slices.ContainsFunc(rows, func(row Value) bool { return row.name() == v.name() && row.Text == was }) {
			return rows, false, nil
		}
		next, err := l.without().change(rows, v)
		return next, true, err
	}, nil)
	if err != nil {
		return false, err
	}
	if found, err := l.storage.read(ctx); err == nil {
		l.take(found)
	} // or else the watch makes up for it
	return replaced, nil
}
