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
)

const (
	// reread is how long a watch is relied upon.
	reread = 30 * time.Second
	// firstPause and longestPause are between readings of a store that fails.
	firstPause   = time.Second
	longestPause = 30 * time.Second
)

// LiveOptions say where a configuration that changes comes from.
type LiveOptions struct {
	// Store is below which prefix of which store its layer is.
	Store  kv.Database
	Prefix []byte
	// Sealer is of the secrets that the store has. Default: none.
	Sealer kv.Sealer
	// Files are those that Reload reads: the ones given to Load.
	Files []string
	// Log gets what changes, with secrets masked, and what the store has to no effect.
	Log zerolog.Logger
}

// Live is the configuration of a node that runs: what Load has read, the layer of the
// store, which may change at any time, and the files, which may be read again. It is safe
// for concurrent use.
type Live struct {
	storage storage
	files   []string
	log     zerolog.Logger
	started *Config // what the node began with

	current atomic.Pointer[Config]
	reloads atomic.Int64 // how many readings of the files have begun

	mu       sync.Mutex       // guards what follows; never held during I/O
	own      *Config          // without the layer of the store
	stored   stored           // the latest
	reloaded int64            // which reading of the files is in own
	warned   map[Warning]bool // about the layer of the store
	changed  chan struct{}
}

// OpenLive reads the layer of the store into what Load has read. Run keeps it up to date.
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

// renew notes what there is to warn of in the layer of the store, and returns what was not
// known before.
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

// Current returns the configuration as it is now. Who needs several settings reads them
// from one, so as never to see half of a change.
func (l *Live) Current() *Config { return l.current.Load() }

// Changed returns a channel that is closed when Current changes the next time. Who takes
// it before calling Current misses no change.
func (l *Live) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// Run follows the store until ctx ends, and returns ctx's error then, or kv.ErrClosed when
// the store was closed. A change that any node makes is taken in within about a second. A
// store that cannot be read leaves the configuration as it is, and is read again, after
// half a minute at most.
func (l *Live) Run(ctx context.Context) error {
	pause := firstPause
	for {
		found, watch, err := l.storage.watch(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, kv.ErrClosed):
			return err
		case err != nil:
			l.log.Error().Err(err).Msg("the configuration in the store could not be read, and is read again")
			sleep(ctx, pause)
			pause = min(2*pause, longestPause)
			continue
		}
		pause = firstPause
		l.take(found)
		if await(ctx, watch) != nil {
			sleep(ctx, firstPause) // a watch that cannot be had is made up for
		}
	}
}

// await waits for a watch, for as long as it is relied upon.
func await(ctx context.Context, watch kv.Watch) error {
	defer watch.Cancel()
	waiting, cancel := context.WithTimeout(ctx, reread)
	defer cancel()
	err := watch.Wait(waiting)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil
	}
	return err
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Reload reads the node's own files again. The error joins all that is wrong with them, as
// Load's does, and leaves the configuration as it is.
func (l *Live) Reload() error {
	reading := l.reloads.Add(1)
	layers, warnings, err := ReadFiles(l.files)
	own, without, wrong := l.started.With(OriginFile, layers...)
	if err := errors.Join(err, wrong); err != nil {
		return err
	}
	taken := l.update(func() bool {
		if reading < l.reloaded { // a later reading was faster
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
				Msg("the setting has another value than at the start, which counts when the node starts again")
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

// take takes in what the store has, unless something later is known.
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

// update makes the current configuration anew, if prepare says that what it is made of has
// changed.
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

// note says of a value that was put into the store if something else beats it here.
func (l *Live) note(v Value) {
	if from := l.Current().from(v.name()); v.Text != "" && from != OriginStore.String() {
		l.log.Warn().Stringer("setting", v.name()).Str("from", from).
			Msg("what was put into the store does not count on this node, whose own value is stronger")
	}
}

// SetFirst puts a value into the store unless it has one in that section already: of several
// nodes that do it at the same time, one does. It reports whether it was this one. The error is
// one of Set's.
func (l *Live) SetFirst(ctx context.Context, section, key, text string) (first bool, err error) {
	first, err = write(ctx, &l.storage, func(rows Layer) (Layer, bool, error) {
		if slices.ContainsFunc(rows, func(row Value) bool { return row.Section == section }) {
			return rows, false, nil
		}
		next, err := l.without().change(rows, Value{section, key, text, "start"})
		return next, true, err
	})
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

// Replace changes a value in the store if its text is still was, and reports whether it did. The error is one of Set's.
func (l *Live) Replace(ctx context.Context, section, key, was, text string) (replaced bool, err error) {
	v := Value{section, key, text, OriginStore.String()}
	replaced, err = write(ctx, &l.storage, func(rows Layer) (Layer, bool, error) {
		if !slices.ContainsFunc(rows, func(row Value) bool { return row.name() == v.name() && row.Text == was }) {
			return rows, false, nil
		}
		next, err := l.without().change(rows, v)
		return next, true, err
	})
	if err != nil {
		return false, err
	}
	if found, err := l.storage.read(ctx); err == nil {
		l.take(found)
	} // or else the watch makes up for it
	return replaced, nil
}
