package replicator_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"

	"settee/internal/testkit"
	"settee/pkg/sockopt"
	"settee/replicator"

	"github.com/stretchr/testify/require"
)

// maybe returns one of the values, or nil.
func maybe[T any](random *rand.Rand, values ...T) *T {
	if i := random.IntN(len(values) + 1); i < len(values) {
		return &values[i]
	}
	return nil
}

func oneOf[T any](random *rand.Rand, values ...T) T {
	return values[random.IntN(len(values))]
}

// randomReplication returns a replication as parsing returns it.
func randomReplication(random *rand.Rand) *replicator.Replication {
	one, ten := 1, 10
	flag := func() bool { return random.IntN(2) == 0 }
	r := &replicator.Replication{
		Source: randomSide(random), Target: randomSide(random),
		CreateTarget:       flag(),
		CreateTargetParams: oneOf(random, nil, json.RawMessage(`{}`), json.RawMessage(`{"q":8,"n":"3","partitioned":true}`)),
		Continuous:         flag(),
		SinceSeq:           oneOf(random, nil, json.RawMessage(`"5-x"`), json.RawMessage(`0`), json.RawMessage(`[1,{"a":null}]`)),
		WinningRevsOnly:    flag(),
		UseCheckpoints:     maybe(random, true, false),
		CheckpointInterval: maybe(random, one, ten),
		UseBulkGet:         maybe(random, true, false),
		WorkerProcesses:    maybe(random, one, replicator.MaxWorkerProcesses),
		WorkerBatchSize:    maybe(random, one, replicator.MaxWorkerBatchSize),
		HTTPConnections:    maybe(random, one, replicator.MaxHTTPConnections),
		ConnectionTimeout:  maybe(random, one, ten),
		RetriesPerRequest:  maybe(random, 0, replicator.MaxRetries),
		SocketOptions:      maybe(random, sockopt.Options{}, sockopt.Options{KeepAlive: new(true), SendBuffer: new(9)}),
		UserCtx:            maybe(random, replicator.UserCtx{Roles: []string{}}, replicator.UserCtx{Name: new("joe"), Roles: []string{"a", "_admin"}}),
		Owner:              maybe(random, "joe", "", "ü\x00\u2028"),
	}
	switch random.IntN(5) {
	case 0:
		r.DocIDs = oneOf(random, []string{}, []string{"", "%", "+", "a b", "a%20b", "ü"})
	case 1:
		r.Selector = oneOf(random, json.RawMessage(`{}`), json.RawMessage(`{"b":{"$gt":1.50},"a":[1e3,-0.0,"x"]}`))
	case 2:
		r.Filter = oneOf(random, "d/f", "d/f/g", "_design")
	case 3:
		r.Filter, r.QueryParams = oneOf(random, "d/f", "_view"), json.RawMessage(`{"view":"a/b","x":["y"]}`)
	}
	return r
}

func randomSide(random *rand.Rand) replicator.Endpoint {
	e := replicator.Endpoint{
		URL: oneOf(random, "http", "https") + "://" + oneOf(random, "h", "H.example", "[::1]") + oneOf(random, "", ":80", ":6984") +
			oneOf(random, "/db/", "/a%2Fb/c/", "/~u/(db)/"),
		Proxy: oneOf(random, "", "http://p", "socks5://u%40:p%3A@[::1]:1080"),
	}
	for _, name := range []string{"Accept", "Cookie", "X-A", "x-b"} { // in the order of ids
		if random.IntN(3) == 0 {
			e.Headers = append(e.Headers, replicator.Header{Name: name, Value: oneOf(random, "", "<v>", "ü\t")})
		}
	}
	if random.IntN(2) == 0 {
		e.Username, e.Password = oneOf(random, "u", "u@h", "%41", "ü"), oneOf(random, "", "p:w", "%", "p/?#@")
	}
	return e
}

// render writes a replication as a document in a random spelling.
func render(t *testing.T, random *rand.Rand, r *replicator.Replication) []byte {
	t.Helper()
	doc := map[string]any{"mine": map[string]any{"source": 5}}
	stored := storedForm(t, r)
	members := map[string]json.RawMessage{}
	require.NoError(t, json.Unmarshal(stored, &members))
	for name, value := range members {
		doc[name] = value
	}
	for _, name := range []string{"create_target", "continuous", "winning_revs_only"} {
		if _, given := doc[name]; !given && random.IntN(2) == 0 {
			doc[name] = false
		}
	}
	for _, name := range []string{"worker_processes", "http_connections", "retries_per_request"} {
		if raw, given := doc[name]; given && random.IntN(2) == 0 {
			doc[name] = fmt.Sprintf("%s", raw)
		}
	}
	if r.DocIDs != nil {
		doc["doc_ids"] = renderIDs(random, r.DocIDs)
	}
	if r.SocketOptions != nil {
		doc["socket_options"] = "[ ]"
		if r.SocketOptions.KeepAlive != nil {
			doc["socket_options"] = "[{keepalive,true}, {priority, -1}, { sndbuf , 9 }]"
		}
	}
	doc["source"], doc["target"] = renderSide(random, r.Source), renderSide(random, r.Target)
	switch {
	case r.Source.Proxy == r.Target.Proxy && random.IntN(2) == 0:
		doc["proxy"] = r.Source.Proxy
	default:
		doc["source_proxy"], doc["target_proxy"] = r.Source.Proxy, r.Target.Proxy
	}
	fields := make([]field, 0, len(doc))
	for _, name := range slices.Sorted(maps.Keys(doc)) {
		value, err := json.Marshal(doc[name])
		require.NoError(t, err)
		fields = append(fields, field{name, string(value)})
	}
	return []byte(shuffled(random, fields))
}

