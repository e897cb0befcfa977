package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hanging returns the address of a server that accepts connections, reads requests, and never answers.
func hanging(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	var mu sync.Mutex
	var accepted []net.Conn
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			accepted = append(accepted, conn)
			mu.Unlock()
			serving.Go(func() { _, _ = io.Copy(io.Discard, conn) })
		}
	})
	t.Cleanup(func() {
		assert.NoError(t, listener.Close())
		mu.Lock()
		for _, conn := range accepted {
			_ = conn.Close()
		}
		mu.Unlock()
		serving.Wait()
	})
	return listener.Addr().String()
}

// A server that accepts requests and never answers makes its job stuck, over all its runs: its mark and the metric stay, and it
// says which end hangs and what helps.
func TestServerThatNeverAnswers(t *testing.T) {
	t.Parallel()
	node := serveNode(t, "mem:", "replicator/stuck_after_sec=1", "replicator/connection_timeout=500", "replicator/retries_per_request=2",
		"replicator/min_backoff_penalty_sec=1", "replicator/max_backoff_penalty_sec=1")
	host := hanging(t)
	node.ask(http.StatusCreated, http.MethodPut, "_replicator/hangs", document(t, map[string]any{
		"source": "http://" + host + "/db", "target": node.hosted("target"), "continuous": true,
	}))
	type told struct {
		Runs      []struct{ Code string }
		Condition struct {
			Marks []struct {
				Type  string
				Since time.Time
			}
			Fault, Advice struct{ Code, Side, Host string }
			Attention     bool
		}
	}
	job := func() (j told, stuck time.Time) {
		var list struct {
			Jobs []struct {
				JobID string `json:"job_id"`
			}
		}
		require.NoError(t, json.Unmarshal([]byte(node.ask(http.StatusOK, http.MethodGet, "_scheduler/jobs", "")), &list))
		require.Len(t, list.Jobs, 1)
		require.NoError(t, json.Unmarshal([]byte(node.ask(http.StatusOK, http.MethodGet, "_scheduler/jobs/"+list.Jobs[0].JobID, "")), &j))
		for _, m := range j.Condition.Marks {
			if m.Type == "stuck" {
				stuck = m.Since
			}
		}
		return j, stuck
	}
	require.Eventually(t, func() bool {
		_, stuck := job()
		return !stuck.IsZero()
	}, limit, 50*time.Millisecond)
	began, _ := job()
	for runs := len(began.Runs); ; {
		j, stuck := job()
		require.False(t, stuck.IsZero(), "after %d runs", len(j.Runs))
		require.Positive(t, node.metric("settee_replicator_longest_stuck_job_seconds"))
		require.EqualValues(t, 1, node.metric("settee_replicator_stuck_jobs"))
		require.True(t, j.Condition.Attention)
		if len(j.Runs) < max(runs+1, 2) {
			time.Sleep(100 * time.Millisecond) // the next look
			continue
		}
		assert.Equal(t, "no_answer", j.Runs[0].Code)
		assert.Equal(t, []string{"no_answer", "source", host, "server_hangs"},
			[]string{j.Condition.Fault.Code, j.Condition.Fault.Side, j.Condition.Fault.Host, j.Condition.Advice.Code})
		break
	}
	problems := node.ask(http.StatusOK, http.MethodGet, "_scheduler/problems", "")
	assert.Contains(t, problems, `"message":"source `+host+`: accepts requests, and does not answer"`)
}
