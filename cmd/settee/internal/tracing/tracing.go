// Package tracing sends OpenTelemetry traces to a collector, if the usual environment variables ask for it.
//
// Traces are on if OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set, or OTEL_TRACES_EXPORTER is
// otlp. OTEL_SDK_DISABLED=true and OTEL_TRACES_EXPORTER=none switch them off. The variables mean what the OpenTelemetry
// specification says, except that the only protocol is http/protobuf, and that a value that is not valid is an error.
//
// Ended spans wait in a bounded queue, and one goroutine sends them. If the queue is full, because the collector is slow
// or does not answer, spans are dropped. Whatever uses a tracer never waits.
//
// The connections to the collector are made by collectorClient. On nodes without the role replication they are the only
// ones besides those to the store.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// flushTime bounds the sending of the last spans in Close.
const flushTime = 3 * time.Second

// defaultCollector is the collector if no variable names one.
const defaultCollector = "http://localhost:4318"

// Options are the options of [Open].
type Options struct {
	Version string // of settee
	Host    string // the name of this node
	Log     zerolog.Logger
}

// Traces makes tracers whose spans are sent to a collector. nil makes none.
type Traces struct {
	provider *sdk.TracerProvider
	hangUp   func() // closes idle connections
	log      zerolog.Logger
}

// Open returns Traces as the environment says, or nil if it does not ask for any. An error names the variable.
func Open(ctx context.Context, opts Options) (*Traces, error) {
	env := environment(os.Getenv)
	if on, err := env.on(); err != nil || !on {
		return nil, err
	}
	if err := env.check(); err != nil {
		return nil, err
	}
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "settee"), attribute.String("service.version", opts.Version),
			attribute.String("host.name", opts.Host)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	client, err := env.collectorClient()
	if err != nil {
		return nil, err
	}
	target, err := env.target()
	if err != nil {
		return nil, fmt.Errorf("%sENDPOINT: %w", exporterPrefix, err)
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithHTTPClient(client), otlptracehttp.WithEndpointURL(target))
	if err != nil {
		return nil, fmt.Errorf("sending traces: %w", err)
	}
	otel.SetErrorHandler(&complaints{log: opts.Log, secrets: env.secrets()})
	opts.Log.Info().Msg("traces are sent to a collector")
	return &Traces{
		provider: sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about)),
		hangUp:   client.CloseIdleConnections,
		log:      opts.Log,
	}, nil
}

// Tracer returns the tracer of a part of the program, or nil.
func (t *Traces) Tracer(part string) trace.Tracer {
	if t == nil {
		return nil
	}
	return t.provider.Tracer(part)
}

// Close sends the spans that have ended. It gives up when ctx ends, and after flushTime.
func (t *Traces) Close(ctx context.Context) {
	if t == nil {
		return
	}
	defer t.hangUp()
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	if err := t.provider.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
		t.log.Warn().Msg("the last traces could not be sent in time")
	}
}
