package docbody_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/docbody"
	"settee/internal/costtest"
	"settee/pkg/docjson"
)

func spool(t testing.TB, body string) *docbody.Spool {
	t.Helper()
	s, err := docbody.NewSpool(strings.NewReader(body), docbody.SpoolOptions{Limit: docbody.Limit{}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func read(t testing.TB, body string) (*docbody.Document, error) {
	t.Helper()
	return docbody.ReadDocument(spool(t, body), docbody.Options{})
}

func content(t testing.TB, a docbody.Attachment) string {
	t.Helper()
	text, err := io.ReadAll(a.Open())
	require.NoError(t, err)
	require.Len(t, text, int(a.Length))
	return string(text)
}

// refused requires an error for the client.
func refused(t testing.TB, err error, code docbody.Code, reason string) {
	t.Helper()
	var bad *docbody.Error
	require.ErrorAs(t, err, &bad)
	require.Equal(t, code, bad.Code)
	require.Equal(t, reason, bad.Reason)
}

func TestDocument(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text string
		want docbody.Document
	}{
		"empty":     {` { } `, docbody.Document{Body: docjson.Must(`{}`)}},
		"body only": {`{"a" : [1 , {"_b":"\"}"}] ,"c":1e3,"d":-0.0}`, docbody.Document{Body: docjson.Must(`{"a":[1 , {"_b":"\"}"}],"c":1e3,"d":-0.0}`)}},
		"all members": {
			`{"_id":"x","a":1,"_rev":"2-b","_deleted":true,"b":2,"_revisions":{"ids":["b","a"],"start":2},"_local_seq":5}`,
			docbody.Document{
				ID: "x", Rev: "2-b", Deleted: true, Body: docjson.Must(`{"a":1,"b":2}`),
				Revisions: &docbody.Revisions{Start: 2, IDs: []string{"b", "a"}},
			},
		},
		"what CouchDB adds": {
			`{"_revs_info":[{}],"_conflicts":["1-a"],"_deleted_conflicts":[],"_local_seq":"1-x"}`, docbody.Document{Body: docjson.Must(`{}`)},
		},
		"_revisions counts": {
			`{"_revisions":{"start":2,"ids":["b"]},"_rev":"1-x"}`,
			docbody.Document{Rev: "2-b", Body: docjson.Must(`{}`), Revisions: &docbody.Revisions{Start: 2, IDs: []string{"b"}}},
		},
		"_revisions without revisions": {`{"_revisions":{"start":0,"ids":[]},"_rev":"1-x"}`, docbody.Document{Rev: "1-x", Body: docjson.Must(`{}`)}},
		"the last member counts":       {`{"_id":"x","_id":"y","a":1,"a":2}`, docbody.Document{ID: "y", Body: docjson.Must(`{"a":1,"a":2}`)}},
		"escaped names":                {`{"\u005fid":"x","\u0061":1}`, docbody.Document{ID: "x", Body: docjson.Must(`{"\u0061":1}`)}},
		"ids":                          {`{"_id":"_design/\u00fc\ud83d\ude00"}`, docbody.Document{ID: "_design/ü😀", Body: docjson.Must(`{}`)}},
		"local":                        {`{"_id":"_local/x","_rev":"0-1"}`, docbody.Document{ID: "_local/x", Rev: "0-1", Body: docjson.Must(`{}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := read(t, test.text)
			require.NoError(t, err)
			require.Equal(t, test.want, *got)
		})
	}
}

func TestBodyMember(t *testing.T) {
	t.Parallel()
	few := docbody.Options{MaxAttachments: 2}
	_, err := docbody.ReadDocument(spool(t, `{"_attachments":{"a":{"stub":true},"b":{"stub":true}}}`), few)
	require.NoError(t, err)
	_, err = docbody.ReadDocument(spool(t, `{"_attachments":{"a":{"stub":true},"b":{"stub":true},"c":{"data":""}}}`), few)
	var many *docbody.Error
	require.ErrorAs(t, err, &many)
	require.Equal(t, docbody.DocumentTooLarge, many.Code)
	require.Equal(t, "the document has more than 2 attachments, which is the limit", many.Reason)
	got, err := read(t, `{"_replication_state":"failed","b":2}`)
	require.NoError(t, err)
	require.Equal(t, `{"_replication_state":"failed","b":2}`, string(got.Body.Bytes()))
	_, err = read(t, `{"_a":1}`)
	refused(t, err, docbody.DocumentInvalid, "Bad special document member: _a")
}

func TestRevID(t *testing.T) {
	t.Parallel()
	opts := docbody.Options{RevID: func(id string) (string, error) {
		if id == "bad" {
			return "", errors.New("bad")
		}
		return strings.ToLower(id), nil
	}}
	for text, want := range map[string]string{
		`{"_rev":"1-"}`: "1-", `{"_rev":"+01-A-B"}`: "1-a-b", `{"_revisions":{"start":2,"ids":["A","B"]},"_rev":"1-X"}`: "2-a",
	} {
		doc, err := docbody.ReadDocument(spool(t, text), opts)
		require.NoError(t, err)
		require.Equal(t, want, doc.Rev)
	}
	_, err := docbody.ReadDocument(spool(t, `{"_rev":"1-bad"}`), opts)
	refused(t, err, docbody.BadRequest, "Invalid rev format")
	_, err = docbody.ReadDocument(spool(t, `{"_revisions":{"start":2,"ids":["a","bad"]}}`), opts)
	refused(t, err, docbody.DocumentInvalid, "RevId isn't a valid hexadecimal")
}

func TestDocumentsThatAreNone(t *testing.T) {
	t.Parallel()
	const notJSON = "invalid UTF-8 JSON"
	for text, want := range map[string]struct {
		code   docbody.Code
		reason string
	}{
		`[]`:   {docbody.BadRequest, "Document must be a JSON object"},
		`null`: {docbody.BadRequest, "Document must be a JSON object"},

		`{"_id":5}`:           {docbody.DocumentID, "Document id must be a string"},
		`{"_id":null}`:        {docbody.DocumentID, "Document id must be a string"},
		`{"_id":""}`:          {docbody.DocumentID, "Document id must not be empty"},
		`{"_id":"_x"}`:        {docbody.DocumentID, "Only reserved document ids may start with underscore."},
		`{"_id":"_design/"}`:  {docbody.DocumentID, "Illegal document id `_design/`"},
		`{"_id":"_local/"}`:   {docbody.DocumentID, "Illegal document id `_local/`"},
		`{"_rev":5}`:          {docbody.BadRequest, "Invalid rev format"},
		`{"_rev":""}`:         {docbody.BadRequest, "Invalid rev format"},
		`{"_rev":"x-1"}`:      {docbody.BadRequest, "Invalid rev format"},
		`{"_deleted":"true"}`: {docbody.DocumentInvalid, "Bad special document member: _deleted must be true or false"},
		`{"_deleted":null}`:   {docbody.DocumentInvalid, "Bad special document member: _deleted must be true or false"},
		`{"_nope":1}`:         {docbody.DocumentInvalid, "Bad special document member: _nope"},
		`{"_ID":"x"}`:         {docbody.DocumentInvalid, "Bad special document member: _ID"},
		`{"_revisions":[]}`:   {docbody.DocumentInvalid, "Bad special document member: _revisions must be an object with `start` and `ids`"},
		`{"_revisions":null}`: {docbody.DocumentInvalid, "Bad special document member: _revisions must be an object with `start` and `ids`"},
		`{"_revisions":{"start":"1","ids":["a"]}}`: {docbody.DocumentInvalid, "_revisions.start isn't an integer."},
		`{"_revisions":{"Start":1,"ids":["a"]}}`:   {docbody.DocumentInvalid, "_revisions.start isn't an integer."},
		`{"_revisions":{"start":1.5,"ids":["a"]}}`: {docbody.DocumentInvalid, "_revisions.start isn't an integer."},
		`{"_revisions":{"start":1,"ids":"a"}}`:     {docbody.DocumentInvalid, "_revisions.ids isn't a array."},
		`{"_revisions":{"start":1}}`:               {docbody.DocumentInvalid, "_revisions.ids isn't a array."},
		`{"_revisions":{"start":1,"ids":[null]}}`:  {docbody.DocumentInvalid, "RevId isn't a string"},
		`{"_attachments":[]}`: {
			docbody.DocumentInvalid, "Bad special document member: _attachments must be an object of objects",
		},
		`{"_attachments":{"a":1}}`:             {docbody.DocumentInvalid, `the attachment "a" must be an object`},
		`{"_attachments":{"_a":{"data":""}}}`:  {docbody.BadRequest, "Attachment name '_a' starts with prohibited character '_'"},
		`{"_attachments":{"a":{}}}`:            {docbody.BadRequest, "Invalid attachment data for a"},
		`{"_attachments":{"a":{"data":5}}}`:    {docbody.BadRequest, "Invalid attachment data for a"},
		`{"_attachments":{"a":{"data":null}}}`: {docbody.BadRequest, "Invalid attachment data for a"},
		`{"_attachments":{"a":{"stub":1}}}`:    {docbody.DocumentInvalid, "`stub` of the attachment \"a\" must be true or false"},
		`{"_attachments":{"a":{"stub":true,"revpos":-1}}}`: {
			docbody.DocumentInvalid, "`revpos` of the attachment \"a\" must be a whole number of at least 0",
		},
		`{"_attachments":{"a":{"stub":true,"content_type":1}}}`: {
			docbody.DocumentInvalid, "`content_type` of the attachment \"a\" must be a string",
		},
		`{"_attachments":{"a":{"follows":true}}}`: {
			docbody.BadRequest, `the attachment "a" cannot follow: the body is not multipart/related`,
		},
		`{"_attachments":{"a":{"follows":true,"encoding":"br"}}}`: {
			docbody.DocumentInvalid, "`encoding` of the attachment \"a\" must be gzip or identity",
		},

		"": {docbody.BadRequest, notJSON}, "{": {docbody.BadRequest, notJSON}, `{"a"}`: {docbody.BadRequest, notJSON},
		`{"a":}`: {docbody.BadRequest, notJSON}, `{"a":1,}`: {docbody.BadRequest, notJSON}, `{,}`: {docbody.BadRequest, notJSON},
		`{"a":1 "b":2}`: {docbody.BadRequest, notJSON}, `{"a":1}}`: {docbody.BadRequest, notJSON}, `{"a":1}x`: {docbody.BadRequest, notJSON},
		`{"a":[}]}`: {docbody.BadRequest, notJSON}, `{"a":01}`: {docbody.BadRequest, notJSON}, `{"a":nul}`: {docbody.BadRequest, notJSON},
		`{a:1}`: {docbody.BadRequest, notJSON}, `{"a":"` + "\x01" + `"}`: {docbody.BadRequest, notJSON}, "{\"a\":\"\xff\"}": {docbody.BadRequest, notJSON},
		"{\"\xff\":1}": {docbody.BadRequest, notJSON}, `{"a":"\x"}`: {docbody.BadRequest, notJSON}, `{"a":"\u00g0"}`: {docbody.BadRequest, notJSON},
		`{"_id":"\ud800"}`: {docbody.BadRequest, notJSON}, `{"a":"\udc00"}`: {docbody.BadRequest, notJSON}, `{"a":"\ud800\u0061"}`: {docbody.BadRequest, notJSON},
		`{"_id":"x" 5}`: {docbody.BadRequest, notJSON}, `{"_local_seq":[}`: {docbody.BadRequest, notJSON}, `{"a":1,"_local_seq":tru}`: {docbody.BadRequest, notJSON},
		`{"_attachments":{"a":{"data":"` + "\n" + `"}}}`: {docbody.BadRequest, notJSON}, `{"_attachments":{"a":{"data":"\ud800"}}}`: {docbody.BadRequest, notJSON},
		"{\"a\":1}\x00": {docbody.BadRequest, notJSON}, `{"a":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + "}": {docbody.BadRequest, notJSON},
	} {
		t.Run(text[:min(len(text), 60)], func(t *testing.T) {
			t.Parallel()
			_, err := read(t, text)
			refused(t, err, want.code, want.reason)
		})
	}
}

func TestDeepNestingOfWhatIsNotADocument(t *testing.T) {
	t.Parallel()
	_, err := read(t, `{"a":`+strings.Repeat(`{"a":`, 500_000))
	refused(t, err, docbody.BadRequest, "invalid UTF-8 JSON")
}

func TestAttachments(t *testing.T) {
	t.Parallel()
	doc, err := read(t, `{"_attachments": {
		"z": {"content_type": "text/plain", "data": "aGVs bG8\n=", "digest": "md5-of something else", "encoding": "gzip", "revpos": 3, "length": 77},
		"a/b": {"stub": true, "digest": "md5-XrY7u+Ae7tCTyyK7j1rNww==", "length": 5, "revpos": 2, "data": "!"},
		"e": {"data": "\u0061\/\u002B\/", "x": [1]},
		"twice": {"data": "AAAA"},
		"n": {"data": "", "content_type": null, "revpos": null},
		"twice": {"data": "AQ=="}
	}, "v": 1}`)
	require.NoError(t, err)
	require.Equal(t, `{"v":1}`, string(doc.Body.Bytes()))
	var names []string
	for _, a := range doc.Attachments {
		names = append(names, a.Name)
	}
	require.Equal(t, []string{"z", "a/b", "e", "n", "twice"}, names)

	z, stub, escaped, none, twice := doc.Attachments[0], doc.Attachments[1], doc.Attachments[2], doc.Attachments[3], doc.Attachments[4]
	require.True(t, z.Inline())
	require.Equal(t, "text/plain", z.ContentType)
	require.Equal(t, int64(3), z.RevPos)
	require.Empty(t, z.Digest)
	require.Empty(t, z.Encoding)
	require.Equal(t, "hello", content(t, z))
	require.Equal(t, "hello", content(t, z), "a second time")

	require.True(t, stub.Stub)
	require.False(t, stub.Inline())
	require.Equal(t, "md5-XrY7u+Ae7tCTyyK7j1rNww==", stub.Digest)
	require.Equal(t, int64(5), stub.Length)

	require.Equal(t, docbody.DefaultContentType, escaped.ContentType)
	require.Equal(t, "\x6b\xff\xbf", content(t, escaped))
	require.Empty(t, content(t, none))
	require.Equal(t, "\x01", content(t, twice))
}

// Contents are read from a file, across the ends of windows, with and without escapes.
func TestLargeAttachment(t *testing.T) {
	t.Parallel()
	plain := strings.Repeat("0123456789", 200_000)
	text := base64.StdEncoding.EncodeToString([]byte(plain))
	for i, data := range []string{text, text[:1000] + `\n` + text[1000:], strings.ReplaceAll(text, "M", `\u004d`)} {
		doc, err := read(t, `{"v":"`+strings.Repeat("x", i)+`","_attachments":{"a":{"data":"`+data+`"}}}`)
		require.NoError(t, err)
		require.Equal(t, plain, content(t, doc.Attachments[0]))
	}
}

func TestBase64(t *testing.T) {
	t.Parallel()
	for text, good := range map[string]bool{
		"": true, "AA==": true, "AAA=": true, "AAAA": true, "AAAAAA==": true, "A A = =": true, `\r\nAA=\t=`: true,
		"A": false, "AA": false, "AAA": false, "A===": false, "====": false, "=": false, "AA=A": false, "AA==AAAA": false,
		"AA-_": false, "AA.A": false, "AAÄ=": false, `\u0000AAA`: false, `\ud83d\ude00`: false, `\"AAA`: false,
	} {
		doc, err := read(t, `{"_attachments":{"a":{"data":"`+text+`"}}}`)
		if !good {
			refused(t, err, docbody.BadRequest, "Invalid attachment data for a")
			continue
		}
		require.NoError(t, err, text)
		content(t, doc.Attachments[0])
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	opts := docbody.Options{
		Document: docbody.Limit{Bytes: 10, Name: "[a] document"}, Attachment: docbody.Limit{Bytes: 3, Name: "[a] attachment"},
	}
	for text, reason := range map[string]string{
		`{"a":1234,"_id":"0123456789"}`:                   "",
		`{ "a" : 1234}   `:                                "",
		`{"a":123456}`:                                    "the document has more than 10 bytes, which is the limit ([a] document)",
		`{"a":123456,"b":5,"_id":"x"}`:                    `the document "x" has more than 10 bytes, which is the limit ([a] document)`,
		`{"_attachments":{"a":{"data":"AAAA"}}}`:          "",
		`{"_attachments":{"a":{"data":"AAAAAA=="}}}`:      `the attachment "a" has more than 3 bytes, which is the limit ([a] attachment)`,
		`{"_attachments":{"a":{"stub":true,"length":9}}}`: "",
	} {
		_, err := docbody.ReadDocument(spool(t, text), opts)
		if reason == "" {
			require.NoError(t, err, text)
			continue
		}
		code := docbody.DocumentTooLarge
		if strings.Contains(reason, "attachment") {
			code = docbody.AttachmentTooLarge
		}
		refused(t, err, code, reason)
	}
	_, err := read(t, `{"_attachments":{"a":{"stub":true,"x":"`+strings.Repeat("y", 2_000_000)+`"}}}`)
	refused(t, err, docbody.DocumentTooLarge,
		"the members of a document that begin with an underscore may have 2000000 bytes, contents of attachments aside")
}

// documentBound bounds the memory for a document: its window and some copies of it.
var documentBound = costtest.Bound{Memory: 2 << 20, MemoryPerByte: 100, Units: 10, BytesPerUnit: 16 << 10}

// bodyBound bounds the memory for a request of several documents or parts.
var bodyBound = costtest.Bound{Memory: 1 << 20, MemoryPerByte: 200}

// FuzzDocument reads any bytes as a document. encoding/json gives the same result for accepted ones.
func FuzzDocument(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"a":[1,{"_b":"\"}"}],"c":"\\"}`, `{"_id":"x","_rev":"1-a","_deleted":false}`, `{"\u005fid":"x"}`,
		`{"_revisions":{"start":2,"ids":["b","a"]}}`, `{"a":"\ud83d\ude00","b":"\ud83d"}`, `[]`, "{\"\xff\":1}", `{"a":1,"a":2}`,
		`{"_attachments":{"a":{"data":"aGVs\/bG8=","content_type":"t"},"b":{"stub":true,"digest":"md5-x"}}}`,
		`{"_attachments":{"a":{"data":"AA=="},"a":{"data":"AA A\u0041"}}}`, ` { "a" : { } , "b" : [ ] } `, `{"a":"\/"}`,
		`{"a":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}`, strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000),
		`{"_revisions":{"start":9,"ids":[` + strings.Repeat(`"",`, 5000) + `""]}}`, `{"_rev":"` + strings.Repeat("9", 20_000) + `-a"}`,
		`{"_revisions":{"start":` + strings.Repeat("9", 20_000) + `,"ids":["a"]}}`, `{"a":` + strings.Repeat("7", 20_000) + `e-` + strings.Repeat("7", 20_000) + `}`,
		`{"_attachments":{` + strings.Repeat(`"a":{"stub":true},`, 2000) + `"a":{"data":""}}}`, `{"` + strings.Repeat(`\u0061`, 5000) + `":"` + strings.Repeat(`\ud83d\ude00`, 5000) + `"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var doc *docbody.Document
		var err error
		documentBound.Check(t, len(text), func() { doc, err = read(t, string(text)) })
		var members map[string]json.RawMessage
		valid := utf8.Valid(text) && json.Unmarshal(text, &members) == nil && members != nil
		if err != nil {
			var bad *docbody.Error
			require.ErrorAs(t, err, &bad)
			special := strings.Contains(strings.ToLower(string(text)), "_") || strings.Contains(string(text), `\`)
			require.True(t, !valid || special, "%q is refused: %v", text, err)
			return
		}
		require.True(t, valid, "%q is taken", text)
		sameMembers(t, members, doc)
	})
}

// sameMembers compares a document with encoding/json's reading of its text.
func sameMembers(t *testing.T, members map[string]json.RawMessage, doc *docbody.Document) {
	t.Helper()
	var body map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(doc.Body.Bytes(), &body))
	special := map[string]json.RawMessage{}
	for name, value := range members {
		if strings.HasPrefix(name, "_") {
			special[name] = value
			delete(members, name)
		}
	}
	require.Equal(t, members, body)
	if value, found := special["_id"]; found {
		var id string
		require.NoError(t, json.Unmarshal(value, &id))
		require.Equal(t, id, doc.ID)
	}
	var attachments map[string]map[string]json.RawMessage
	if special["_attachments"] != nil {
		require.NoError(t, json.Unmarshal(special["_attachments"], &attachments))
	}
	require.Len(t, doc.Attachments, len(attachments))
	for _, a := range doc.Attachments {
		require.Contains(t, attachments, a.Name)
		if !a.Inline() {
			continue
		}
		var data string
		require.NoError(t, json.Unmarshal(attachments[a.Name]["data"], &data))
		want, err := base64.StdEncoding.DecodeString(strings.NewReplacer(" ", "", "\t", "").Replace(data))
		require.NoError(t, err)
		require.Equal(t, string(want), content(t, a))
	}
}

// FuzzBulk reads any bytes as a bulk write. An accepted one is a list of documents, each of which can be read again.
func FuzzBulk(f *testing.F) {
	for _, seed := range []string{
		`{"docs":[]}`, `{"docs":[{"_id":"a","_rev":"1-x"},{"v":1}],"new_edits":false}`, `{"docs":5,"docs":[{}]}`, `[]`, `{"docs":[{},]}`,
		` { "all_or_nothing" : true , "docs" : [ { "_attachments" : { "a" : { "data" : "AA==" } } } ] } `, `{"docs":[{"_id":"_x"}]}`,
		`{"new_edits":null,"docs":[]}`, `{"\u0064ocs":[{"_revisions":{"start":2,"ids":["b","a"]}}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var b *docbody.Bulk
		var err error
		docs := 0
		bodyBound.Check(t, len(text), func() {
			if b, err = docbody.ReadBulk(spool(t, string(text)), docbody.Options{}); err != nil {
				return
			}
			for doc, err := range b.Documents() {
				require.NoError(t, err, "it was checked before")
				require.True(t, json.Valid(doc.Body.Bytes()))
				docs++
			}
		})
		var want struct{ Docs []json.RawMessage }
		if err != nil {
			var bad *docbody.Error
			require.ErrorAs(t, err, &bad)
			return
		}
		var members map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(text, &members))
		require.NoError(t, json.Unmarshal(members["docs"], &want.Docs))
		require.Len(t, want.Docs, docs)
		require.NotNil(t, b)
	})
}
