package couch

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestTracesThatAreOffCostNothing is not parallel, because it counts the allocations of the process.
func TestTracesThatAreOffCostNothing(t *testing.T) {
	d, r, target, ctx, header := &Database{}, &request{method: http.MethodPost, path: "_revs_diff"}, &url.URL{}, t.Context(), http.Header{}
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		ctx, span := d.startSpan(ctx, r, target)
		d.propagate(ctx, header)
		answeredSpan(span, http.StatusInternalServerError)
		failSpan(span, ErrStalled, d.hidden)
		span.End()
	}))
	assert.Empty(t, header)
}

func TestTemplate(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"":                          "/{db}",
		"_session":                  "/_session",
		"_changes":                  "/{db}/_changes",
		"_not_known":                "/{db}/{doc}",
		docPath("a"):                "/{db}/{doc}",
		docPath("a/b"):              "/{db}/{doc}",
		docPath("a") + "/file":      "/{db}/{doc}/{attachment}",
		docPath("_design/a"):        "/{db}/_design/{ddoc}",
		docPath("_design/a") + "/f": "/{db}/_design/{ddoc}/{attachment}",
		docPath("_local/a"):         "/{db}/_local/{id}",
	} {
		assert.Equal(t, want, template(path), path)
	}
}
