package docbody_test

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/docbody"
)

func bulk(t *testing.T, body string) (*docbody.Bulk, error) {
	t.Helper()
	return docbody.ReadBulk(spool(t, body), docbody.Options{})
}

func TestBulk(t *testing.T) {
	t.Parallel()
	const docs = `[{"_id":"a","_rev":"1-x","_attachments":{"f":{"data":"aGVsbG8="}}}, {"_rev":"1-y","v":1} ]`
	for text, newEdits := range map[string]bool{
		`{"docs":` + docs + `}`:                                     true,
		`{"docs":` + docs + `,"new_edits":true}`:                    true,
		`{"docs":` + docs + `,"new_edits":false,"seq":[1,{}]}`:      false,
		` { "new_edits" : false , "docs" : ` + docs + ` } `:         false,
		`{"docs":[{},{},{}],"docs":` + docs + `,"new_edits":false}`: false,
		`{"docs":5,"docs":` + docs + `}`:                            true,
	} {
		b, err := bulk(t, text)
		require.NoError(t, err, text)
		require.Equal(t, newEdits, b.NewEdits, text)
		require.False(t, b.AllOrNothing)
		for range 2 {
			var ids []string
			for doc, err := range b.Documents() {
				require.NoError(t, err)
				ids = append(ids, doc.ID)
				if doc.ID == "a" {
					require.Equal(t, "hello", content(t, doc.Attachments[0]))
				}
			}
			require.Equal(t, []string{"a", ""}, ids)
		}
		for _, err := range b.Documents() {
			require.NoError(t, err)
			break
		}
	}
	b, err := bulk(t, `{"docs":[],"all_or_nothing":true}`)
	require.NoError(t, err)
	require.True(t, b.AllOrNothing)
	for doc, err := range b.Documents() {
		t.Fatal("there is no document", doc, err)
	}
}

func TestBulksThatAreNone(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		code   docbody.Code
		reason string
	}{
		`[]`:                              {docbody.BadRequest, "Request body must be a JSON object"},
		`{}`:                              {docbody.BadRequest, "POST body must include `docs` parameter."},
		`{"Docs":[]}`:                     {docbody.BadRequest, "POST body must include `docs` parameter."},
		`{"docs":{}}`:                     {docbody.BadRequest, "`docs` parameter must be an array."},
		`{"docs":[],"docs":null}`:         {docbody.BadRequest, "`docs` parameter must be an array."},
		`{"docs":[],"new_edits":"false"}`: {docbody.BadRequest, "`new_edits` parameter must be a boolean."},
		`{"docs":[],"new_edits":null}`:    {docbody.BadRequest, "`new_edits` parameter must be a boolean."},
		`{"docs":[{},5]}`:                 {docbody.BadRequest, "Document must be a JSON object"},
		`{"docs":[{}],"new_edits":false}`: {docbody.BadRequest, "When `new_edits: false`, the document needs `_rev` or `_revisions` specified"},
		`{"docs":[{"_nope":1}]}`:          {docbody.DocumentInvalid, "Bad special document member: _nope"},
		`{"docs":[{"_attachments":{"a":{"follows":true}}}]}`:     {docbody.BadRequest, `the attachment "a" cannot follow: the body is not multipart/related`},
		`{"docs":[],"x":"` + strings.Repeat("y", 100_000) + `"}`: {docbody.TooLarge, "the members of the body besides `docs` have more than 100000 bytes"},

		`{"docs":[`:           {docbody.BadRequest, "invalid UTF-8 JSON"},
		`{"docs":[{}]`:        {docbody.BadRequest, "invalid UTF-8 JSON"},
		`{"docs":[{},]}`:      {docbody.BadRequest, "invalid UTF-8 JSON"},
		`{"docs":[{} {}]}`:    {docbody.BadRequest, "invalid UTF-8 JSON"},
		`{"docs":[{}]}}`:      {docbody.BadRequest, "invalid UTF-8 JSON"},
		`{"docs":[],"x":[}}`:  {docbody.BadRequest, "invalid UTF-8 JSON"},
		`{"docs":[],"x":nil}`: {docbody.BadRequest, "invalid UTF-8 JSON"},
		``:                    {docbody.BadRequest, "invalid UTF-8 JSON"},
	} {
		_, err := bulk(t, text)
		refused(t, err, want.code, want.reason)
	}
}

