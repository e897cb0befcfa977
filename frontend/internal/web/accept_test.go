package web

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAccepts(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]bool{
		"": true, "*/*": true, "application/json": true, "APPLICATION/JSON; q=0.1": true, "application/*": true, "text/html, */*;q=0.1": true,
		"text/html": false, "application/json;q=0": false, "*/*;q=0": false, "application/*;q=0, */*": false, "application/json;q=x": true,
	} {
		assert.Equal(t, want, Accepts(request(http.MethodGet, "Accept", header), "application/json"), header)
	}
}

func TestAcceptsEncoding(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]bool{
		"": false, "gzip": true, "deflate, gzip;q=0.5": true, "gzip;q=0": false, "*": true, "*;q=0": false, "gzip;q=0, *": false, "identity": false,
	} {
		assert.Equal(t, want, AcceptsEncoding(request(http.MethodGet, "Accept-Encoding", header), "gzip"), header)
	}
}

func TestEntityTags(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]bool{
		"": false, `"a"`: true, `W/"a"`: true, `"b", "a"`: true, `"b"`: false, `a`: false, `"b" "a"`: true,
	} {
		r, w := request(http.MethodGet, "If-None-Match", header), httptest.NewRecorder()
		assert.Equal(t, want, NotModified(w, r, `"a"`), header)
		assert.Equal(t, `"a"`, w.Header().Get("ETag"))
		if want {
			assert.Equal(t, http.StatusNotModified, w.Code, header)
		}
	}
}
