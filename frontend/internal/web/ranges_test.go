package web

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRanges(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{
		"":                   "",
		"lines=1-2":          "",
		"bytes=0-":           "", // the whole content
		"bytes=x-2":          "",
		"bytes=1":            "",
		"bytes=1-2":          "bytes 1-2/10",
		"bytes=8-":           "bytes 8-9/10",
		"bytes=-3":           "bytes 7-9/10",
		"bytes=-30":          "bytes 0-9/10",
		"bytes=8-30":         "bytes 8-9/10",
		"bytes=0-0, 2-3":     "bytes 0-0/10,bytes 2-3/10",
		"bytes=1-1,1-1,,1-1": "bytes 1-1/10,bytes 1-1/10,bytes 1-1/10",
		"bytes=0-0,0-0,0-0,0-0,0-0,0-0,0-0,0-0,0-0,0-0": "", // more than nine
	} {
		ranges, err := ParseRanges(header, 10)
		require.NoError(t, err, header)
		var texts []string
		for _, b := range ranges {
			texts = append(texts, b.ContentRange(10))
		}
		assert.Equal(t, want, strings.Join(texts, ","), header)
	}
	for _, header := range []string{"bytes=10-", "bytes=3-2", "bytes=0-0,20-30"} {
		_, err := ParseRanges(header, 10)
		require.ErrorIs(t, err, errRange, header)
	}
	ranges, err := ParseRanges("bytes=2-4", 10)
	require.NoError(t, err)
	part, err := ranges[0].Part(strings.NewReader("0123456789"))
	require.NoError(t, err)
	text, err := io.ReadAll(part)
	require.NoError(t, err)
	assert.Equal(t, "234", string(text))
}

func TestRangeOfAnotherVersion(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Range", "bytes=1-2")
	assert.Equal(t, "bytes=1-2", RangeHeader(r, `"a"`))
	r.Header.Set("If-Range", `"a"`)
	assert.Equal(t, "bytes=1-2", RangeHeader(r, `"a"`))
	assert.Empty(t, RangeHeader(r, `"b"`))
}
