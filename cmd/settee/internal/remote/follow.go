package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"settee/pkg/retry"
)

const (
	// longPoll is how long the server may wait for a new answer, in seconds.
	longPoll = 30
	// longestPoll bounds the time of a request for another answer.
	longestPoll = (longPoll + 15) * time.Second
	// LeastPause is the least time between two requests of [Server.Follow].
	LeastPause = time.Second
	// pauseWithout is the least time between two requests to a server that does not wait, or that is going away.
	pauseWithout = 5 * time.Second
	// longestPause is the longest time until a request that failed is repeated.
	longestPause = 15 * time.Second
)

// Follow calls take with the answer to a GET, and then with each answer that differs from the one before, until the
// context ends or take returns an error. It returns that error. The server is asked to answer when there is something
// new ("Prefer: wait"). Requests begin at least pause apart, and LeastPause at least.
//
// A request that fails is repeated after a pause that grows, and then without a wait: take is called with a nil answer and the
// error, and ends the following by returning it.
func (s *Server) Follow(ctx context.Context, path string, pause time.Duration, take func(answer []byte, err error) error) error {
	tag, failures := "", 0
	var latest []byte
	for {
		began := time.Now()
		answer, err := s.poll(ctx, path, tag, failures == 0)
		least := max(pause, LeastPause)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			if err := take(nil, err); err != nil {
				return err
			}
			least = max(least, retry.Backoff{First: time.Second, Most: longestPause}.After(failures, 0))
			failures++
		default:
			if failures > 0 || answer.body != nil && !bytes.Equal(answer.body, latest) {
				if answer.body != nil {
					latest = answer.body
				}
				if err := take(latest, nil); err != nil {
					return err
				}
			}
			if failures = 0; answer.body != nil {
				tag = answer.tag
			}
			if !answer.waited {
				least = max(least, pauseWithout)
			}
		}
		if err := retry.Wait(ctx, least-time.Since(began)); err != nil {
			return err
		}
	}
}

// polled is an answer to a request that waits. Without a body the answer has not changed.
type polled struct {
	body   []byte
	tag    string
	waited bool // the server waits for changes
}

// poll asks for an answer, another one than that with the tag if there is a tag. wait lets the server wait for it.
func (s *Server) poll(ctx context.Context, path, tag string, wait bool) (polled, error) {
	longest, header := Timeout, http.Header{}
	if wait {
		header.Set("Prefer", "wait="+strconv.Itoa(longPoll))
	}
	if tag != "" {
		longest = longestPoll
		header.Set("If-None-Match", tag)
	}
	ctx, cancel := within(ctx, longest)
	defer cancel()
	response, err := s.request(ctx, http.MethodGet, path, header, nil)
	if unchanged, ok := errors.AsType[*StatusError](err); ok && unchanged.Status == http.StatusNotModified {
		return polled{waited: unchanged.waited}, nil
	}
	if err != nil {
		return polled{}, fmt.Errorf("GET %s%s: %w", s.root, path, err)
	}
	defer func() { _ = response.Body.Close() }() // it was read
	body, err := readAll(response.Body)
	if err != nil {
		return polled{}, fmt.Errorf("GET %s%s: %w", s.root, path, err)
	}
	return polled{body, response.Header.Get("Etag"), waited(response)}, nil
}

// waited reports whether the server waits for a change of this answer.
func waited(r *http.Response) bool { return r.Header.Get("Preference-Applied") != "" }
