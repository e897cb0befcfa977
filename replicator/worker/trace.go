package worker

import (
	"context"
	"errors"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"settee/pkg/couch"
)

// traces makes the spans of a run. The package comment lists them.
type traces struct {
	tracer trace.Tracer // nil: none
	whole  trace.Span   // of the run
	// about describes the run in each of its traces. begin adds the replication id.
	about []attribute.KeyValue
}

// noSpan records nothing.
var noSpan trace.Span = noop.Span{}

// beginTrace starts the span of the run.
func (r *run) beginTrace(ctx context.Context, tracer trace.Tracer, job *Job) {
	if r.whole = noSpan; tracer == nil {
		return
	}
	r.tracer, r.about = tracer, slices.Clip(job.Attributes)
	_, r.whole = tracer.Start(ctx, "replication run", trace.WithNewRoot(), trace.WithAttributes(append(r.about,
		attribute.String("settee.replication.source", r.secrets.Text(r.source.uri)),
		attribute.String("settee.replication.target", r.secrets.Text(r.target.uri)),
		attribute.Bool("settee.replication.continuous", r.rep.Continuous))...))
}

// identified adds the replication id to the spans that are not yet ended.
func (t *traces) identified(id string) {
	if t.tracer != nil {
		name := attribute.String("settee.replication.id", id)
		t.about = append(t.about, name)
		t.whole.SetAttributes(name)
	}
}

// endTrace ends the span of a run that ended with err.
func (r *run) endTrace(ctx context.Context, result *Result, err error) {
	if r.tracer == nil {
		return
	}
	outcome := "failed"
	switch {
	case err == nil && result.Parked:
		outcome = "parked"
		r.whole.SetStatus(codes.Ok, "")
	case err == nil:
		outcome = "completed"
		r.whole.SetStatus(codes.Ok, "")
	case errors.Is(err, ErrStopped):
		outcome = "stopped"
	case errors.Is(err, ErrIDChanged):
		outcome = "filter changed"
	case r.ended != nil || ctx.Err() != nil:
		outcome = "abandoned"
	default:
		r.whole.SetStatus(codes.Error, r.secrets.Text(err.Error()))
	}
	r.whole.SetAttributes(
		attribute.String("settee.replication.outcome", outcome),
		attribute.Int64("settee.replication.docs_read", result.RunStats.DocsRead),
		attribute.Int64("settee.replication.docs_written", result.RunStats.DocsWritten),
		attribute.Int64("settee.replication.doc_write_failures", result.RunStats.DocWriteFailures),
	)
	r.whole.End()
}

// first starts the span of what a run does before the first change.
func (r *run) first(ctx context.Context) (context.Context, trace.Span) {
	if r.tracer == nil {
		return ctx, noSpan
	}
	return r.tracer.Start(trace.ContextWithSpan(ctx, r.whole), "replication start")
}

// root starts the first span of a trace, which is linked to the run's span.
func (r *run) root(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	if r.tracer == nil {
		return ctx, noSpan
	}
	return r.tracer.Start(ctx, name, append(options, trace.WithNewRoot(), trace.WithAttributes(r.about...),
		trace.WithLinks(trace.Link{SpanContext: r.whole.SpanContext()}))...)
}

// rootOfBatch starts the span of a batch. It begins with the batch's first row. A batch without rows has none.
func (r *run) rootOfBatch(ctx context.Context, b *batch) (context.Context, trace.Span) {
	if r.tracer == nil || len(b.rows) == 0 {
		return ctx, noSpan
	}
	ctx, span := r.root(ctx, "replication batch", trace.WithTimestamp(b.began), trace.WithAttributes(
		attribute.Int("settee.batch.rows", len(b.rows)), attribute.Bool("settee.batch.live", b.live)))
	if span.IsRecording() {
		_, reading := r.tracer.Start(ctx, "read changes", trace.WithTimestamp(b.began))
		reading.End()
	}
	return ctx, span
}

// step starts a span below the span of ctx, if that is recorded, for something that is done to so many revisions.
func (r *run) step(ctx context.Context, name string, revisions int) (context.Context, trace.Span) {
	if r.tracer == nil || !trace.SpanFromContext(ctx).IsRecording() {
		return ctx, noSpan
	}
	return r.tracer.Start(ctx, name, trace.WithAttributes(attribute.Int("settee.revisions", revisions)))
}

// endSpan ends a span. A run that is asked to stop has not failed.
func (r *run) endSpan(span trace.Span, err error) {
	if err != nil && span.IsRecording() && !errors.Is(err, ErrStopped) && !errors.Is(err, errAbandoned) {
		span.SetStatus(codes.Error, r.secrets.Text(err.Error()))
	}
	span.End()
}

// withSpanOf returns ctx with the span of other, if that is recorded.
func withSpanOf(ctx, other context.Context) context.Context {
	if span := trace.SpanFromContext(other); span.IsRecording() {
		return trace.ContextWithSpan(ctx, span)
	}
	return ctx
}

// revisions returns the number of revisions in rows.
func revisions(rows []couch.Row) (n int) {
	for _, row := range rows {
		n += len(row.Revs)
	}
	return n
}
