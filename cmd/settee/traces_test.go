package main

import (
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"settee/internal/testkit"
)

// traceCollector receives traces as OpenTelemetry's collector does.
type traceCollector struct {
	*httptest.Server
	connections atomic.Int64

	mu       sync.Mutex
	received []*otlp.ResourceSpans
	keys     []string // the header X-Key of each request
}

func newTraceCollector(t *testing.T) *traceCollector {
	c := &traceCollector{}
	c.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		assert.Equal(t, "POST /v1/traces application/x-protobuf", r.Method+" "+r.URL.Path+" "+r.Header.Get("Content-Type"))
		var request collector.ExportTraceServiceRequest
		assert.NoError(t, proto.Unmarshal(body, &request))
		c.mu.Lock()
		defer c.mu.Unlock()
		c.received, c.keys = append(c.received, request.ResourceSpans...), append(c.keys, r.Header.Get("X-Key"))
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	c.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			c.connections.Add(1)
		}
	}
	c.Start()
	t.Cleanup(c.Close)
	return c
}

// span is a span that was received.
type span struct {
	*otlp.Span
	resource map[string]string
}

func valuesOf(attributes []*common.KeyValue) map[string]string {
	values := map[string]string{}
	for _, a := range attributes {
		switch v := a.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			values[a.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			values[a.Key] = fmt.Sprint(v.IntValue)
		case *common.AnyValue_BoolValue:
			values[a.Key] = fmt.Sprint(v.BoolValue)
		}
	}
	return values
}

func (s span) attributes() map[string]string { return valuesOf(s.Attributes) }

// spans returns the spans of a service, by name.
func (c *traceCollector) spans(service string) map[string][]span {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string][]span{}
	for _, r := range c.received {
		resource := valuesOf(r.Resource.Attributes)
		for _, scope := range r.ScopeSpans {
			for _, s := range scope.Spans {
				if resource["service.name"] == service {
					all[s.Name] = append(all[s.Name], span{s, resource})
				}
			}
		}
	}
	return all
}

// serveTraced starts a node that sends traces when it ends, or earlier if many have come.
func (c *traceCollector) serveTraced(t *testing.T, service string, env []string, sets ...string) *process {
	args := []string{"serve", "--store", "mem:", "--set", "chttpd/port=0", "--set", "chttpd_auth/iterations=10"}
	for _, set := range sets {
		args = append(args, "--set", set)
	}
	return begin(t, "settee is running", append([]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL, "OTEL_BSP_SCHEDULE_DELAY=600000", "OTEL_SERVICE_NAME=" + service,
	}, env...), args...)
}

const (
	clientTrace = "0af7651916cd43dd8448eb211c80319c"
	clientSpan  = "b7ad6b7169203331"
)

// A node replicates between two databases of another node. Both send traces.
func TestTraces(t *testing.T) {
	t.Parallel()
	for _, propagated := range []bool{false, true} {
		t.Run(fmt.Sprintf("propagate_trace=%t", propagated), func(t *testing.T) {
			t.Parallel()
			c := newTraceCollector(t)
			peer := c.serveTraced(t, "peer", nil)
			node := c.serveTraced(t, "node", []string{
				"OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test", "OTEL_EXPORTER_OTLP_HEADERS=x-key=of%20settee",
			}, fmt.Sprintf("replicator/propagate_trace=%t", propagated), "replicator/retries_per_request=0")
			peer.ask(http.StatusCreated, http.MethodPut, "first-db", "")
			peer.ask(http.StatusCreated, http.MethodPut, "first-db/one-doc", `{"value":"of-a-document"}`)
			peer.ask(http.StatusCreated, http.MethodPut, "first-db/two-doc", `{"_attachments":{"a.txt":{"content_type":"image/png","data":"YQ=="}}}`)
			peer.ask(http.StatusCreated, http.MethodPut, "first-db/_design/three", `{"filters":{}}`)
			job := replicateTraced(t, node, fmt.Sprintf(
				`{"source":%q,"target":%q,"create_target":true,"selector":{"_id":{"$ne":"of-a-selector"}}}`, peer.url+"first-db", peer.url+"second-db"))
			node.ask(http.StatusNotFound, http.MethodGet, "no-db/no-doc", "")
			node.ask(http.StatusOK, http.MethodGet, "_up", "")
			for _, p := range []*process{node, peer} {
				require.Zero(t, p.end(syscall.SIGTERM), p.logged())
			}
			assert.Contains(t, c.keys, "of settee")
			checkRequests(t, c.spans("node"))
			checkRun(t, c.spans("node"), withoutAdmin(peer.url))
			checkPropagation(t, c.spans("node"), c.spans("peer"), propagated)
			ids := c.spans("node")["replication run"][0].attributes()
			assert.Equal(t, c.spans("node")["POST /_replicate"][0].attributes()["settee.job.id"], ids["settee.job.id"])
			assert.Contains(t, job, `"ok":true`)
			assert.NotEmpty(t, ids["settee.replication.id"])
			for name := range c.spans("node") {
				assert.NotRegexp(t, "-db|-doc|three", name)
			}
			everything := fmt.Sprint(c.received)
			for _, secret := range []string{adminPassword, "of-a-selector", "of-a-document"} {
				assert.NotContains(t, everything, secret)
			}
		})
	}
}