// The file of a large body has no name, and is closed.
func TestSpool(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	var text strings.Builder
	text.WriteString(`{"docs":[`)
	for i := range 50_000 {
		fmt.Fprintf(&text, `{"_id":"%06d","_rev":"1-a","v":"some more text"},`, i)
	}
	text.WriteString(`{"_id":"last","_rev":"1-a"}],"new_edits":false}`)
	s, err := docbody.NewSpool(strings.NewReader(text.String()), docbody.SpoolOptions{Limit: docbody.Limit{Bytes: int64(text.Len())}})
	require.NoError(t, err)
	require.Equal(t, int64(text.Len()), s.Size())
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, files)
	b, err := docbody.ReadBulk(s, docbody.Options{})
	require.NoError(t, err)
	n, last := 0, ""
	for doc, err := range b.Documents() {
		require.NoError(t, err)
		n, last = n+1, doc.ID
	}
	require.Equal(t, 50_001, n)
	require.Equal(t, "last", last)
	require.NoError(t, s.Close())
	for doc, err := range b.Documents() {
		require.Nil(t, doc)
		require.ErrorIs(t, err, os.ErrClosed)
	}

	s, err = docbody.NewSpool(strings.NewReader("12345"), docbody.SpoolOptions{Limit: docbody.Limit{Bytes: math.MaxInt64}})
	require.NoError(t, err)
	require.Equal(t, int64(5), s.Size())
	require.NoError(t, s.Close())
	limit := docbody.Limit{Bytes: int64(text.Len()) - 1, Name: "[a] b"}
	_, err = docbody.NewSpool(strings.NewReader(text.String()), docbody.SpoolOptions{Limit: limit})
	refused(t, err, docbody.TooLarge, fmt.Sprintf("the request body has more than %d bytes, which is the limit ([a] b)", limit.Bytes))
	_, err = docbody.NewSpool(strings.NewReader("12345"), docbody.SpoolOptions{Limit: docbody.Limit{Bytes: 4, Name: "[a] b"}})
	refused(t, err, docbody.TooLarge, "the request body has more than 4 bytes, which is the limit ([a] b)")

	t.Setenv("TMPDIR", dir+"/missing")
	_, err = docbody.NewSpool(strings.NewReader(text.String()), docbody.SpoolOptions{Limit: docbody.Limit{}})
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Documents of a small body are kept, up to a number and without attachments, and yielded as those of another one, which is
// read again.
func TestKeptDocuments(t *testing.T) {
	t.Parallel()
	const text = `{"docs":[{"_id":"x","_attachments":{"f":{"stub":true}}}],"docs":[{"_id":"a","v":1},{"_id":"b"},{"_id":"c"}]}`
	attached := strings.Replace(text, `{"_id":"b"}`, `{"_id":"b","_attachments":{"f":{"stub":true}}}`, 1)
	for name, test := range map[string]struct {
		text  string
		bytes int
		docs  int
		kept  bool
	}{
		"none": {text, 0, 0, false}, "all": {text, len(text), 3, true}, "too large": {text, len(text) - 1, 3, false},
		"too many": {text, len(text), 2, false}, "attachments": {attached, len(attached), 3, false},
	} {
		b, err := docbody.ReadBulk(spool(t, test.text), docbody.Options{KeptBytes: int64(test.bytes), KeptDocuments: test.docs})
		require.NoError(t, err, name)
		require.Equal(t, test.kept, b.Kept(), name)
		var ids []string
		for doc, err := range b.Documents() {
			require.NoError(t, err, name)
			ids = append(ids, doc.ID)
		}
		require.Equal(t, []string{"a", "b", "c"}, ids, name)
		for doc, err := range b.Documents() {
			require.NoError(t, err, name)
			require.Equal(t, "a", doc.ID, name)
			break
		}
	}
}
