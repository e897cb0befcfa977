package couch

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"settee/pkg/outbound"
	"settee/pkg/redact"
)

// startSpan starts the span of one try of a request, below the span of ctx. If that is not recorded, startSpan returns
// ctx and that span, which then records nothing.
func (d *Database) startSpan(ctx context.Context, r *request, target *url.URL) (context.Context, trace.Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, parent
	}
	kind := template(r.path)
	if r.server {
		kind = "/" + r.path
	}
	host, port, _ := net.SplitHostPort(outbound.HostPort(target))
	attributes := []attribute.KeyValue{
		attribute.String("http.request.method", r.method),
		attribute.String("server.address", d.hidden.Text(host)),
		attribute.String("url.full", d.hidden.Text(shown(target))),
		attribute.String("url.path", d.hidden.Text(target.EscapedPath())),
		attribute.String("url.template", kind),
	}
	if n, err := strconv.Atoi(port); err == nil {
		attributes = append(attributes, attribute.Int("server.port", n))
	}
	if r.sent > 0 {
		attributes = append(attributes, attribute.Int("http.request.resend_count", r.sent))
	}
	return parent.TracerProvider().Tracer("settee/pkg/couch").Start(ctx, r.method+" "+kind,
		trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attributes...))
}

// propagate adds the header traceparent, if Config.PropagateTrace says so and Config.Header has none.
func (d *Database) propagate(ctx context.Context, header http.Header) {
	if d.cfg.PropagateTrace && header.Get("Traceparent") == "" {
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(header))
	}
}

// answeredSpan records the status of an answer.
func answeredSpan(span trace.Span, status int) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.Int("http.response.status_code", status))
	if status >= http.StatusBadRequest {
		span.SetAttributes(attribute.String("error.type", strconv.Itoa(status)))
		span.SetStatus(codes.Error, "")
	}
}

// failSpan records the error of an exchange, with its secrets masked.
func failSpan(span trace.Span, err error, hidden redact.Set) {
	if !span.IsRecording() {
		return
	}
	kind := "_OTHER"
	if failed, ok := errors.AsType[*outbound.ConnectError](err); ok {
		kind, _, _ = strings.Cut(string(failed.Step), " ")
	} else if errors.Is(err, ErrStalled) {
		kind = "timeout"
	}
	span.SetAttributes(attribute.String("error.type", kind))
	span.SetStatus(codes.Error, hidden.Text(err.Error()))
}

// endpoints are the paths below a database that are no document's.
var endpoints = []string{"_all_docs", "_bulk_docs", "_bulk_get", "_changes", "_ensure_full_commit", "_revs_diff"}

// template returns a path below a database without the parts that vary.
func template(path string) string {
	first, rest, deeper := strings.Cut(path, "/")
	_, _, deepest := strings.Cut(rest, "/")
	switch {
	case path == "":
		return "/{db}"
	case path == loginPath:
		return "/" + loginPath
	case first+"/" == localPrefix:
		return "/{db}/_local/{id}"
	case first+"/" == designPrefix && deepest:
		return "/{db}/_design/{ddoc}/{attachment}"
	case first+"/" == designPrefix:
		return "/{db}/_design/{ddoc}"
	case slices.Contains(endpoints, path):
		return "/{db}/" + path
	case deeper:
		return "/{db}/{doc}/{attachment}"
	}
	return "/{db}/{doc}"
}
