package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// metric returns the value of a metric of a node. The name has its labels, if there are any.
func (p *process) metric(name string) float64 {
	p.t.Helper()
	text := p.ask(http.StatusOK, http.MethodGet, "_node/_local/_prometheus", "")
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(text)
	require.NotNil(p.t, found, name)
	value, err := strconv.ParseFloat(found[1], 64)
	require.NoError(p.t, err)
	return value
}

// With more continuous replications than slots, each change reaches its target soon: idle replications are parked, and
// the feed of the source's server wakes them. The same is true after a node was killed, and it stops at once when told to.
func TestParkedReplications(t *testing.T) {
	t.Parallel()
	const count, slots = 8, 2
	peer := serveNode(t, "mem:")
	store := "pebble:" + filepath.Join(t.TempDir(), "data")
	serve := func() *process {
		return serveNode(t, store, fmt.Sprint("replicator/max_jobs=", slots), "replicator/interval_sec=3600")
	}
	node := serve()
	for i := range count {
		source, target := fmt.Sprint("source", i), fmt.Sprint("target", i)
		peer.ask(http.StatusCreated, http.MethodPut, source, "")
		peer.ask(http.StatusCreated, http.MethodPut, target, "")
		node.ask(http.StatusAccepted, http.MethodPost, "_replicate",
			fmt.Sprintf(`{"source":%q,"target":%q,"continuous":true}`, peer.url+source, peer.url+target))
	}
	arrive := func(doc string) {
		t.Helper()
		for i := range count {
			peer.ask(http.StatusCreated, http.MethodPut, fmt.Sprint("source", i, "/", doc), `{}`)
			require.Eventually(t, exists(t, fmt.Sprint(peer.url, "target", i, "/", doc)), limit, 10*time.Millisecond)
		}
	}
	parked := func() bool { return node.metric(`settee_replicator_jobs{state="parked"}`) == count-slots }
	require.Eventually(t, parked, limit, 10*time.Millisecond)
	require.Eventually(t, func() bool { return node.metric(`settee_watch_servers{by="feed"}`) == 1 }, limit, 10*time.Millisecond)
	arrive("one")
	require.Eventually(t, parked, limit, 10*time.Millisecond)
	assert.Zero(t, node.metric("couchdb_couch_replicator_jobs_stops_total"))
	assert.Zero(t, node.metric("couchdb_couch_replicator_jobs_crashes_total"))
	assert.Zero(t, node.metric("settee_watch_questions_total"))
	assert.GreaterOrEqual(t, node.metric("settee_replicator_wakes_total"), float64(count-slots))

	node.end(syscall.SIGKILL)
	node = serve()
	assert.Contains(t, node.logged(), `"queue":"watch","jobs":1`)
	arrive("two")
	assert.NotContains(t, node.logged(), "that no node kept alive", "the activity timeout is over")
	assert.Zero(t, node.end(syscall.SIGTERM))
	assert.NotContains(t, node.logged(), `"level":"error"`)
}
