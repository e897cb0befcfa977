package web

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestTracesThatAreOffCostNothing is not parallel, because it counts the allocations of the process.
func TestTracesThatAreOffCostNothing(t *testing.T) {
	s, out, r := &Server{}, &answer{status: http.StatusInternalServerError}, httptest.NewRequest(http.MethodGet, "/db/doc", nil)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		ctx, span := s.startSpan(r)
		_ = ctx
		describeSpan(span, r, "id")
		TraceJob(r, "job")
		endSpan(span, out)
	}))
}

func TestWithoutPatterns(t *testing.T) {
	t.Parallel()
	for route, want := range map[string]string{
		"/":         "/",
		"/{db}/_up": "/{db}/_up",
		"/{db}/{doc:(?:_(?:design|local)/)?[^/]+}/{attachment:.+}": "/{db}/{doc}/{attachment}",
		"/{db}/{function:_(?:a{1,2}|b)(?:/.*)?}/x:y":               "/{db}/{function}/x:y",
	} {
		assert.Equal(t, want, withoutPatterns(route))
	}
}
