package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The jobs of a node keep to the budget of a server, and say that they wait for it. A larger budget counts at once.
func TestBudgetOfAServer(t *testing.T) {
	t.Parallel()
	const rate, jobs = 5, 12
	node := serveNode(t, aStore(t))
	base, err := url.Parse(node.url)
	require.NoError(t, err)
	var asked atomic.Int64
	proxy := httputil.NewSingleHostReverseProxy(base)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		proxy.ServeHTTP(w, r)
	}))
	defer server.Close()
	defer server.CloseClientConnections() // feeds
	at, err := url.Parse(server.URL)
	require.NoError(t, err)
	setting := "_node/_local/_config/replicator.budgets/" + url.PathEscape(at.Host)
	node.ask(http.StatusOK, http.MethodPut, setting, fmt.Sprintf("%q", fmt.Sprint(rate, " requests/s")))
	node.ask(http.StatusCreated, http.MethodPut, "source", "")
	node.ask(http.StatusCreated, http.MethodPut, "source/one", "{}")
	at.User = base.User
	began := time.Now()
	for i := range jobs {
		node.ask(http.StatusCreated, http.MethodPut, fmt.Sprintf("_replicator/%d", i),
			fmt.Sprintf(`{"source":"%s/source","target":"%starget-%d","create_target":true,"continuous":true}`, at, node.url, i))
	}
	list := ""
	require.Eventually(t, func() bool {
		list = node.ask(http.StatusOK, http.MethodGet, "_scheduler/jobs", "")
		return strings.Contains(list, `"reason":"waiting_for_budget"`)
	}, limit, 50*time.Millisecond)
	assert.Contains(t, list, `"budget":{"server":"`+at.Host+`"`)
	assert.Contains(t, node.ask(http.StatusOK, http.MethodGet, "_scheduler/nodes", ""), `"part":{"requests":5}`)
	count := asked.Load()
	assert.LessOrEqual(t, count, int64(rate*(time.Since(began).Seconds()+1)))
	node.ask(http.StatusOK, http.MethodPut, setting, `"1000 requests/s"`)
	for i := range jobs {
		require.Eventually(t, func() bool {
			status, _ := request(t, http.MethodGet, node.url+fmt.Sprintf("target-%d/one", i), "")
			return status == http.StatusOK
		}, limit, 20*time.Millisecond)
	}
	answer := node.ask(http.StatusBadRequest, http.MethodPut, setting, `"20 pages/s"`)
	assert.Contains(t, answer, "20 requests/s, 2 MB/s, 8 connections")
	assert.Zero(t, node.end(syscall.SIGTERM))
}
