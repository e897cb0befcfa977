package databases_test

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
)

// replicated writes a revision as a replication does. The last id of path belongs to the first
// revision.
func (n *node) replicated(db *docstore.Database, id, body string, deleted bool, path []string, attachments ...docstore.EditAttachment) {
	n.Helper()
	edit := webtest.Leaf(id, deleted, body, int64(len(path)), path...)
	edit.Attachments = attachments
	webtest.Replicate(n, db, edit)
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
	db := n.NewDatabase("wire")
	const first = "7a7e4b29f3af401e69b6f86e4c26b727"
	n.replicated(db, "num", `{"int":12345678901234567890,"float":1.0,"exp":1e3,"neg0":-0.0,"small":1.5e-7,"z":1,"a":2,"uni":"ü\u00fc\ud83d\ude00 \/ \u2028"}`,
		false, []string{"5b81110a7f591d501d47a11d32c9002d"})
	n.replicated(db, "gone", `{}`, true, []string{"d9b15b235a7d0afdfe6058d5fb8afbd1", first})
	n.replicated(db, "plain", `{"v":2}`, false, []string{"d0df861eb528e79690cd2ff3c4d394f3", first})
	n.replicated(db, "plain", `{"v":"conflict"}`, false, []string{"ffffffffffffffffffffffffffffffff", first})
	n.replicated(db, "a/b c+dü", `{"v":1}`, false, []string{first})
	n.replicated(db, "att", `{"v":1}`, false, []string{"13e0ab7e3efab0226d4b0d7381ad71ed"},
		n.upload(db, "att", "hello.txt", "text/plain", strings.NewReader(gzipped), docstore.UploadOptions{Encoding: "gzip", DecodedLength: new(int64(12000))}),
		n.upload(db, "att", "bin.dat", "application/octet-stream", bytes.NewReader(binary(2048)), docstore.UploadOptions{}))
	n.replicated(db, "att2", `{}`, false, []string{"afd08f25edc29b4805e4bae1fd16ec6a"})
	n.replicated(db, "_design/f", `{"filters":{"t":"function(doc,req){ return doc.v == req.query.v; }","boom":"function(doc){ throw({forbidden:\"no\"}) }"},
		"views":{"v":{"map":"function(doc){ if(doc.v) emit(doc._id) }"}}}`, false, []string{"b8f6007542264494595a0f73da8b9cf3"})
	n.replicated(db, "prev", `{}`, false, []string{first})
	_, err := db.PutLocal(n.Context(), "_local/0123abcd", "", docjson.Must(`{"session_id":"s2"}`))
	require.NoError(n, err)
	return db
}

func TestRecordedReads(t *testing.T) {
	t.Parallel()
	n := start(t)
	all := map[int]webtest.Exchange{}
	for _, number := range []int{14, 17, 18, 21, 22, 24, 25, 26, 27, 28, 29, 30, 31, 44, 56, 59, 61} {
		all[number] = webtest.Recorded(t, number)
	}
	n.wireDatabase(all[21].Answer.Body)

	for _, number := range []int{14, 17, 18, 26, 27, 29, 30, 44} {
		n.RequireSame(all[number], n.Send(all[number]), webtest.SameJSON)
	}
	for _, number := range []int{21, 22} {
		got := n.Send(all[number])
		n.RequireSame(all[number], got, webtest.SameText)
		require.Equal(t, all[number].Answer.Header.Get("Content-Length"), got.Header.Get("Content-Length"))
	}
	for _, number := range []int{24, 25, 28, 31} {
		got := n.Send(all[number])
		n.RequireSame(all[number], got, webtest.SameJSON)
		if number != 31 { // in which a number and a string are written in another way
			require.Len(t, got.Body, len(all[number].Answer.Body))
		}
	}
	require.Equal(t, all[28].Answer.Header.Get("Content-Length"), n.Send(all[28]).Header.Get("Content-Length"))

	missing := all[56]
	missing.Target = "/wire/_local/other"
	n.RequireSame(missing, n.Send(missing), webtest.SameHead)
	got := n.Send(all[59])
	n.RequireSame(all[59], got, webtest.SameHead)
	require.Equal(t, all[59].Answer.Body, got.Body)
	require.Regexp(t, `^"[0-9A-Z]{20,25}"$`, got.Header.Get("ETag"))

	n.RequireSame(all[61], n.Send(all[61]), webtest.SameText)
}

// decode parses a JSON text.
func decode(t *testing.T, text string) (value any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &value), "%s", text)
	return value
}
