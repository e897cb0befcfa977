package remote_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/cmd/settee/internal/remote"
)

// answers is a server with an answer to each request. It keeps when the requests came.
type answers struct {
	list []answer
	at   []time.Duration
	tags []string

	began time.Time
}

type answer struct {
	status int
	body   string
	after  time.Duration
	waits  bool
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	a.at, a.tags = append(a.at, time.Since(a.began)), append(a.tags, r.Header.Get("If-None-Match"))
	if len(a.list) == 0 {
		return nil, errors.New("connection refused")
	}
	next := a.list[0]
	a.list = a.list[1:]
	select {
	case <-time.After(next.after):
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
	header := http.Header{"Etag": {`"` + next.body + `"`}}
	if next.waits {
		header.Set("Preference-Applied", r.Header.Get("Prefer"))
	}
	return &http.Response{StatusCode: next.status, Header: header, Body: io.NopCloser(strings.NewReader(next.body))}, nil
}

func TestFollow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		peer := &answers{began: time.Now(), list: []answer{
			{http.StatusOK, "1", 0, true},
			{http.StatusOK, "2", 0, true},                              // at once: not asked again before a second is over
			{http.StatusNotModified, "", 30 * time.Second, true},       // nothing new
			{http.StatusServiceUnavailable, `{"error":"x"}`, 0, false}, // asked again after a pause that grows
			{http.StatusBadGateway, "<html>", 0, false},
			{http.StatusNotModified, "", 0, true}, // it has recovered, and is not asked to wait
			{http.StatusOK, "3", 0, false},        // a server that does not wait
			{http.StatusOK, "3", 0, false},
			{http.StatusOK, "4", 0, true},
		}}
		s, err := remote.Connect("settee", "http://u:hidden@h/", peer)
		require.NoError(t, err)
		var seen []string
		enough := errors.New("enough")
		err = s.Follow(t.Context(), "/x", 0, func(body []byte, err error) error {
			if err != nil {
				assert.NotContains(t, err.Error(), "hidden")
				seen = append(seen, "failed")
				return nil
			}
			if seen = append(seen, string(body)); string(body) == "4" {
				return enough
			}
			return nil
		})
		require.ErrorIs(t, err, enough)
		assert.Equal(t, []string{"1", "2", "failed", "failed", "2", "3", "4"}, seen)
		const s1 = time.Second
		assert.Equal(t, []time.Duration{0, s1, 2 * s1, 32 * s1, 33 * s1, 35 * s1, 40 * s1, 45 * s1, 50 * s1}, peer.at)
		assert.Equal(t, []string{"", `"1"`, `"2"`, `"2"`, `"2"`, `"2"`, `"2"`, `"3"`, `"3"`}, peer.tags)

		peer.at, peer.began = nil, time.Now()
		var failed error
		require.ErrorIs(t, s.Follow(t.Context(), "/x", 0, func(_ []byte, err error) error {
			if failed = err; len(peer.at) == 8 {
				return enough
			}
			return nil
		}), enough)
		require.ErrorContains(t, failed, "GET http://h/x: connection refused")
		assert.Equal(t, []time.Duration{0, s1, 3 * s1, 7 * s1, 15 * s1, 30 * s1, 45 * s1, 60 * s1}, peer.at)

		peer.began, peer.list = time.Now(), []answer{{http.StatusOK, "1", 0, true}, {http.StatusOK, "2", time.Hour, true}}
		err = s.Follow(t.Context(), "/x", 0, func(_ []byte, err error) error { return err })
		require.ErrorContains(t, err, "GET http://h/x: the server has not answered within 45s")
		assert.Equal(t, 46*s1, time.Since(peer.began))
	})
}
