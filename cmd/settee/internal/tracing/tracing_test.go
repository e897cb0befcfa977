package tracing

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// environ returns an environment.
func environ(variables ...string) environment {
	values := map[string]string{}
	for _, variable := range variables {
		name, value, _ := strings.Cut(variable, "=")
		values[name] = value
	}
	return func(name string) string { return values[name] }
}

func TestOn(t *testing.T) {
	t.Parallel()
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318"
	for _, c := range []struct {
		env  environment
		want bool
	}{
		{environ(), false},
		{environ("OTEL_SERVICE_NAME=x"), false},
		{environ(endpoint), true},
		{environ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://localhost:4318/x"), true},
		{environ("OTEL_TRACES_EXPORTER=otlp"), true},
		{environ("OTEL_TRACES_EXPORTER=none", endpoint), false},
		{environ("OTEL_SDK_DISABLED=TRUE", endpoint), false},
		{environ("OTEL_SDK_DISABLED=false", endpoint), true},
	} {
		on, err := c.env.on()
		require.NoError(t, err)
		assert.Equal(t, c.want, on)
	}
}

// Not parallel, because it changes the environment.
func TestOff(t *testing.T) {
	for _, variable := range os.Environ() {
		if name, value, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, value) // restores it
			require.NoError(t, os.Unsetenv(name))
		}
	}
	traces, err := Open(t.Context(), Options{})
	require.NoError(t, err)
	require.Nil(t, traces)
	assert.Nil(t, traces.Tracer("part"))
	traces.Close(t.Context())
	goleak.VerifyNone(t)
}

func TestInvalid(t *testing.T) {
	t.Parallel()
	for _, variable := range []string{
		"OTEL_SDK_DISABLED=yes", "OTEL_TRACES_EXPORTER=console", "OTEL_TRACES_EXPORTER=otlp,none",
		"OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/json",
		"OTEL_EXPORTER_OTLP_ENDPOINT=localhost:4318", "OTEL_EXPORTER_OTLP_ENDPOINT=http://", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=grpc://localhost",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://u:secret@localhost:4318",
		"OTEL_EXPORTER_OTLP_HEADERS=secret", "OTEL_EXPORTER_OTLP_TRACES_HEADERS=a=%zzsecret", "OTEL_RESOURCE_ATTRIBUTES=a",
		"OTEL_EXPORTER_OTLP_TIMEOUT=10s", "OTEL_EXPORTER_OTLP_COMPRESSION=zstd",
		"OTEL_BSP_MAX_QUEUE_SIZE=-1", "OTEL_BSP_SCHEDULE_DELAY=a", "OTEL_SPAN_LINK_COUNT_LIMIT=a",
		"OTEL_TRACES_SAMPLER=sometimes", "OTEL_EXPORTER_OTLP_CERTIFICATE=/nowhere/ca.pem", "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY=/nowhere/key.pem",
	} {
		env := environ(variable)
		_, err := env.on()
		if err == nil {
			err = env.check()
		}
		if err == nil {
			_, err = env.collectorClient()
		}
		name, _, _ := strings.Cut(variable, "=")
		require.ErrorContains(t, err, name)
		assert.NotContains(t, err.Error(), "secret")
	}
	for _, arg := range []string{"1.5", "-1", "NaN", "a"} {
		require.ErrorContains(t, environ("OTEL_TRACES_SAMPLER=traceidratio", "OTEL_TRACES_SAMPLER_ARG="+arg).check(), "OTEL_TRACES_SAMPLER_ARG")
	}
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte("nothing"), 0o600))
	for _, name := range []string{"CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"} {
		_, err := environ("OTEL_EXPORTER_OTLP_" + name + "=" + file).collectorClient()
		assert.ErrorContains(t, err, "OTEL_EXPORTER_OTLP_"+name)
	}
}

func TestValid(t *testing.T) {
	t.Parallel()
	env := environ("OTEL_EXPORTER_OTLP_ENDPOINT= https://collector.example.org/base ", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc",
		"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf", "OTEL_EXPORTER_OTLP_HEADERS=authorization=Basic%20c2VjcmV0,a=b",
		"OTEL_RESOURCE_ATTRIBUTES=a=b,c=d%2C", "OTEL_EXPORTER_OTLP_COMPRESSION=gzip", "OTEL_TRACES_SAMPLER=ParentBased_TraceIDRatio",
		"OTEL_TRACES_SAMPLER_ARG=0.25", "OTEL_EXPORTER_OTLP_TIMEOUT=2500", "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT=-1")
	require.NoError(t, env.check())
	client, err := env.collectorClient()
	require.NoError(t, err)
	assert.Equal(t, 2500*time.Millisecond, client.Timeout)
	assert.NotContains(t, env.secrets().Text("the collector said Basic c2VjcmV0"), "c2VjcmV0")
}

func TestTarget(t *testing.T) {
	t.Parallel()
	for endpoints, want := range map[string]string{
		"":                                       "http://localhost:4318/v1/traces",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://a:1": "http://a:1/v1/traces",
		"OTEL_EXPORTER_OTLP_ENDPOINT=https://a/b/ OTEL_EXPORTER_OTLP_INSECURE=true":         "https://a/b/v1/traces",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://a OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=https://b": "https://b",
	} {
		target, err := environ(strings.Fields(endpoints)...).target()
		require.NoError(t, err)
		assert.Equal(t, want, target)
	}
}

// A node without the role replication disables the default resolver. Not parallel, because this test does so, too.
func TestCollectorIsLookedUp(t *testing.T) {
	usual := net.DefaultResolver
	defer func() { net.DefaultResolver = usual }()
	refused := errors.New("refused by the default resolver")
	net.DefaultResolver = &net.Resolver{PreferGo: true, StrictErrors: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, refused
	}}
	client, err := environ().collectorClient()
	require.NoError(t, err)
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://collector.invalid/v1/traces", nil)
	require.NoError(t, err)
	answer, err := client.Do(request)
	if err == nil {
		_ = answer.Body.Close()
	}
	require.Error(t, err) // whatever the system's resolver says
	assert.NotContains(t, err.Error(), refused.Error())
}

func TestComplaints(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log testkit.Journal
		c := &complaints{log: zerolog.New(&log), secrets: environ("OTEL_EXPORTER_OTLP_HEADERS=key=the-secret").secrets()}
		for range 1000 {
			c.Handle(errors.New("failed with the-secret" + strings.Repeat(".", 4<<10)))
		}
		time.Sleep(complainEvery)
		c.Handle(errors.New("again"))
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		require.Len(t, lines, 2)
		assert.Contains(t, lines[1], `"more":999`)
		assert.NotContains(t, log.String(), "the-secret")
		assert.Less(t, len(lines[0]), 2*maxComplaint)
	})
}
