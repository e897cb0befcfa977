package replicator_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"settee/internal/seeds"
	"settee/internal/testkit"
	"settee/pkg/couch/couchtest"

	"github.com/stretchr/testify/require"
)

var idsSeed = flag.Uint64("ids.seed", 0, "the seed of the documents whose ids are compared with CouchDB's; 0 draws one")

// filterCodes are the texts of filter functions.
var filterCodes = []string{
	"function(doc, req) { return true; }", "  function(doc) { return doc.a; } ", "function(doc) {\n  return true;\n}\n",
	" function(doc) {\n  return 1;\n}  ", "function(doc) { return 'ü'; }\n", "\tfunction(doc) { return 2; }\t",
}

// TestIDsOfCouchDB writes random documents into a CouchDB and compares the ids that it computes.
func TestIDsOfCouchDB(t *testing.T) {
	testkit.SkipRace(t)
	t.Parallel()
	seed := *idsSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("replay it with -ids.seed=%d", seed)
	// The server only has to compute ids and to read filters without a login; it must not run the
	// replications. Twice in each interval it looks for replicator databases whose creation it
	// has missed, which can happen while it starts.
	server := couchtest.StartCouchDB(t, map[string]map[string]string{
		"replicator": {"max_jobs": "1", "interval": "2000", "auth_plugins": "couch_replicator_auth_noop", "cluster_start_period": "1"},
	})
	release := server.Release(t)
	var root struct{ UUID string }
	require.NoError(t, json.Unmarshal(server.Do(t, http.MethodGet, "/", nil, http.StatusOK), &root))

	filters := map[string]string{}
	for i, code := range filterCodes {
		filters[fmt.Sprintf("f%d", i)] = code
	}
	design, err := json.Marshal(map[string]any{"_id": "_design/d", "filters": filters})
	require.NoError(t, err)
	server.Do(t, http.MethodPut, "/filtered", nil, http.StatusCreated)
	server.Do(t, http.MethodPut, "/filtered/_design/d", design, http.StatusCreated)
	server.Do(t, http.MethodPut, "/ids%2F_replicator", nil, http.StatusCreated)

	random := rand.New(rand.NewPCG(seed, 1))
	want := map[string]string{} // ids by document
	docs := map[string]string{}
	for n := range seeds.Rounds(t, 400) {
		g := idGenerator{random, server, fmt.Sprintf("doc%03d", n)}
		doc := g.document()
		r := parse(t, []byte(doc))
		code := ""
		if r.NeedsFilterCode() {
			_, filter, err := r.FilterName()
			require.NoError(t, err)
			code = filters[filter]
		}
		if release.Before352 {
			r.SinceSeq = nil
		}
		id, err := r.ID(root.UUID, code)
		require.NoError(t, err, doc)
		docs[g.name], want[g.name] = doc, id.String()
		server.Do(t, http.MethodPut, "/ids%2F_replicator/"+g.name, []byte(doc), http.StatusCreated)
	}

	for name, got := range computed(t, server, len(want)) {
		require.Equal(t, got, want[name], "%s", docs[name])
	}
}

// computed waits until a CouchDB has computed the ids of count documents, which it does in the
// background, and returns them by document.
func computed(t *testing.T, server *couchtest.CouchDB, count int) map[string]string {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; {
		var listed struct{ Docs []json.RawMessage }
		answer := server.Do(t, http.MethodGet, "/_scheduler/docs/ids%2F_replicator?limit=1000", nil, http.StatusOK)
		require.NoError(t, json.Unmarshal(answer, &listed))
		ids, without := map[string]string{}, ""
		for _, row := range listed.Docs {
			var doc struct {
				DocID string `json:"doc_id"`
				ID    string `json:"id"`
			}
			require.NoError(t, json.Unmarshal(row, &doc))
			if ids[doc.DocID] = doc.ID; doc.ID == "" {
				without = string(row)
			}
		}
		if len(ids) == count && without == "" {
			return ids
		}
		require.True(t, time.Now().Before(deadline), "%d documents; one without an id: %s", len(ids), without)
		time.Sleep(100 * time.Millisecond)
	}
}

// idGenerator writes a replication document. No two have the same name.
type idGenerator struct {
	*rand.Rand
	server *couchtest.CouchDB
	name   string
}

func (g idGenerator) document() string {
	fields := []field{{"target", g.endpoint(fmt.Sprintf("http%s://%s%s%s/%s%s", pick(g.Rand, "", "s"),
		pick(g.Rand, "", "u@", "u:p@", "u%40:p%2F@"), pick(g.Rand, "h.invalid", "H.invalid", "127.0.0.1"),
		pick(g.Rand, "", ":80", ":443", ":1", ":5984", ":6984"), g.name, pick(g.Rand, "", "/", "/b", "%2Fc", "%20d")))}}
	source := "http://source.invalid/" + g.name
	if g.IntN(10) == 0 {
		source = "http://" + g.name + ".invalid" + pick(g.Rand, "", "/", ":81") // the root of a host
	}
	for _, f := range []field{
		{"create_target", "true"}, {"continuous", pick(g.Rand, "true", "false")}, {"winning_revs_only", pick(g.Rand, "true", "false")},
		{"since_seq", pick(g.Rand, `"1-<x>"`, `5`)}, {"use_checkpoints", "false"}, {"checkpoint_interval", "7000"},
		{"worker_processes", "3"}, {"worker_batch_size", "77"}, {"http_connections", "9"}, {"connection_timeout", "8000"},
		{"retries_per_request", "2"}, {"use_bulk_get", "false"}, {"socket_options", `"[{nodelay, true}]"`},
		{"target_proxy", `"http://p:q@proxy.invalid:3128"`}, {"mine", `{"a": [1]}`},
	} {
		if g.IntN(3) == 0 {
			fields = append(fields, f)
		}
	}
	switch g.IntN(6) {
	case 0:
		fields = append(fields, field{"doc_ids", g.list(0, 4, func() string {
			return pick(g.Rand, `"a"`, `"b c"`, `"a%20b"`, `"a+b"`, `"<ü>"`, `"a\/b"`, `"_design/x"`, `"a"`, `"%C3%A9"`)
		})})
	case 1, 2:
		fields = append(fields, field{"selector", g.selector(3)})
	case 3:
		fields = append(fields, field{"filter", fmt.Sprintf(`"d/f%d"`, g.IntN(len(filterCodes)))}, field{"query_params", g.params()})
		source = couchtest.As(g.server.URL+"/filtered", g.server.Username, g.server.Password)
	case 4:
		fields = append(fields, field{"filter", `"_view"`}, field{"query_params", `{"view": "d/v", "b": "2", "a": "1"}`})
	}
	fields = append(fields, field{"source", g.endpoint(source)})
	return shuffled(g.Rand, fields)
}

