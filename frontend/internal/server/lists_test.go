package server

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/frontend/accounts"
	"settee/frontend/internal/web"
	"settee/pkg/config"
	"settee/pkg/docstore"
)

func TestNameListings(t *testing.T) {
	t.Parallel()
	read := func(text string) (nameListing, error) {
		q := web.NewQuery(&http.Request{URL: &url.URL{RawQuery: text}})
		l := readNameListing(q)
		return l, q.Err
	}
	for text, want := range map[string]nameListing{
		"":                               {limit: -1},
		"limit=0&skip=2":                 {skip: 2},
		`startkey="a"&endkey="b"`:        {limit: -1, ListOptions: docstore.ListOptions{Start: "a", End: "b"}},
		`start_key="a"&end_key="b"`:      {limit: -1, ListOptions: docstore.ListOptions{Start: "a", End: "b"}},
		`startkey="a"&start_key="x"`:     {limit: -1, ListOptions: docstore.ListOptions{Start: "a"}},
		`endkey="b"&inclusive_end=false`: {limit: -1, exclusive: true, ListOptions: docstore.ListOptions{End: "b"}},
		`endkey=""`:                      {limit: -1, nothing: true},
		`startkey=""`:                    {limit: -1},
		`descending=true&startkey=""`:    {limit: -1, nothing: true, ListOptions: docstore.ListOptions{Descending: true}},
		`descending=true&endkey="b"`:     {limit: -1, ListOptions: docstore.ListOptions{Descending: true, End: "b"}},
	} {
		l, err := read(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, l, text)
	}
	for _, bad := range []string{"startkey=a", "end_key=1", "limit=-1", "skip=x", "descending=1"} {
		_, err := read(bad)
		require.Error(t, err, bad)
	}
}

func TestFailuresOfConfiguration(t *testing.T) {
	t.Parallel()
	status := func(err error) int {
		var failure *web.Failure
		require.ErrorAs(t, err, &failure)
		return failure.Status
	}
	assert.Equal(t, http.StatusBadRequest, status(configFailure(fmt.Errorf("setting: %w", &config.RefusedError{Reason: "no"}))))
	assert.Equal(t, http.StatusNotFound, status(configFailure(config.ErrNotSet)))
	assert.Equal(t, http.StatusConflict, status(configFailure(accounts.ErrNoAdmin)))
	assert.Equal(t, http.StatusForbidden, status(configFailure(config.ErrBlacklisted)))
	assert.Equal(t, http.StatusBadRequest, status(configFailure(config.ErrNotWhitelisted)))
	other := errors.New("other")
	require.ErrorIs(t, configFailure(other), other)
	require.NoError(t, configFailure(nil))
}

func TestValuesOfOneNode(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest(http.MethodPut, "/", nil)
	for _, value := range []string{"", "true"} {
		r.Header.Set("X-Couch-Persist", value)
		require.NoError(t, checkPersist(r))
	}
	r.Header.Set("X-Couch-Persist", "false")
	require.ErrorContains(t, checkPersist(r), "X-Couch-Persist: false is not supported")
}

func TestStoreThatRefusesWrites(t *testing.T) {
	t.Parallel()
	err := writesStopped(fmt.Errorf("write /secret/place: %w", syscall.ENOSPC))
	require.ErrorContains(t, err, "(no space left on device)")
	require.NotContains(t, err.Error(), "secret")
	require.NotContains(t, writesStopped(errors.New("/secret")).Error(), "secret")
}