// replicateTraced posts a replication, as part of a client's trace.
func replicateTraced(t *testing.T, node *process, body string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, node.url+"_replicate", strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Traceparent", "00-"+clientTrace+"-"+clientSpan+"-01")
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, "%s", answer)
	return string(answer)
}

func checkRequests(t *testing.T, spans map[string][]span) {
	require.Len(t, spans["POST /_replicate"], 1)
	s := spans["POST /_replicate"][0]
	assert.Equal(t, clientTrace, hex.EncodeToString(s.TraceId))
	assert.Equal(t, clientSpan, hex.EncodeToString(s.ParentSpanId))
	assert.Equal(t, otlp.Span_SPAN_KIND_SERVER, s.Kind)
	for name, value := range map[string]string{
		"http.request.method": "POST", "http.route": "/_replicate", "url.path": "/_replicate", "http.response.status_code": "200",
	} {
		assert.Equal(t, value, s.attributes()[name], name)
	}
	assert.Equal(t, "test", s.resource["deployment.environment.name"])
	assert.NotEmpty(t, s.resource["service.version"])

	require.Len(t, spans["GET /{db}/{doc}"], 1)
	s = spans["GET /{db}/{doc}"][0]
	assert.Equal(t, "/no-db/no-doc", s.attributes()["url.path"])
	assert.Equal(t, "404", s.attributes()["http.response.status_code"])
	assert.Equal(t, otlp.Status_STATUS_CODE_UNSET, s.GetStatus().GetCode())
	assert.Empty(t, spans["GET /_up"])
}

