//go:build fdb && fire

package fire

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// stopFrontend stops a frontend at which a client waits for a replication. Its load balancer learns that before its port is
// closed, and the client that its request is to be sent to another node, where it waits for the same job.
func (r *roll) stopFrontend(index int) {
	release := r.recorder.hold()
	defer release()
	k := r.heldTask()
	body, other := k.definition(r.cluster), (index+1)%frontends
	first, second := make(chan posted, 1), make(chan posted, 1)
	go func() { first <- r.postTo(index, body) }()
	var job string
	require.Eventually(r, func() bool {
		id, state := r.jobOf(k)
		job = id
		return state == "running"
	}, limit, 20*time.Millisecond, "%s runs", k.name)

	require.NoError(r, r.nodes[index].tellToStop())
	process, _ := r.nodes[index].now()
	require.Eventually(r, func() bool {
		status, _, _ := ask(r.Context(), patience, http.MethodGet, r.at(hosted, r.doors[index])+"_up", "")
		return status == http.StatusNotFound || process.Exited()
	}, limit, 10*time.Millisecond)
	assert.False(r, process.Exited(), "frontend%d answers /_up before it ends", index)

	refused := <-first
	if assert.NoError(r, refused.err) {
		assert.Equal(r, http.StatusServiceUnavailable, refused.status, refused.text)
		assert.NotEmpty(r, refused.header.Get("Retry-After"))
		assert.Contains(r, refused.text, "the same request, sent to another node or later, waits for it")
	}
	go func() { second <- r.postTo(other, body) }()
	require.NoError(r, r.nodes[index].awaitStop())
	again, _ := r.jobOf(k)
	assert.Equal(r, job, again, "the replication goes on")
	release()
	answered := <-second
	if assert.NoError(r, answered.err) {
		assert.Equal(r, http.StatusOK, answered.status, answered.text)
	}
	for _, lacks := range r.work.lacking(k) {
		r.work.wrongAnswer("%s was reported complete: %s", k.target(), lacks)
	}
}

// heldTask returns a one-shot replication with another target each time, whose source may be held back.
func (r *roll) heldTask() *task {
	if r.held == nil {
		r.held = &source{peer: couch0, database: heldSource, acked: map[string]string{}}
		r.must(http.MethodPut, r.forTest(couch0, heldSource), "", http.StatusCreated, nil)
	}
	r.work.change(r.Context(), r.random, r.held)
	r.waited++
	return &task{name: fmt.Sprintf("waited%02d", r.waited), source: r.held, peer: couch1, before: r.held.known()}
}

// jobOf returns the job of a task and its state. There is at most one.
func (r *roll) jobOf(k *task) (id, state string) {
	var list struct {
		Jobs []struct{ ID, Target, State string }
	}
	r.must(http.MethodGet, r.forTest(hosted, "_scheduler/jobs")+"?limit=1000", "", http.StatusOK, &list)
	for _, job := range list.Jobs {
		if targetOf(job.Target) == k.name {
			assert.Empty(r, id, "a second job of %s", k.name)
			id, state = job.ID, job.State
		}
	}
	return id, state
}

// posted is the answer to a POST.
type posted struct {
	status int
	header http.Header
	text   string
	err    error
}

// postTo posts a replication to one frontend.
func (r *roll) postTo(index int, body string) posted {
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.at(hosted, r.doors[index])+"_replicate", strings.NewReader(body))
	if err != nil {
		return posted{err: err}
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return posted{err: err}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return posted{response.StatusCode, response.Header, string(text), err}
}
