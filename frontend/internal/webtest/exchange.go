package webtest

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

// Exchange is what was recorded with a real CouchDB 3.5.
type Exchange struct {
	Method, Target, Body string
	Header               http.Header
	Answer               Answer
}

// Recorded returns the recorded exchange with a number.
func Recorded(t *testing.T, number int) Exchange {
	t.Helper()
	r := couchtest.Recorded(t, number)
	return Exchange{r.Method, r.Target, r.RequestBody, r.RequestHeader, Answer{r.Method + " " + r.Target, r.Status, r.Header, r.Body}}
}

// Send sends a recorded request again, as the administrator.
func (n *Node) Send(e Exchange) Answer {
	n.Helper()
	var headers []string
	for _, name := range []string{"Accept", "Accept-Encoding", "Content-Type", "Range"} {
		if value := e.Header.Get(name); value != "" {
			headers = append(headers, name, value)
		}
	}
	return n.Do(e.Method, e.Target, e.Body, headers...)
}

// Sameness is how much of an answer has to be as it was recorded.
type Sameness int

// How much of an answer is compared.
const (
	SameHead Sameness = iota // its status and headers
	SameKeys                 // and the keys of its body, in their order: the values are others
	SameJSON                 // and the values, or the parts of a multipart body in any order
	SameText                 // and each byte of the body
)

// RequireSame requires an answer to be as it was recorded, except for what it says about the server.
func (n *Node) RequireSame(e Exchange, got Answer, how Sameness) {
	n.Helper()
	want := e.Answer
	require.Equal(n, want.Status, got.Status, "%s: %s", got.Request, got.Body)
	names := []string{"Accept-Ranges", "Content-Disposition", "Content-Encoding", "Content-Range", "Content-Security-Policy"}
	kind := want.Header.Get("Content-Type")
	if !strings.HasPrefix(kind, "multipart/") { // which have a boundary
		names = append(names, "Content-Type", "Cache-Control")
		if how != SameJSON && want.Header.Get("Content-Length") != "" && got.Body != "" { // otherwise it may be streamed
			require.Equal(n, strconv.Itoa(len(got.Body)), got.Header.Get("Content-Length"))
		}
	}
	for _, name := range names {
		require.Equal(n, want.Header.Get(name), got.Header.Get(name), "%s: %s", got.Request, name)
	}
	location := strings.Replace(want.Header.Get("Location"), "couch.example:5984", n.Address, 1)
	require.Equal(n, location, got.Header.Get("Location"))
	require.Regexp(n, "^[0-9a-f]{10}$", got.Header.Get("X-Couch-Request-ID"))
	require.Regexp(n, "^[0-9]+$", got.Header.Get("X-CouchDB-Body-Time"))
	require.Equal(n, "settee", got.Header.Get("Server"))
	tag := want.Header.Get("ETag")
	switch {
	case how >= SameJSON:
		require.Equal(n, tag, got.Header.Get("ETag"))
	case how == SameKeys && strings.Contains(tag, "-"): // of a revision, which is a hash over other things
		require.Equal(n, `"`+got.Rev(n.T)+`"`, got.Header.Get("ETag"))
	default:
		require.Equal(n, tag == "", got.Header.Get("ETag") == "")
	}
	switch {
	case how == SameText:
		require.Equal(n, want.Body, got.Body)
	case how == SameJSON && strings.HasPrefix(kind, "multipart/"):
		EqualParts(n.T, Parts(n.T, kind, want.Body), Parts(n.T, got.Header.Get("Content-Type"), got.Body))
	case how == SameJSON:
		EqualJSON(n.T, want.Body, got.Body)
	case how == SameKeys:
		require.Equal(n, Keys(n.T, want.Body), Keys(n.T, got.Body))
	}
}

// Keys lists the keys of a JSON text in their order, as paths.
func Keys(t *testing.T, text string) []string {
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

// EqualJSON requires the same values and the same order of keys. Numbers may be written in another way.
func EqualJSON(t *testing.T, want, got string) {
	t.Helper()
	require.JSONEq(t, want, got)
	require.Equal(t, Keys(t, want), Keys(t, got))
	require.Equal(t, strings.HasSuffix(want, "\n"), strings.HasSuffix(got, "\n"))
}

// Part is a part of a multipart body. One that is multipart itself has parts.
type Part struct {
	Header map[string][]string
	Body   string
	Parts  []Part
}

// Parts reads a multipart body, and requires that its boundary has the form that CouchDB uses.
func Parts(t *testing.T, contentType, body string) []Part {
	t.Helper()
	mediaType, params, err := mime.ParseMediaType(contentType)
	require.NoError(t, err, "%s", contentType)
	require.Regexp(t, "^multipart/", mediaType)
	require.Regexp(t, "^(--)?[0-9a-f]{32}$", params["boundary"])
	// CouchDB writes no line end after the last boundary.
	reader := multipart.NewReader(strings.NewReader(body+"\r\n"), params["boundary"])
	var all []Part
	for {
		raw, err := reader.NextRawPart()
		if err == io.EOF {
			return all
		}
		require.NoError(t, err)
		text, err := io.ReadAll(raw)
		require.NoError(t, err)
		p := Part{Header: raw.Header, Body: string(text)}
		if inner := raw.Header.Get("Content-Type"); strings.HasPrefix(inner, "multipart/") {
			p.Parts, p.Body = Parts(t, inner, p.Body), ""
			raw.Header.Del("Content-Type")
		}
		all = append(all, p)
	}
}

// EqualParts requires the same parts in any order, because the order of leaves is not defined.
func EqualParts(t *testing.T, want, got []Part) {
	t.Helper()
	require.Len(t, got, len(want))
	less := func(a, b Part) int { return strings.Compare(sortKey(a), sortKey(b)) }
	slices.SortFunc(want, less)
	slices.SortFunc(got, less)
	for i := range want {
		require.Equal(t, want[i].Header, got[i].Header)
		if strings.HasPrefix(want[i].Body, "{") {
			EqualJSON(t, want[i].Body, got[i].Body)
		} else {
			require.Equal(t, want[i].Body, got[i].Body)
		}
		EqualParts(t, want[i].Parts, got[i].Parts)
	}
}

// sortKey has nothing that depends on the order of attachments.
func sortKey(p Part) string {
	before, _, _ := strings.Cut(p.Body, "_attachments")
	return before + strings.Join(p.Header["Content-Disposition"], "") + strings.Join(p.Header["X-Doc-Id"], "")
}
