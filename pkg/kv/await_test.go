package kv_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

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