// renderIDs writes document ids encoded, shuffled, and some of them twice.
func renderIDs(random *rand.Rand, ids []string) []string {
	written := []string{}
	for _, id := range ids {
		for range 1 + random.IntN(2) {
			written = append(written, oneOf(random, url.QueryEscape(id), url.PathEscape(strings.ReplaceAll(id, "+", "\x00"))))
		}
	}
	for i := range written {
		written[i] = strings.ReplaceAll(written[i], "%00", "%2B")
	}
	random.Shuffle(len(written), func(i, j int) { written[i], written[j] = written[j], written[i] })
	return written
}

// renderSide writes an endpoint with its credentials in one of the places that may hold them.
func renderSide(random *rand.Rand, e replicator.Endpoint) any {
	at := e.URL
	if random.IntN(2) == 0 {
		at = strings.TrimSuffix(at, "/")
	}
	if len(e.Headers) == 0 && !e.HasCredentials() && random.IntN(2) == 0 {
		return at
	}
	side := map[string]any{"url": at, "other": "x"}
	headers := map[string]string{}
	for _, h := range e.Headers {
		headers[h.Name] = h.Value
	}
	if e.HasCredentials() {
		const wrong = "wrong:credentials"
		switch random.IntN(3) {
		case 0:
			headers["Authorization"] = "Basic " + base64.StdEncoding.EncodeToString([]byte(e.Username+":"+e.Password))
		case 1:
			side["auth"] = map[string]any{"basic": map[string]string{"username": e.Username, "password": e.Password}, "other": 1}
			side["url"] = strings.Replace(at, "://", "://"+oneOf(random, "", wrong+"@"), 1)
		case 2:
			side["auth"] = map[string]any{"basic": map[string]string{"username": e.Username, "password": e.Password}}
			headers["authorization"] = "basic " + base64.StdEncoding.EncodeToString([]byte(wrong))
		}
	}
	if len(headers) > 0 || random.IntN(2) == 0 {
		side["headers"] = headers
	}
	return side
}

// Parsing a rendered replication returns the replication, with the same ids.
func TestParsingUndoesRendering(t *testing.T) {
	testkit.SkipRace(t)
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	for range 1000 {
		r := randomReplication(random)
		one, other := render(t, random, r), render(t, random, r)
		a, b := parse(t, one), parse(t, other)
		a.Doubtful, b.Doubtful = nil, nil // these are about the spelling
		require.Equal(t, r, a, "%s", one)
		require.Equal(t, r, b, "%s", other)
		require.True(t, a.Equal(b))
		require.Equal(t, id(t, a), id(t, b))
		require.Equal(t, a.JobID("joe"), b.JobID("joe"))

		request, err := replicator.ParseRequest(one, replicator.ParseOptions{})
		require.NoError(t, err, "%s", one)
		a.UserCtx, a.Owner, request.Replication.Doubtful = nil, nil, nil
		require.Equal(t, a, request.Replication)
	}
}

// Equal replications have equal job ids.
func TestEqualReplicationsHaveEqualJobIDs(t *testing.T) {
	testkit.SkipRace(t)
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 8))
	equal := 0
	for range 1000 {
		a := randomReplication(random)
		b := *a
		switch random.IntN(5) {
		case 0:
			b.Source.URL = strings.Replace(strings.ToUpper(a.Source.URL[:12]), "HTTP", "http", 1) + a.Source.URL[12:]
		case 1:
			b.Source.Headers = slices.Clone(a.Source.Headers)
			slices.Reverse(b.Source.Headers)
		case 2:
			b.Target.WrittenUsername = a.Target.Username + "%"
		case 3:
			b.Target.Username += "x"
		case 4:
			b = *randomReplication(random)
		}
		if a.Equal(&b) {
			equal++
			require.Equal(t, a.JobID("joe"), b.JobID("joe"), "%v and %v", a, b)
		}
		require.Equal(t, a.Equal(&b), b.Equal(a))
	}
	require.Greater(t, equal, 300)
	require.Less(t, equal, 950)
}
