package web

import (
	"context"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"settee/pkg/redact"
)

// noSpan records nothing.
var noSpan trace.Span = noop.Span{}

// startSpan starts the span of a request, below the span that its header traceparent names. NameSpan names it. Requests
// that are made every few seconds have none.
func (s *Server) startSpan(r *http.Request) (context.Context, trace.Span) {
	if s.Tracer == nil || isFrequent(r) {
		return r.Context(), noSpan
	}
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	return s.Tracer.Start(ctx, otherMethod, trace.WithSpanKind(trace.SpanKindServer))
}

// otherMethod stands for methods that no path has, in the names of spans.
const otherMethod = "HTTP"

// spanMethod returns the method of a request for the name of its span. Clients cannot add to the number of names.
func spanMethod(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions, "COPY":
		return r.Method
	}
	return otherMethod
}

// describeSpan records a request and its id, as the log has them.
func describeSpan(span trace.Span, r *http.Request, id string) {
	if !span.IsRecording() {
		return
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	method := spanMethod(r)
	span.SetName(method)
	if method == otherMethod {
		method = "_OTHER"
	}
	span.SetAttributes(
		attribute.String("http.request.method", method),
		attribute.String("url.path", Cut(redact.Path(r.URL.Path))),
		attribute.String("url.scheme", scheme),
		attribute.String("settee.request.id", id),
	)
}

// endSpan ends the span of a request that was answered.
func endSpan(span trace.Span, out *answer) {
	if span.IsRecording() && out.status != 0 {
		span.SetAttributes(attribute.Int("http.response.status_code", out.status))
		if out.status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, "")
		}
	}
	span.End()
}

// NameSpan names the span of a request after its method and its route, a template of gorilla/mux. The name has no part
// of the path that varies.
func NameSpan(r *http.Request, route string) {
	span := trace.SpanFromContext(r.Context())
	if !span.IsRecording() {
		return
	}
	route = withoutPatterns(route)
	span.SetName(spanMethod(r) + " " + route)
	span.SetAttributes(attribute.String("http.route", route))
}

// TraceJob records the id of the job that a request has added or joined. The spans of the job's runs have the same one.
func TraceJob(r *http.Request, id string) {
	if span := trace.SpanFromContext(r.Context()); span.IsRecording() {
		span.SetAttributes(attribute.String("settee.job.id", id))
	}
}

// withoutPatterns returns a template without the patterns of its variables: {doc:[^/]+} becomes {doc}.
func withoutPatterns(route string) string {
	var b strings.Builder
	depth, pattern := 0, false
	for _, c := range route {
		switch {
		case c == '{':
			depth++
		case c == '}':
			depth--
			pattern = pattern && depth > 0
		case c == ':' && depth == 1:
			pattern = true
		}
		if !pattern {
			b.WriteRune(c)
		}
	}
	return b.String()
}

// isFrequent reports whether a request is one that monitoring makes every few seconds.
func isFrequent(r *http.Request) bool {
	return r.URL.Path == "/_up" || strings.HasSuffix(r.URL.Path, "/_prometheus")
}
