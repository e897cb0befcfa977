package web

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"runtime"
	"time"

	"settee/pkg/turns"
)

// Scans gives places to what takes the processor for long: searches, and long lists. There are fewer places than
// processors, so that other requests, heartbeats and claims find one. Users take turns. The zero value has no bound.
type Scans struct {
	turns *turns.Turns
	key   func(*http.Request) string
}

const (
	// waitingScans is how many requests may wait for a place.
	waitingScans = 5_000
	// scanPatience is how long a request waits for a place.
	scanPatience = 30 * time.Second
	// scanRows is the number of rows of a list that are read in one place.
	scanRows = 100
)

// NewScans returns places for a node. key returns whose turn a request takes.
func NewScans(key func(*http.Request) string) *Scans {
	return &Scans{turns.New(max(1, runtime.GOMAXPROCS(0)/2), waitingScans), key}
}

var errScansWait = Busy("too many searches and long lists wait on this node: try again later")

// enter waits for a place.
func (s *Scans) enter(r *http.Request) (leave func(), err error) {
	if s == nil || s.turns == nil {
		return func() {}, nil
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), scanPatience, errScansWait)
	defer cancel()
	leave, err = s.turns.Enter(ctx, s.key(r))
	if errors.Is(err, turns.ErrFull) {
		return nil, errScansWait
	}
	return leave, err
}

// Run calls scan in a place. scan neither reads from the client nor writes to it.
func (s *Scans) Run(r *http.Request, scan func() error) error {
	leave, err := s.enter(r)
	if err != nil {
		return err
	}
	defer leave()
	return scan()
}

// ScanRows yields the rows of a list, which it reads in places, some at a time. It has no place while it yields, because a
// client may take its time for a row.
func ScanRows[T any](s *Scans, r *http.Request, rows iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		next, stop := iter.Pull2(rows)
		defer stop()
		type row struct {
			value T
			err   error
		}
		for more := true; more; {
			var some []row
			err := s.Run(r, func() error {
				for more && len(some) < scanRows {
					var of row
					if of.value, of.err, more = next(); more {
						some = append(some, of)
					}
				}
				return nil
			})
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, of := range some {
				if !yield(of.value, of.err) {
					return
				}
			}
		}
	}
}