// endpoint writes a URL in one of the forms of an endpoint.
func (g idGenerator) endpoint(location string) string {
	if g.IntN(2) == 0 {
		return quoted(location)
	}
	var headers, parts []field
	for _, name := range []string{"X-One", "a-two", "Accept", "User-Agent", "Content-Type"} {
		if g.IntN(4) == 0 {
			headers = append(headers, field{name, pick(g.Rand, `"1"`, `"application/json"`, `"a b"`)})
		}
	}
	u, err := url.Parse(location)
	if err == nil && u.User != nil {
		name := u.User.Username()
		password, given := u.User.Password()
		u.User = nil
		switch g.IntN(3) {
		case 0:
			if given {
				headers = append(headers, field{pick(g.Rand, "authorization", "Authorization"), quoted(basicHeader(name + ":" + password))})
				location = u.String()
			}
		case 1:
			if given {
				parts = append(parts, field{"auth", fmt.Sprintf(`{"basic": {"username": %s, "password": %s}}`, quoted(name), quoted(password))})
				location = u.String()
			}
		}
	}
	parts = append(parts, field{"url", quoted(location)})
	if headers != nil || g.IntN(2) == 0 {
		parts = append(parts, field{"headers", shuffled(g.Rand, headers)})
	}
	return shuffled(g.Rand, parts)
}

func (g idGenerator) list(least, most int, element func() string) string {
	elements := make([]string, least+g.IntN(most-least+1))
	for i := range elements {
		elements[i] = element()
	}
	return "[" + strings.Join(elements, ",") + "]"
}

func (g idGenerator) params() string {
	var params []field
	for _, name := range []string{"a", "b", "ü", "<&>"} {
		if g.IntN(2) == 0 {
			params = append(params, field{name, pick(g.Rand, `"1"`, `"x y"`, `"é"`)})
		}
	}
	return shuffled(g.Rand, params)
}

// selector writes a selector with that many levels of combinations.
func (g idGenerator) selector(levels int) string {
	if levels > 0 && g.IntN(3) == 0 {
		switch operator := pick(g.Rand, "$and", "$or", "$nor", "$not"); operator {
		case "$not":
			return fmt.Sprintf(`{"$not":%s}`, g.selector(levels-1))
		default:
			return fmt.Sprintf(`{%q:%s}`, operator, g.list(1, 3, func() string { return g.selector(levels - 1) }))
		}
	}
	var conditions []field
	for _, name := range []string{"a", "b.c", "ü", "n"} {
		if g.IntN(2) == 0 {
			conditions = append(conditions, field{name, g.condition(levels)})
		}
	}
	if len(conditions) == 0 {
		conditions = []field{{"z", g.value(1)}}
	}
	return shuffled(g.Rand, conditions)
}

func (g idGenerator) condition(levels int) string {
	switch g.IntN(8) {
	case 0:
		return g.value(2)
	case 1:
		return fmt.Sprintf(`{%q:%s}`, pick(g.Rand, "$in", "$nin", "$all"), g.list(0, 3, func() string { return g.value(1) }))
	case 2:
		return fmt.Sprintf(`{"$exists":%s,"$size":%d}`, pick(g.Rand, "true", "false"), g.IntN(300))
	case 3:
		return fmt.Sprintf(`{"$mod":[%d,%d]}`, 1+g.IntN(9), g.IntN(9))
	case 4:
		return fmt.Sprintf(`{"$regex":%s,"$type":%s}`, pick(g.Rand, `"^a"`, `"ü+"`), pick(g.Rand, `"string"`, `"number"`))
	case 5:
		if levels > 0 {
			return fmt.Sprintf(`{%q:%s}`, pick(g.Rand, "$elemMatch", "$allMatch"), g.selector(levels-1))
		}
		return `{"$ne":null}`
	case 6:
		return fmt.Sprintf(`{"$not":{%q:%s}}`, pick(g.Rand, "$gt", "$gte", "$lt", "$lte", "$eq", "$ne"), g.value(1))
	default:
		return fmt.Sprintf(`{%q:%s}`, pick(g.Rand, "$gt", "$gte", "$lt", "$lte", "$eq", "$ne"), g.value(2))
	}
}

// value writes a JSON value of that depth.
func (g idGenerator) value(levels int) string {
	if levels > 0 && g.IntN(4) == 0 {
		return g.list(0, 3, func() string { return g.value(levels - 1) })
	}
	return pick(g.Rand, "null", "true", "false", "0", "-1", "255", "256", "2147483648", "18446744073709551616", "1.5", "-0.25",
		"1e3", "1.0E+2", "3.0e-5", `""`, `"x"`, `"é😀"`, `"a\u0000b"`)
}
