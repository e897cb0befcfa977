package replicator_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"settee/replicator"

	"github.com/stretchr/testify/require"
)

// field is a member of a JSON object whose order does not matter.
type field struct{ name, value string }

// shuffled writes the members in a random order.
func shuffled(random *rand.Rand, fields []field) string {
	parts := make([]string, len(fields))
	for i, j := range random.Perm(len(fields)) {
		parts[i] = fmt.Sprintf("%q:%s%s", fields[j].name, strings.Repeat(" ", random.IntN(2)), fields[j].value)
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func pick(random *rand.Rand, choices ...string) string {
	return choices[random.IntN(len(choices))]
}

// randomEndpoint returns a function that writes one endpoint, each time with its
// parts in another order.
func randomEndpoint(random *rand.Rand) func() string {
	url := fmt.Sprintf("http%s://%s%s/%s", pick(random, "", "s"), pick(random, "h", "h.example", "[::1]", "127.0.0.1"),
		pick(random, "", ":80", ":5984", ":6984"), pick(random, "db", "db/", "a%2Fb", "a/b"))
	if random.IntN(3) == 0 {
		return func() string { return fmt.Sprintf("%q", url) }
	}
	var headers, parts []field
	for _, name := range []string{"X-One", "a-two", "Accept", "Cookie"} {
		if random.IntN(2) == 0 {
			headers = append(headers, field{name, pick(random, `"1"`, `"application/json"`, `"<&>"`)})
		}
	}
	switch random.IntN(4) {
	case 0:
		parts = append(parts, field{"auth", `{"basic": {"username": "u@", "password": "p\u2028"}}`})
	case 1:
		headers = append(headers, field{"authorization", fmt.Sprintf("%q", basicHeader("u:p"))})
	case 2:
		headers = append(headers, field{"Authorization", `"Bearer x"`})
	}
	parts = append(parts, field{"url", fmt.Sprintf("%q", url)}, field{"other", "5"})
	return func() string {
		return shuffled(random, append(parts[:len(parts):len(parts)], field{"headers", shuffled(random, headers)}))
	}
}

// randomDocument returns a function that writes one document, each time with its
// parts in another order.
func randomDocument(random *rand.Rand) func() string {
	source, target := randomEndpoint(random), randomEndpoint(random)
	optional := []field{
		{"create_target", "true"}, {"create_target_params", `{"q":  1}`}, {"continuous", pick(random, "true", "false")},
		{"since_seq", pick(random, `"1-<x>"`, `5`, `[1, "y"]`)}, {"winning_revs_only", "true"}, {"use_checkpoints", "false"},
		{"worker_processes", pick(random, `3`, `"3"`)}, {"socket_options", `"[{nodelay, true}]"`}, {"owner", `"joe"`},
		{"user_ctx", `{"roles": ["a"], "name": "joe"}`}, {"proxy", `"http://u:p%40@p"`}, {"_id", `"x"`}, {"mine", `{"a": [1]}`},
	}
	var fields []field
	for _, f := range optional {
		if random.IntN(2) == 0 {
			fields = append(fields, f)
		}
	}
	filters := [][]field{
		nil,
		{{"doc_ids", pick(random, `[]`, `["a", "b c", "<ü>"]`)}},
		{{"selector", pick(random, `{}`, `{"a": {"$gt": 1.50}, "b": "<x>"}`)}},
		{{"filter", `"d/f"`}, {"query_params", `{"b": "1", "a": "2"}`}},
		{{"filter", `"_design"`}},
	}
	fields = append(fields, filters[random.IntN(len(filters))]...)
	return func() string {
		return shuffled(random, append(fields[:len(fields):len(fields)], field{"source", source()}, field{"target", target()}))
	}
}

func TestParsedDefinitionsSurviveTheStore(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		text := randomDocument(random)()
		r := parse(t, []byte(text))
		stored, err := json.Marshal(replicator.JobArgs{Replication: r})
		require.NoError(t, err)
		var back replicator.JobArgs
		require.NoError(t, json.Unmarshal(stored, &back))
		require.Equal(t, r, back.Replication, text)
		require.True(t, r.Equal(back.Replication))
	}
}

func TestOrderDoesNotChangeIDs(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		write := randomDocument(random)
		one, other := write(), write()
		a, b := parse(t, []byte(one)), parse(t, []byte(other))
		require.Equal(t, a, b, "%s and %s", one, other)
		require.Equal(t, id(t, a), id(t, b), "%s and %s", one, other)
		require.Equal(t, a.JobID("joe"), b.JobID("joe"), "%s and %s", one, other)
		require.True(t, a.Equal(b), "%s and %s", one, other)
	}
}