// checkRun checks the traces of a run that copied databases of a peer.
func checkRun(t *testing.T, spans map[string][]span, peer string) {
	require.Len(t, spans["replication run"], 1)
	run := spans["replication run"][0]
	assert.Empty(t, run.ParentSpanId)
	assert.Equal(t, otlp.Status_STATUS_CODE_OK, run.Status.Code)
	for name, value := range map[string]string{
		"settee.replication.source": peer + "first-db/", "settee.replication.target": peer + "second-db/",
		"settee.replication.continuous": "false", "settee.replication.outcome": "completed", "settee.replication.docs_written": "3",
	} {
		assert.Equal(t, value, run.attributes()[name], name)
	}

	for _, name := range []string{"replication feed", "replication batch", "replication checkpoint"} {
		require.NotEmpty(t, spans[name], name)
		for _, s := range spans[name] {
			assert.Empty(t, s.ParentSpanId, name)
			assert.NotEqual(t, run.TraceId, s.TraceId, name)
			require.Len(t, s.Links, 1, name)
			assert.Equal(t, run.SpanId, s.Links[0].SpanId, name)
			assert.Equal(t, run.TraceId, s.Links[0].TraceId, name)
			assert.Equal(t, run.attributes()["settee.job.id"], s.attributes()["settee.job.id"], name)
			assert.Equal(t, run.attributes()["settee.replication.id"], s.attributes()["settee.replication.id"], name)
		}
	}
	for child, parent := range map[string]string{
		"replication start": "replication run", "read changes": "replication batch", "compare revisions": "replication batch",
		"read documents": "replication batch", "read small attachments": "replication batch", "copy single revisions": "replication batch",
		"write documents": "replication batch", "GET /{db}": "replication start", "PUT /{db}": "replication start",
		"POST /{db}/_changes": "replication feed", "POST /{db}/_revs_diff": "compare revisions", "POST /{db}/_bulk_docs": "write documents",
		"GET /{db}/_design/{ddoc}": "copy single revisions", "PUT /{db}/_design/{ddoc}": "copy single revisions",
		"PUT /{db}/_local/{id}": "replication checkpoint",
	} {
		assert.True(t, slices.ContainsFunc(spans[child], func(s span) bool {
			return slices.ContainsFunc(spans[parent], func(p span) bool { return string(p.SpanId) == string(s.ParentSpanId) })
		}), "%s below %s", child, parent)
	}
	s := spans["POST /{db}/_bulk_docs"][0]
	assert.Equal(t, otlp.Span_SPAN_KIND_CLIENT, s.Kind)
	for name, value := range map[string]string{
		"http.request.method": "POST", "server.address": "127.0.0.1", "url.full": peer + "second-db/_bulk_docs", "url.path": "/second-db/_bulk_docs",
		"url.template": "/{db}/_bulk_docs", "http.response.status_code": "201",
	} {
		assert.Equal(t, value, s.attributes()[name], name)
	}
	assert.NotEmpty(t, s.attributes()["server.port"])
}

// checkPropagation checks whether the requests that the peer received are part of the node's traces.
func checkPropagation(t *testing.T, node, peer map[string][]span, propagated bool) {
	require.NotEmpty(t, peer["POST /{db}/_bulk_docs"])
	for _, s := range peer["POST /{db}/_bulk_docs"] {
		within := slices.ContainsFunc(node["POST /{db}/_bulk_docs"], func(p span) bool { return string(p.SpanId) == string(s.ParentSpanId) })
		assert.Equal(t, propagated, within)
		assert.Equal(t, propagated, len(s.ParentSpanId) > 0)
	}
}

// The batches of a continuous run are sent while it goes on. Its own span ends with it.
func TestTracesOfAContinuousRun(t *testing.T) {
	t.Parallel()
	c := newTraceCollector(t)
	node := c.serveTraced(t, "node", []string{"OTEL_BSP_SCHEDULE_DELAY=10"})
	for _, name := range []string{"first", "second"} {
		node.ask(http.StatusCreated, http.MethodPut, name, "")
	}
	node.ask(http.StatusCreated, http.MethodPut, "_replicator/a-doc", fmt.Sprintf(
		`{"source":%q,"target":%q,"continuous":true}`, node.url+"first", node.url+"second"))
	for n := 1; n <= 2; n++ {
		node.ask(http.StatusCreated, http.MethodPut, fmt.Sprintf("first/%d", n), "{}")
		require.Eventually(t, func() bool { return len(c.spans("node")["replication batch"]) >= n }, limit, 10*time.Millisecond)
	}
	require.Empty(t, c.spans("node")["replication run"])
	require.Zero(t, node.end(syscall.SIGTERM), node.logged())
	spans := c.spans("node")
	require.Len(t, spans["replication run"], 1)
	run := spans["replication run"][0]
	for name, value := range map[string]string{
		"settee.replication.database": "_replicator", "settee.replication.doc_id": "a-doc", "settee.replication.continuous": "true",
		"settee.replication.outcome": "stopped", "settee.replication.docs_written": "2",
	} {
		assert.Equal(t, value, run.attributes()[name], name)
	}
	assert.Equal(t, otlp.Status_STATUS_CODE_UNSET, run.GetStatus().GetCode())
	for name, all := range spans {
		for _, s := range all {
			if string(s.TraceId) == string(run.TraceId) {
				assert.Contains(t, []string{"replication run", "replication start", "GET /", "GET /{db}", "GET /{db}/_local/{id}", "POST /_session"}, name)
			}
		}
	}
}

