package replicator_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"

	"settee/internal/testkit"
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

// randomEndpoint returns a function that writes one endpoint, each time with its parts in another
// order.
func randomEndpoint(random *rand.Rand) func() string {
	location := fmt.Sprintf("http%s://%s%s/%s", pick(random, "", "s"), pick(random, "h", "h.example", "[::1]", "127.0.0.1"),
		pick(random, "", ":80", ":5984", ":6984"), pick(random, "db", "db/", "a%2Fb", "a/b"))
	if random.IntN(3) == 0 {
		return func() string { return fmt.Sprintf("%q", location) }
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
	parts = append(parts, field{"url", fmt.Sprintf("%q", location)}, field{"other", "5"})
	return func() string {
		return shuffled(random, append(parts[:len(parts):len(parts)], field{"headers", shuffled(random, headers)}))
	}
}

// randomDocument returns a function that writes one document, each time with its parts in another
// order.
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

func TestDefinitionsReadBackFromTheStore(t *testing.T) {
	testkit.SkipRace(t)
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		text := randomDocument(random)()
		r := parse(t, []byte(text))
		stored, err := (&replicator.JobArgs{Replication: r}).Stored()
		require.NoError(t, err)
		var back replicator.JobArgs
		require.NoError(t, json.Unmarshal(stored, &back))
		require.Equal(t, r, back.Replication, text)
		require.True(t, r.Equal(back.Replication))
	}
}

func TestOrderDoesNotChangeIDs(t *testing.T) {
	testkit.SkipRace(t)
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

// randomSpelling returns a function that writes one endpoint, each time with another place and
// encoding of its credentials, with or without a default port and a final slash. With loose it
// also varies what CouchDB's replication ids distinguish and job ids do not: the case of host and
// header names, and user names that URLs have to encode.
func randomSpelling(random *rand.Rand, loose bool) func() string {
	scheme := pick(random, "http", "https")
	defaultPort := map[string]string{"http": ":80", "https": ":443"}[scheme]
	host := pick(random, "h.example", "127.0.0.1", "[::1]", "localhost")
	port := pick(random, "", "", ":8080")
	path := pick(random, "/db", "/a%2Fb", "/a/b", "/x_replicator")
	user, password := pick(random, "", "joe", "Ann2"), pick(random, "p", "p@:/ ü%", "")
	if loose && user != "" {
		user += pick(random, "", "@home", " ü", "%40")
	}
	withHeader := random.IntN(2) == 0
	return func() string {
		written, at := host, port
		if port == "" {
			at = pick(random, "", defaultPort)
		}
		name := "X-Key"
		if loose {
			written, name = pick(random, host, strings.ToUpper(host)), pick(random, "X-Key", "x-key", "X-KEY")
		}
		var headers, parts []field
		if withHeader {
			headers = append(headers, field{name, `"1"`})
		}
		where := random.IntN(3)
		userinfo := ""
		switch {
		case user == "":
		case where == 0:
			userinfo = url.UserPassword(user, password).String() + "@"
		case where == 1:
			headers = append(headers, field{pick(random, "Authorization", "authorization"), fmt.Sprintf("%q", basicHeader(user+":"+password))})
		default:
			parts = append(parts, field{"auth", fmt.Sprintf(`{"basic": %s}`, shuffled(random, []field{
				{"username", quoted(user)}, {"password", quoted(password)},
			}))})
		}
		location := fmt.Sprintf("%q", scheme+"://"+userinfo+written+at+path+pick(random, "", "/"))
		if len(headers)+len(parts) == 0 && random.IntN(2) == 0 {
			return location
		}
		return shuffled(random, append(parts, field{"url", location}, field{"headers", shuffled(random, headers)}))
	}
}

func quoted(text string) string {
	out, _ := json.Marshal(text) // of a string
	return string(out)
}

// randomlySpelled returns a function that writes one definition, each time in another spelling:
// with or without members that have their default, and with any values of the options that ids do
// not cover.
func randomlySpelled(random *rand.Rand, loose bool) func() string {
	source, target := randomSpelling(random, loose), randomSpelling(random, loose)
	continuous, create, filter := random.IntN(2) == 0, random.IntN(2) == 0, random.IntN(4)
	return func() string {
		fields := []field{{"source", source()}, {"target", target()}}
		sometimes := func(name, value string) {
			if random.IntN(2) == 0 {
				fields = append(fields, field{name, value})
			}
		}
		for name, set := range map[string]bool{"continuous": continuous, "create_target": create} {
			if set {
				fields = append(fields, field{name, "true"})
			} else {
				sometimes(name, "false")
			}
		}
		switch filter {
		case 0:
			fields = append(fields, field{"doc_ids", pick(random, `["a", "b"]`, `["b", "a", "a"]`, `["%61", "b"]`)})
		case 1:
			selector := pick(random, `{"a": {"$gt": 1}}`, `{ "a":{"$gt" :1 } }`)
			if loose {
				selector = pick(random, `{"a": {"$gt": 1, "$lt": [{"x": 1, "y": 2}]}, "b": 2}`, `{"b": 2, "a": {"$lt": [{"y": 2, "x": 1}], "$gt": 1}}`)
			}
			fields = append(fields, field{"selector", selector})
		case 2:
			fields = append(fields, field{"filter", `"d/f"`})
			sometimes("query_params", "{}")
		default:
			sometimes("query_params", `{"x": "1"}`) // of no filter
		}
		sometimes("worker_processes", pick(random, "2", "5"))
		sometimes("checkpoint_interval", "1000")
		sometimes("connection_timeout", "9000")
		sometimes("use_checkpoints", "true")
		sometimes("mine", `{"any": "thing"}`)
		return shuffled(random, fields)
	}
}

// Equal replications have equal ids, whatever their spelling.
func TestSpellingDoesNotChangeIDs(t *testing.T) {
	testkit.SkipRace(t)
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	jobIDs, ids := map[string]bool{}, map[string]bool{}
	const n = 1500
	for range n {
		write := randomlySpelled(random, true)
		one, other := write(), write()
		a, b := parse(t, []byte(one)), parse(t, []byte(other))
		require.Equal(t, a.JobID("joe"), b.JobID("joe"), "%s and %s", one, other)
		jobIDs[a.JobID("joe")] = true

		write = randomlySpelled(random, false)
		one, other = write(), write()
		a, b = parse(t, []byte(one)), parse(t, []byte(other))
		require.Equal(t, id(t, a), id(t, b), "%s and %s", one, other)
		require.Equal(t, a.JobID(""), b.JobID(""), "%s and %s", one, other)
		ids[id(t, a)] = true
	}
	require.Greater(t, len(jobIDs), n/2, "they are not all the same")
	require.Greater(t, len(ids), n/2)
}
