package frontend_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch/couchtest"
	"settee/pkg/docstore"
)

// reading is a recorded request that reads, and CouchDB's answer.
type reading struct {
	request *http.Request
	body    string
	answer  answer
}

// readings are the recorded exchanges of some numbers.
func readings(t *testing.T, numbers ...int) map[int]reading {
	t.Helper()
	all := map[int]reading{}
	for _, r := range couchtest.Recordings(t) {
		if !slices.Contains(numbers, r.Number) {
			continue
		}
		request, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(r.Request)))
		require.NoError(t, err)
		sent, err := io.ReadAll(request.Body)
		require.NoError(t, err)
		response, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(r.Response)), request)
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		all[r.Number] = reading{request, string(sent), answer{response.StatusCode, response.Header, string(body)}}
	}
	require.Len(t, all, len(numbers))
	return all
}

// replay sends a recorded request.
func (n *node) replay(r reading) answer {
	n.Helper()
	var headers []string
	for _, name := range []string{"Accept", "Accept-Encoding", "Content-Type", "Range"} {
		if value := r.request.Header.Get(name); value != "" {
			headers = append(headers, name, value)
		}
	}
	return n.do(r.request.Method, r.request.RequestURI, r.body, headers...)
}

// sameStatus requires the recorded status and headers.
func sameStatus(t *testing.T, want, got answer) {
	t.Helper()
	require.Equal(t, want.status, got.status, "%s", got.body)
	names := []string{"Accept-Ranges", "Content-Disposition", "Content-Encoding", "Content-Range", "Content-Security-Policy", "ETag"}
	if !strings.HasPrefix(want.header.Get("Content-Type"), "multipart/") {
		names = append(names, "Content-Type", "Cache-Control")
	}
	for _, name := range names {
		require.Equal(t, want.header.Get(name), got.header.Get(name), name)
	}
}

// sameJSON requires a recorded body, but for how numbers are written. Attachments have an
// order of their own.
func sameJSON(t *testing.T, want, got string) {
	t.Helper()
	require.JSONEq(t, want, got)
	expected, actual := keys(t, want), keys(t, got)
	if strings.Contains(want, "_attachments") {
		slices.Sort(expected)
		slices.Sort(actual)
	}
	require.Equal(t, expected, actual)
	require.Equal(t, strings.HasSuffix(want, "\n"), strings.HasSuffix(got, "\n"))
}

// part is a part of a multipart body. One that is multipart itself has parts.
type part struct {
	header map[string][]string
	body   string
	parts  []part
}