// A node that only accepts requests sends traces, although it refuses all other outbound connections.
func TestTracesOfAFrontend(t *testing.T) {
	t.Parallel()
	c := newTraceCollector(t)
	node := c.serveTraced(t, "node", []string{"COUCHDB_NODE_TYPE_REPLICATION=false"})
	node.ask(http.StatusOK, http.MethodGet, "_all_dbs", "")
	require.Zero(t, node.end(syscall.SIGTERM), node.logged())
	assert.Len(t, c.spans("node")["GET /_all_dbs"], 1)
}

func TestTracesAreOff(t *testing.T) {
	t.Parallel()
	c := newTraceCollector(t)
	for _, off := range []string{"OTEL_SDK_DISABLED=true", "OTEL_TRACES_EXPORTER=none", "OTEL_EXPORTER_OTLP_ENDPOINT="} {
		node := c.serveTraced(t, "node", []string{off})
		node.ask(http.StatusOK, http.MethodGet, "_all_dbs", "")
		require.Zero(t, node.end(syscall.SIGTERM), node.logged())
	}
	assert.Zero(t, c.connections.Load())
}

func TestTracesNeedValidVariables(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(built(t), "serve", "--store", "mem:", "--set", "chttpd/port=0")
	cmd.Env = slices.Concat(os.Environ(), adminEnvironment, []string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"})
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), "OTEL_EXPORTER_OTLP_PROTOCOL=grpc: it must be http/protobuf")
}

// A collector that never answers costs a node at most a few seconds, at its end.
func TestTracesWithoutAnswer(t *testing.T) {
	t.Parallel()
	silent := make(chan struct{})
	c := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-silent }))
	defer c.Close()
	defer close(silent)
	node := begin(t, "settee is running", []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL, "OTEL_EXPORTER_OTLP_TIMEOUT=3600000", "OTEL_BSP_EXPORT_TIMEOUT=3600000",
		"OTEL_BSP_SCHEDULE_DELAY=1", "OTEL_BSP_MAX_QUEUE_SIZE=2", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=1",
	}, "serve", "--store", "mem:", "--set", "chttpd/port=0", "--set", "chttpd_auth/iterations=10")
	for range 20 {
		node.ask(http.StatusOK, http.MethodGet, "_all_dbs", "")
	}
	require.Zero(t, node.end(syscall.SIGTERM), node.logged())
	assert.Contains(t, node.logged(), "the last traces could not be sent in time")
}

// plantedAgain is the environment variable that makes TestPlantedSecretsInTraces run the other test.
const plantedAgain = "SETTEE_TEST_PLANTED"

// TestPlantedSecretsInTraces runs TestPlantedSecrets with traces, and searches these for the secrets.
func TestPlantedSecretsInTraces(t *testing.T) {
	testkit.SkipShort(t)
	t.Parallel()
	if os.Getenv(plantedAgain) != "" {
		t.Skip("it is running")
	}
	c := newTraceCollector(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestPlantedSecrets$/^memkv$", "-test.v")
	cmd.Env = append(os.Environ(), plantedAgain+"=1", "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL, "OTEL_SERVICE_NAME=node")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: TestPlantedSecrets/memkv")
	spans := c.spans("node")
	assert.True(t, slices.ContainsFunc(spans["replication run"], func(s span) bool { return s.Status.GetMessage() != "" }))
	assert.True(t, slices.ContainsFunc(spans["GET /{db}"], func(s span) bool { return s.Kind == otlp.Span_SPAN_KIND_CLIENT }))
	for _, of := range c.received {
		for line := range strings.SplitSeq(prototext.Format(of), "\n") {
			found := slices.ContainsFunc(append(inBase64("SECRET-"), hex.EncodeToString([]byte("SECRET-"))), func(s string) bool { return strings.Contains(line, s) })
			assert.False(t, found || strings.Contains(strings.ToLower(line), "secret-"), line)
		}
	}
}
