package kv_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
)

// fakeWatch ends with an error when its channel is closed.
type fakeWatch struct {
	ended     chan struct{}
	err       error
	cancelled bool
}

func (w *fakeWatch) Wait(ctx context.Context) error {
	select {
	case <-w.ended:
		return w.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *fakeWatch) Cancel() { w.cancelled = true }

// TestAwaitChange: what ends the waiting, and when.
func TestAwaitChange(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	close(ended)
	for name, c := range map[string]struct {
		watch fakeWatch
		until time.Duration // from the start; 0: none
		wake  time.Duration
		leave time.Duration // when ctx ends
		want  time.Duration
	}{
		"nothing happens":            {want: 30 * time.Second},
		"a change":                   {watch: fakeWatch{ended: ended}},
		"no watch to be had":         {watch: fakeWatch{ended: ended, err: kv.ErrTooManyWatches}, want: time.Second},
		"no watch, woken":            {watch: fakeWatch{ended: ended, err: kv.ErrTooManyWatches}, wake: time.Second / 2, want: time.Second / 2},
		"no watch, and a time":       {watch: fakeWatch{ended: ended, err: kv.ErrTooManyWatches}, until: time.Second / 4, want: time.Second / 4},
		"a closed store":             {watch: fakeWatch{ended: ended, err: kv.ErrClosed}},
		"a time":                     {until: 5 * time.Second, want: 5 * time.Second},
		"a time that has passed":     {until: -time.Second},
		"a time behind the re-read":  {until: time.Hour, want: 30 * time.Second},
		"woken":                      {wake: 2 * time.Second, want: 2 * time.Second},
		"the context ends":           {leave: 3 * time.Second, want: 3 * time.Second},
		"the context ends, no watch": {watch: fakeWatch{ended: ended, err: kv.ErrTooManyWatches}, leave: 100 * time.Millisecond, want: 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began, passes := time.Now(), 0
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				opts := kv.AwaitOptions{Pass: func(context.Context) { passes++ }}
				if c.until != 0 {
					opts.Until = began.Add(c.until)
				}
				if c.wake != 0 {
					wake := make(chan struct{})
					time.AfterFunc(c.wake, func() { close(wake) })
					opts.Wake = wake
				}
				if c.leave != 0 {
					time.AfterFunc(c.leave, cancel)
				}
				assert.Equal(t, name == "a change", kv.AwaitChange(ctx, &c.watch, opts))
				assert.Equal(t, c.want, time.Since(began))
				assert.True(t, c.watch.cancelled)
				assert.NotZero(t, passes)
			})
		})
	}
}

// toldWatch is a fakeWatch that tells when it has ended, as those of engines do.
type toldWatch struct{ fakeWatch }

func (w *toldWatch) AfterEnd(told func(error)) {
	go func() {
		<-w.ended
		told(w.err)
	}()
}

// TestAfterChange: the function is called once, when AwaitChange would return, whether the watch tells of its end or not.
func TestAfterChange(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ends  time.Duration // when the watch ends; 0: never
		err   error         // of the watch
		leave time.Duration // when ctx ends; 0: never
		want  time.Duration
	}{
		"nothing happens":            {want: 30 * time.Second},
		"a change":                   {ends: time.Second, want: time.Second},
		"a late change":              {ends: time.Minute, want: 30 * time.Second},
		"no watch to be had":         {ends: time.Millisecond, err: kv.ErrTooManyWatches, want: time.Second},
		"a watch that fails":         {ends: 2 * time.Second, err: kv.ErrWatchCancelled, want: 2 * time.Second},
		"a closed store":             {ends: 2 * time.Second, err: kv.ErrClosed, want: 2 * time.Second},
		"the context ends":           {leave: 3 * time.Second, want: 3 * time.Second},
		"the context ends, no watch": {ends: time.Millisecond, err: kv.ErrTooManyWatches, leave: time.Second / 2, want: time.Second / 2},
		"the context ends first":     {ends: 4 * time.Second, leave: 3 * time.Second, want: 3 * time.Second},
	} {
		for _, tells := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, tells: %t", name, tells), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					fake := fakeWatch{ended: make(chan struct{}), err: c.err}
					told := &toldWatch{fakeWatch: fake}
					var watch kv.Watch = told
					if !tells {
						watch = &told.fakeWatch
					}
					if c.ends != 0 {
						time.AfterFunc(c.ends, func() { close(fake.ended) })
					}
					if c.leave != 0 {
						time.AfterFunc(c.leave, cancel)
					}
					began, calls := time.Now(), make(chan time.Duration, 2)
					kv.AfterChange(ctx, watch, func() {
						assert.True(t, told.cancelled)
						calls <- time.Since(began)
					})
					time.Sleep(2 * time.Minute)
					require.Len(t, calls, 1)
					require.Equal(t, c.want, <-calls)
					if c.ends == 0 {
						close(fake.ended)
					}
				})
			})
		}
	}
}

// Several watches end with the first one, and are cancelled together.
func TestAnyWatch(t *testing.T) {
	t.Parallel()
	one, two := &fakeWatch{ended: make(chan struct{})}, &fakeWatch{ended: make(chan struct{}), err: kv.ErrClosed}
	all := kv.AnyWatch(one, two)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, all.Wait(gone), context.Canceled)
	close(two.ended)
	require.ErrorIs(t, all.Wait(t.Context()), kv.ErrClosed)
	all.Cancel()
	require.True(t, one.cancelled && two.cancelled)
}