// parts reads a multipart body, and requires that its boundary is of the form that CouchDB
// uses.
func parts(t *testing.T, contentType, body string) []part {
	t.Helper()
	mediaType, params, err := mime.ParseMediaType(contentType)
	require.NoError(t, err, "%s", contentType)
	require.Regexp(t, "^multipart/", mediaType)
	require.Regexp(t, "^(--)?[0-9a-f]{32}$", params["boundary"])
	// Only the last boundary of CouchDB's has no line end.
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

// sameParts requires the same parts, in any order: which leaf comes first is not said.
func sameParts(t *testing.T, want, got []part) {
	t.Helper()
	require.Len(t, got, len(want))
	less := func(a, b part) int { return strings.Compare(sortKey(a), sortKey(b)) }
	slices.SortFunc(want, less)
	slices.SortFunc(got, less)
	for i := range want {
		require.Equal(t, want[i].header, got[i].header)
		if strings.HasPrefix(want[i].body, "{") {
			sameJSON(t, want[i].body, got[i].body)
		} else {
			require.Equal(t, want[i].body, got[i].body)
		}
		sameParts(t, want[i].parts, got[i].parts)
	}
}

// sortKey has nothing that depends on the order of attachments.
func sortKey(p part) string {
	before, _, _ := strings.Cut(p.body, "_attachments")
	return before + strings.Join(p.header["Content-Disposition"], "") + strings.Join(p.header["X-Doc-Id"], "")
}

// put writes revisions as they are written by a replication: the id of the last of path is
// that of the first revision.
func (n *node) replicated(db *docstore.Database, id, body string, deleted bool, path []string, attachments ...docstore.EditAttachment) {
	n.Helper()
	results, err := db.Write(n.Context(), []docstore.Edit{{
		ID: id, Body: []byte(body), Deleted: deleted, Pos: int64(len(path)), Path: path, Attachments: attachments,
	}}, docstore.WriteOptions{Replicated: true})
	require.NoError(n, err)
	require.NoError(n, results[0].Err)
}

func (n *node) upload(db *docstore.Database, id, name, mediaType string, content io.Reader, opts docstore.UploadOptions) docstore.EditAttachment {
	n.Helper()
	upload, err := db.Upload(n.Context(), id, content, opts)
	require.NoError(n, err)
	return docstore.EditAttachment{Name: name, Type: mediaType, Upload: upload}
}

// binary is the content of bin.dat in the recordings.
func binary(size int) []byte {
	content := make([]byte, size)
	for i := range content {
		content[i] = byte(i)
	}
	return content
}

// wireDatabase makes the database that was recorded. gzipped is hello.txt as it was stored.
func (n *node) wireDatabase(gzipped string) *docstore.Database {
	n.Helper()
	db, err := n.docs.Create(n.Context(), "wire")
	require.NoError(n, err)
	const first = "7a7e4b29f3af401e69b6f86e4c26b727"
	n.replicated(db, "num", `{"int":12345678901234567890,"float":1.0,"exp":1e3,"neg0":-0.0,"small":1.5e-7,"z":1,"a":2,"uni":"ü\u00fc\ud83d\ude00 \/ \u2028"}`,
		false, []string{"5b81110a7f591d501d47a11d32c9002d"})
	n.replicated(db, "gone", `{}`, true, []string{"d9b15b235a7d0afdfe6058d5fb8afbd1", first})
	n.replicated(db, "plain", `{"v":2}`, false, []string{"d0df861eb528e79690cd2ff3c4d394f3", first})
	n.replicated(db, "plain", `{"v":"conflict"}`, false, []string{"ffffffffffffffffffffffffffffffff", first})
	n.replicated(db, "a/b c+dü", `{"v":1}`, false, []string{first})
	n.replicated(db, "att", `{"v":1}`, false, []string{"13e0ab7e3efab0226d4b0d7381ad71ed"},
		n.upload(db, "att", "hello.txt", "text/plain", strings.NewReader(gzipped), docstore.UploadOptions{Encoding: "gzip", DecodedLength: 12000}),
		n.upload(db, "att", "bin.dat", "application/octet-stream", bytes.NewReader(binary(2048)), docstore.UploadOptions{}))
	n.replicated(db, "att2", `{}`, false, []string{"afd08f25edc29b4805e4bae1fd16ec6a"})
	n.replicated(db, "_design/f", `{"filters":{"t":"function(doc,req){ return doc.v == req.query.v; }","boom":"function(doc){ throw({forbidden:\"no\"}) }"},
		"views":{"v":{"map":"function(doc){ if(doc.v) emit(doc._id) }"}}}`, false, []string{"b8f6007542264494595a0f73da8b9cf3"})
	n.replicated(db, "prev", `{}`, false, []string{first})
	_, err = db.PutLocal(n.Context(), "_local/0123abcd", "", []byte(`{"session_id":"s2"}`))
	require.NoError(n, err)
	return db
}

func TestRecordedReads(t *testing.T) {
	t.Parallel()
	n := start(t)
	all := readings(t, 14, 17, 18, 21, 22, 24, 25, 26, 27, 28, 29, 30, 31, 44, 56, 59, 61)
	n.wireDatabase(all[21].answer.body)

	for _, number := range []int{14, 17, 18, 26, 27, 29, 30, 44} {
		got := n.replay(all[number])
		sameStatus(t, all[number].answer, got)
		sameJSON(t, all[number].answer.body, got.body)
	}
	for _, number := range []int{21, 22} {
		got := n.replay(all[number])
		sameStatus(t, all[number].answer, got)
		require.Equal(t, all[number].answer.body, got.body)
		require.Equal(t, all[number].answer.header.Get("Content-Length"), got.header.Get("Content-Length"))
	}
	for _, number := range []int{24, 25, 28, 31} {
		want, got := all[number].answer, n.replay(all[number])
		sameStatus(t, want, got)
		if number != 31 { // where a number and a string have other bytes
			require.Len(t, got.body, len(want.body))
		}
		sameParts(t, parts(t, want.header.Get("Content-Type"), want.body), parts(t, got.header.Get("Content-Type"), got.body))
	}
	require.Equal(t, all[28].answer.header.Get("Content-Length"), n.replay(all[28]).header.Get("Content-Length"))

	missing := all[56]
	missing.request.RequestURI = "/wire/_local/other"
	sameStatus(t, missing.answer, n.replay(missing))
	got := n.replay(all[59])
	require.Equal(t, all[59].answer.body, got.body)
	require.Regexp(t, `^"[0-9A-Z]{20,25}"$`, got.header.Get("ETag"))

	listed := n.replay(all[61])
	sameStatus(t, all[61].answer, listed)
	require.Equal(t, all[61].answer.body, listed.body)
}

// decode reads JSON whose members have any types.
func decode(t *testing.T, text string) (value any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &value), "%s", text)
	return value
}
