package frontend_test

import (
	"encoding/json"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch/couchtest"
)

// exchange is what was recorded with a real CouchDB 3.5.
type exchange struct {
	method, target, body string
	header               http.Header
	answer               answer
}

func recorded(t *testing.T, number int) exchange {
	t.Helper()
	r := couchtest.Recorded(t, number)
	return exchange{r.Method, r.Target, r.RequestBody, r.RequestHeader, answer{r.Method + " " + r.Target, r.Status, r.Header, r.Body}}
}

// send sends a recorded request again, as the administrator.
func (n *node) send(e exchange) answer {
	n.Helper()
	var headers []string
	for _, name := range []string{"Accept", "Accept-Encoding", "Content-Type", "Range"} {
		if value := e.header.Get(name); value != "" {
			headers = append(headers, name, value)
		}
	}
	return n.do(e.method, e.target, e.body, headers...)
}

// sameness is how much of an answer has to be as it was recorded.
type sameness int

const (
	sameHead sameness = iota // its status and headers
	sameKeys                 // and the keys of its body, in their order: the values are others
	sameJSON                 // and the values, or the parts of a multipart body in any order
	sameText                 // and each byte of the body
)

// requireSame requires an answer to be as it was recorded, except for what it says about the server.
func (n *node) requireSame(e exchange, got answer, how sameness) {
	n.Helper()
	want := e.answer
	require.Equal(n, want.status, got.status, "%s: %s", got.request, got.body)
	names := []string{"Accept-Ranges", "Content-Disposition", "Content-Encoding", "Content-Range", "Content-Security-Policy"}
	kind := want.header.Get("Content-Type")
	if !strings.HasPrefix(kind, "multipart/") { // which have a boundary
		names = append(names, "Content-Type", "Cache-Control")
		if how != sameJSON && want.header.Get("Content-Length") != "" && got.body != "" { // otherwise it may be streamed
			require.Equal(n, strconv.Itoa(len(got.body)), got.header.Get("Content-Length"))
		}
	}
	for _, name := range names {
		require.Equal(n, want.header.Get(name), got.header.Get(name), "%s: %s", got.request, name)
	}
	location := strings.Replace(want.header.Get("Location"), "couch.example:5984", n.address, 1)
	require.Equal(n, location, got.header.Get("Location"))
	require.Regexp(n, "^[0-9a-f]{10}$", got.header.Get("X-Couch-Request-ID"))
	require.Regexp(n, "^[0-9]+$", got.header.Get("X-CouchDB-Body-Time"))
	require.Equal(n, "settee", got.header.Get("Server"))
	tag := want.header.Get("ETag")
	switch {
	case how >= sameJSON:
		require.Equal(n, tag, got.header.Get("ETag"))
	case how == sameKeys && strings.Contains(tag, "-"): // of a revision, which is a hash over other things
		require.Equal(n, `"`+got.rev(n.T)+`"`, got.header.Get("ETag"))
	default:
		require.Equal(n, tag == "", got.header.Get("ETag") == "")
	}
	switch {
	case how == sameText:
		require.Equal(n, want.body, got.body)
	case how == sameJSON && strings.HasPrefix(kind, "multipart/"):
		equalParts(n.T, parts(n.T, kind, want.body), parts(n.T, got.header.Get("Content-Type"), got.body))
	case how == sameJSON:
		equalJSON(n.T, want.body, got.body)
	case how == sameKeys:
		require.Equal(n, keys(n.T, want.body), keys(n.T, got.body))
	}
}

// keys lists the keys of a JSON text in their order, as paths.
func keys(t *testing.T, text string) []string {
	t.Helper()
	var out []string
	decoder := json.NewDecoder(strings.NewReader(text))
	var value func(path string)
	value = func(path string) {
		token, err := decoder.Token()
		require.NoError(t, err)
		delim, _ := token.(json.Delim)
		for (delim == '{' || delim == '[') && decoder.More() {
			inner := path + "[]"
			if delim == '{' {
				key, err := decoder.Token()
				require.NoError(t, err)
				inner = path + "." + key.(string)
				out = append(out, inner)
			}
			value(inner)
		}
		if delim != 0 {
			_, err = decoder.Token()
			require.NoError(t, err)
		}
	}
	value("")
	return out
}

// equalJSON requires the same values and the same order of keys. Numbers may be written in another way.
func equalJSON(t *testing.T, want, got string) {
	t.Helper()
	require.JSONEq(t, want, got)
	require.Equal(t, keys(t, want), keys(t, got))
	require.Equal(t, strings.HasSuffix(want, "\n"), strings.HasSuffix(got, "\n"))
}

// part is a part of a multipart body. One that is multipart itself has parts.
type part struct {
	header map[string][]string
	body   string
	parts  []part
}

// parts reads a multipart body, and requires that its boundary has the form that CouchDB uses.
func parts(t *testing.T, contentType, body string) []part {
	t.Helper()
	mediaType, params, err := mime.ParseMediaType(contentType)
	require.NoError(t, err, "%s", contentType)
	require.Regexp(t, "^multipart/", mediaType)
	require.Regexp(t, "^(--)?[0-9a-f]{32}$", params["boundary"])
	// CouchDB writes no line end after the last boundary.
	reader := multipart.NewReader(strings.NewReader(body+"\r\n"), params["boundary"])
	var all []part
	for {
		raw, err := reader.NextRawPart()
		if err == io.EOF {
			return all
		}
		require.NoError(t, err)
		text, err := io.ReadAll(raw)
		require.NoError(t, err)
		p := part{header: raw.Header, body: string(text)}
		if inner := raw.Header.Get("Content-Type"); strings.HasPrefix(inner, "multipart/") {
			p.parts, p.body = parts(t, inner, p.body), ""
			raw.Header.Del("Content-Type")
		}
		all = append(all, p)
	}
}

// equalParts requires the same parts in any order, because the order of leaves is not defined.
func equalParts(t *testing.T, want, got []part) {
	t.Helper()
	require.Len(t, got, len(want))
	less := func(a, b part) int { return strings.Compare(sortKey(a), sortKey(b)) }
	slices.SortFunc(want, less)
	slices.SortFunc(got, less)
	for i := range want {
		require.Equal(t, want[i].header, got[i].header)
		if strings.HasPrefix(want[i].body, "{") {
			equalJSON(t, want[i].body, got[i].body)
		} else {
			require.Equal(t, want[i].body, got[i].body)
		}
		equalParts(t, want[i].parts, got[i].parts)
	}
}

// sortKey has nothing that depends on the order of attachments.
func sortKey(p part) string {
	before, _, _ := strings.Cut(p.body, "_attachments")
	return before + strings.Join(p.header["Content-Disposition"], "") + strings.Join(p.header["X-Doc-Id"], "")
}
