package replicator_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"settee/replicator"
)

// A definition is parsed as the same replication, except for its secrets.
func TestDefinition(t *testing.T) {
	t.Parallel()
	parse := func(text string) *replicator.Replication {
		t.Helper()
		doc, err := replicator.ParseText("a", []byte(text), replicator.ParseOptions{})
		require.NoError(t, err)
		return doc.Replication
	}
	for _, text := range []string{
		`{"source": "http://a.example/a%2Fb", "target": "https://b.example:7/x", "continuous": true}`,
		`{"source": {"url": "http://a.example/a"}, "target": "http://b.example/b", "doc_ids": ["100%25", "a%2Bb", "a+b", "x"]}`,
		`{"source": "http://a.example/a", "target": "http://b.example/b", "doc_ids": [], "create_target": true, "create_target_params": {"q": 2}}`,
		`{"source": "http://a.example/a", "target": "http://b.example/b", "selector": {"year": {"$gt": 1979}}, "since_seq": "7-x",
			"use_checkpoints": false, "use_bulk_get": false, "winning_revs_only": true, "checkpoint_interval": 7, "worker_processes": 1,
			"worker_batch_size": 2, "http_connections": 3, "connection_timeout": 4, "retries_per_request": 0,
			"socket_options": "[{keepalive, true}, {nodelay,false},{sndbuf, 7}, {recbuf, 8}]", "source_proxy": "http://p.example:1"}`,
		`{"source": "http://a.example/a", "target": "http://b.example/b", "every": "1h30m"}`,
		`{"source": "http://a.example/a", "target": "http://b.example/b", "schedule": "0 3 * * *", "timezone": "Europe/Berlin"}`,
	} {
		r := parse(text)
		got, err := r.Definition()
		require.NoError(t, err)
		again := parse(string(got))
		again.Doubtful, r.Doubtful = nil, nil // these are about the spelling
		require.Equal(t, r, again, "%s", got)
	}
	r := parse(`{"source": {"url": "http://a.example/a", "headers": {"X-Token": "s3cret"}, "auth": {"basic": {"username": "ann", "password": "s3cret"}}},
		"target": "http://bob:s3cret@b.example/b", "filter": "d/f", "query_params": {"key": "s3cret", "n": 7}, "proxy": "http://me:s3cret@p.example"}`)
	got, err := r.Definition()
	require.NoError(t, err)
	require.JSONEq(t, `{"source": {"url": "http://a.example/a/", "headers": {"X-Token": "*****"}, "auth": {"basic": {"username": "ann", "password": "*****"}}},
		"target": {"url": "http://b.example/b/", "auth": {"basic": {"username": "bob", "password": "*****"}}},
		"filter": "d/f", "query_params": {"key": "*****", "n": "*****"},
		"source_proxy": "http://me:*****@p.example", "target_proxy": "http://me:*****@p.example"}`, string(got))
}
