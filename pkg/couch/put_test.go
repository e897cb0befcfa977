package couch_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/couch"
)

// put is a PUT request that a server received.
type put struct {
	length   int64
	encoding []string // Transfer-Encoding
	content  string
	body     []byte
}

// putServer opens a database that records PUT requests, after refusing the first few.
func putServer(t *testing.T, refusals int, refuse http.HandlerFunc, edit ...func(*couch.Config)) (*couch.Database, func() []put) {
	t.Helper()
	puts := make(chan put, 10)
	var tries atomic.Int32
	db := serving(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if int(tries.Add(1)) <= refusals {
			refuse(w, r)
			return
		}
		puts <- put{r.ContentLength, r.TransferEncoding, r.Header.Get("Content-Type"), body}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"ok":true,"id":"x","rev":"1-aa"}`)
	}, edit...)
	return db, func() []put {
		var all []put
		for len(puts) > 0 {
			all = append(all, <-puts)
		}
		return all
	}
}

func unavailable(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusServiceUnavailable)
}

// broken is a source that fails after some bytes of its first attachment.
type broken struct {
	about couch.Attachment
	after int
	err   error
}

func (b *broken) NextAttachment() (*couch.AttachmentReader, error) {
	return couch.NewAttachmentReader(b.about, io.MultiReader(bytes.NewReader(make([]byte, b.after)), errReader{b.err})), nil
}

type errReader struct{ err error }

func (e errReader) Read([]byte) (int, error) { return 0, e.err }

func about(t *testing.T, doc couch.Document) []couch.Attachment {
	t.Helper()
	all, err := doc.Attachments()
	require.NoError(t, err)
	return all
}

func TestPutMultipartBody(t *testing.T) {
	t.Parallel()
	db, puts := putServer(t, 0, nil)
	doc, source := withAttachments(t, "a/b", "1-aa",
		plainAttachment("z \"q\"\r\nX: y", `text/plain; charset="utf-8"`, []byte("\r\n--x--\r\n")),
		plainAttachment("empty", "", nil),
		attached{couch.Attachment{Name: "gz", ContentType: "a/b", Length: 12, Encoding: "gzip"}, []byte("not really zipped")})
	require.NoError(t, db.PutMultipart(t.Context(), doc, source))
	got := puts()[0]
	require.EqualValues(t, len(got.body), got.length)
	_, params, err := mime.ParseMediaType(got.content)
	require.NoError(t, err)
	parts := multipart.NewReader(bytes.NewReader(got.body), params["boundary"])
	part, err := parts.NextRawPart()
	require.NoError(t, err)
	body, err := io.ReadAll(part)
	require.NoError(t, err)
	require.Equal(t, string(doc.Body), string(body))
	for _, want := range []struct{ name, kind, encoding, body string }{
		{`z _q___X: y`, `text/plain; charset="utf-8"`, "", "\r\n--x--\r\n"},
		{"empty", "", "", ""},
		{"gz", "a/b", "gzip", "not really zipped"},
	} {
		part, err := parts.NextRawPart()
		require.NoError(t, err)
		require.Equal(t, `attachment; filename="`+want.name+`"`, part.Header.Get("Content-Disposition"))
		require.Equal(t, want.kind, part.Header.Get("Content-Type"))
		require.Equal(t, want.encoding, part.Header.Get("Content-Encoding"))
		require.Equal(t, fmt.Sprint(len(want.body)), part.Header.Get("Content-Length"))
		body, err := io.ReadAll(part)
		require.NoError(t, err)
		require.Equal(t, want.body, string(body))
	}
	_, err = parts.NextRawPart()
	require.Equal(t, io.EOF, err)
}

func TestPutMultipartOfUnknownLength(t *testing.T) {
	t.Parallel()
	db, puts := putServer(t, 0, nil)
	doc := document(t, `{"_id":"x","_attachments":{"f":{"follows":true}}}`)
	require.NoError(t, db.PutMultipart(t.Context(), doc, &listed{{about(t, doc)[0], []byte("12345")}}))
	got := puts()[0]
	require.Equal(t, []string{"chunked"}, got.encoding)
	require.Contains(t, string(got.body), "\r\n\r\n12345\r\n--")
}

func TestPutMultipartRetries(t *testing.T) {
	t.Parallel()
	aborted := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	for name, refuse := range map[string]http.HandlerFunc{"unavailable": unavailable, "aborted": aborted} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, puts := putServer(t, 3, refuse)
			doc, source := withAttachments(t, "x", "1-aa", plainAttachment("a", "a/b", []byte("aaa")), plainAttachment("b", "a/b", []byte("bbb")))
			require.NoError(t, db.PutMultipart(t.Context(), doc, source))
			got := puts()[0]
			require.EqualValues(t, len(got.body), got.length)
			require.Contains(t, string(got.body), "\r\n\r\naaa\r\n")
			require.Contains(t, string(got.body), "\r\n\r\nbbb\r\n")
		})
		t.Run(name+", too large to be kept", func(t *testing.T) {
			t.Parallel()
			db, puts := putServer(t, 1, refuse)
			doc, source := withAttachments(t, "x", "1-aa", plainAttachment("a", "a/b", make([]byte, 70_000)))
			require.Error(t, db.PutMultipart(t.Context(), doc, source))
			require.Empty(t, puts())
		})
	}
}

func TestPutMultipartSources(t *testing.T) {
	t.Parallel()
	cause := errors.New("the source's own trouble")
	doc, _ := withAttachments(t, "x", "1-aa", plainAttachment("a", "a/b", make([]byte, 100)), plainAttachment("b", "a/b", []byte("b")))
	ab := about(t, doc)
	short, long := ab[0], ab[0]
	short.Length, long.Length = 99, -1
	for _, test := range []struct {
		name   string
		source couch.AttachmentSource
		is     error
		says   string
	}{
		{"fails", &broken{ab[0], 50, cause}, cause, `attachment "a": the source's own trouble`},
		{"cut", &broken{ab[0], 50, io.EOF}, io.ErrUnexpectedEOF, `attachment "a": 50 bytes are missing`},
		{"too long", &broken{ab[0], 101, cause}, couch.ErrMalformed, `attachment "a": malformed answer: more than the announced 100 bytes`},
		{"ends", &listed{{ab[0], make([]byte, 100)}}, io.ErrUnexpectedEOF, `attachment "b" was announced and does not come`},
		{"another order", &listed{{ab[1], []byte("b")}}, couch.ErrMalformed, `attachment "b" (1 bytes) where "a" (100 bytes) was announced`},
		{"another length", &listed{{short, make([]byte, 99)}}, couch.ErrMalformed, "was announced"},
		{"no length", &listed{{long, make([]byte, 100)}}, couch.ErrMalformed, "was announced"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			db, puts := putServer(t, 0, nil)
			err := db.PutMultipart(t.Context(), doc, test.source)
			require.ErrorIs(t, err, test.is)
			require.ErrorContains(t, err, test.says)
			require.Empty(t, puts())
		})
	}
	t.Run("document", func(t *testing.T) {
		t.Parallel()
		db := open(t, "http://127.0.0.1:1/db", noRetries)
		for _, body := range []string{
			`{"_id":"x","_attachments":{"f":7}}`,
			`{"_id":"x","_attachments":{"f":{"length":-1}}}`,
			`{"_id":"x","_attachments":{"f":{"length":1.5}}}`,
			`{"_id":"x","_attachments":{"f":{"content_type":null}}}`,
			`{"_id":"x","_attachments":{"f":{"follows":"yes"}}}`,
		} {
			err := db.PutMultipart(t.Context(), document(t, body), nil)
			require.ErrorIs(t, err, couch.ErrMalformed)
			require.ErrorContains(t, err, `attachments of document "x": `)
			require.ErrorContains(t, err, `attachment "f"`)
		}
	})
}

// TestPutMultipartAnswerComesEarly answers while the source is being read. The source must not be used after
// PutMultipart has returned.
func TestPutMultipartAnswerComesEarly(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		db := piped(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadFull(r.Body, make([]byte, 100))
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"error":"forbidden","reason":"no"}`)
		})
		doc, _ := withAttachments(t, "x", "1-aa", plainAttachment("a", "a/b", make([]byte, 8<<20)))
		source := &counting{about: about(t, doc)[0]}
		err := db.PutMultipart(t.Context(), doc, source)
		require.ErrorIs(t, err, couch.ErrForbidden)
		source.n++ // a data race if it is still being read
	})
}

type counting struct {
	about couch.Attachment
	n     int
}

func (c *counting) NextAttachment() (*couch.AttachmentReader, error) {
	return couch.NewAttachmentReader(c.about, c), nil
}

func (c *counting) Read(p []byte) (int, error) {
	c.n += len(p)
	return len(p), nil
}

// pouch answers as PouchDB Server does, as far as the client can tell.
func pouch(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Powered-By", "Express") }

func TestPutToPouch(t *testing.T) {
	t.Parallel()
	var zipped bytes.Buffer
	zip := gzip.NewWriter(&zipped)
	_, err := io.WriteString(zip, strings.Repeat("hello ", 2000))
	require.NoError(t, err)
	require.NoError(t, zip.Close())
	z := attached{couch.Attachment{Name: "z", ContentType: "text/plain", Length: 12000, Encoding: "gzip"}, zipped.Bytes()}

	known := func(t *testing.T) (*couch.Database, func() []put) {
		db, puts := putServer(t, 1, pouch)
		_ = db.Create(t.Context(), nil) // the client detects the kind of server
		return db, puts
	}
	t.Run("decompressed", func(t *testing.T) {
		t.Parallel()
		db, puts := known(t)
		doc, source := withAttachments(t, "x", "1-aa", z)
		require.NoError(t, db.PutMultipart(t.Context(), doc, source))
		got := puts()[0]
		require.EqualValues(t, len(got.body), got.length)
		require.Contains(t, string(got.body), strings.Repeat("hello ", 2000))
		require.Contains(t, string(got.body), `"z":{"content_type":"text/plain","revpos":1,"length":12000,"follows":true}`)
		require.NotContains(t, string(got.body), "gzip")
	})
	t.Run("decompressed, of unknown length", func(t *testing.T) {
		t.Parallel()
		db, puts := known(t)
		unknown := z
		unknown.About.Length = int64(zipped.Len()) // as CouchDB says
		doc, source := withAttachments(t, "x", "1-aa", unknown)
		require.NoError(t, db.PutMultipart(t.Context(), doc, source))
		got := puts()[0]
		require.Contains(t, string(got.body), strings.Repeat("hello ", 2000))
		require.Contains(t, string(got.body), `"z":{"content_type":"text/plain","revpos":1,"follows":true}`)
	})
	t.Run("inline", func(t *testing.T) {
		t.Parallel()
		for size := range 8 { // all remainders of base64
			db, puts := known(t)
			data := bytes.Repeat([]byte{0xfe}, size*1023+size)
			doc, source := withAttachments(t, "x", "1-aa", plainAttachment(`back\slash`, "a/b", data), z)
			require.NoError(t, db.PutMultipart(t.Context(), doc, source))
			got := puts()[0]
			require.Equal(t, "application/json", got.content)
			require.EqualValues(t, len(got.body), got.length)
			var sent struct {
				Attachments map[string]map[string]any `json:"_attachments"`
				N           json.RawMessage           `json:"n"`
			}
			require.NoError(t, json.Unmarshal(got.body, &sent))
			require.Equal(t, "1.0", string(sent.N))
			require.Equal(t, map[string]any{
				"content_type": "a/b", "revpos": 1.0, "digest": digestOf(data), "data": base64.StdEncoding.EncodeToString(data),
			}, sent.Attachments[`back\slash`])
			require.Equal(t, base64.StdEncoding.EncodeToString([]byte(strings.Repeat("hello ", 2000))), sent.Attachments["z"]["data"])
		}
	})
	t.Run("bad gzip", func(t *testing.T) {
		t.Parallel()
		for _, bad := range [][]byte{nil, []byte("not zipped"), zipped.Bytes()[:40], append(zipped.Bytes()[:50:50], zipped.Bytes()[51:]...)} {
			db, puts := known(t)
			doc, source := withAttachments(t, "x", "1-aa", attached{z.About, bad})
			err := db.PutMultipart(t.Context(), doc, source)
			require.ErrorContains(t, err, `attachment "z"`)
			require.Empty(t, puts())
		}
		db, _ := known(t)
		other := z
		other.About.Encoding = "br"
		doc, source := withAttachments(t, "x", "1-aa", other)
		require.ErrorContains(t, db.PutMultipart(t.Context(), doc, source), "its encoding is br")
	})
	t.Run("a bomb", func(t *testing.T) {
		t.Parallel()
		db, puts := known(t)
		bomb := z
		bomb.About.Length = 10
		doc, source := withAttachments(t, "x", "1-aa", bomb)
		require.ErrorIs(t, db.PutMultipart(t.Context(), doc, source), couch.ErrMalformed)
		require.Empty(t, puts())
	})
}

// A server may answer as soon as it has the last byte, and delay the rest of its answer.
func TestPutMultipartAnswerComesAtOnce(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		db := piped(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.CopyN(io.Discard, r.Body, r.ContentLength)
			w.WriteHeader(http.StatusCreated)
			flush(w)
			time.Sleep(time.Second)
			_, _ = io.WriteString(w, `{"ok":true}`)
		}, noRetries)
		for size := range 200 {
			doc, source := withAttachments(t, "x", "1-aa", plainAttachment("a", "a/b", make([]byte, 100_000+size)))
			require.NoError(t, db.PutMultipart(t.Context(), doc, source))
		}
	})
}

// An old proxy does not support Expect: 100-continue and says so, before any of the body was sent.
func TestServersThatDoNotWantToBeAsked(t *testing.T) {
	t.Parallel()
	var asked []string
	db := serving(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+r.Header.Get("Expect"))
		if r.Header.Get("Expect") != "" {
			w.WriteHeader(http.StatusExpectationFailed)
			return
		}
		n, _ := io.Copy(io.Discard, r.Body)
		if r.Method == http.MethodPost {
			_, _ = io.WriteString(w, `[]`)
			return
		}
		fmt.Fprintf(w, `{"ok":%t}`, n > 2<<20)
	}, noRetries, expectant(t))
	for range 2 {
		doc, source := withAttachments(t, "x", "1-aa", plainAttachment("a", "a/b", make([]byte, 2<<20)))
		require.NoError(t, db.PutMultipart(t.Context(), doc, source))
	}
	refused, err := db.BulkDocs(t.Context(), []couch.Document{document(t, `{"_id":"x","_rev":"1-a","v":"`+strings.Repeat("x", 2<<20)+`"}`)})
	require.NoError(t, err)
	require.Empty(t, refused)
	require.Equal(t, []string{"PUT100-continue", "PUT", "PUT", "POST"}, asked)
}

// A success that does not confirm the write counts as a failure. No refusal repeats a password.
func TestAnswersToAWrite(t *testing.T) {
	t.Parallel()
	answer := ""
	db := serving(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, answer)
	}, noRetries, func(c *couch.Config) { c.Username, c.Password = "me", "s3cret-word" })
	put := func(text string) error {
		answer = text
		return db.PutMultipart(t.Context(), document(t, `{"_id":"x","_rev":"1-a"}`), nil)
	}
	for _, text := range []string{`{"ok":true}`, `{"ok":true,"id":"x","rev":"1-a"}`, `{"rev":"1-a"}`, `[]`, `[{"ok":true,"id":"x","rev":"1-a"}]`} {
		require.NoError(t, put(text), text)
	}
	for _, text := range []string{`{}`, `null`, `"x"`, `true`, `{"ok":false}`} {
		require.ErrorIs(t, put(text), couch.ErrMalformed, text)
	}
	for _, text := range []string{``, `{"ok":true`, `{"ok":true,"id":"s3cret-word`} {
		err := put(text)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, text)
		require.NotContains(t, err.Error(), "s3cret-word")
	}
	for _, text := range []string{
		`{"error":"forbidden","reason":"you sent s3cret-word"}`,
		`[{"id":"x","rev":"1-a","error":"forbidden","reason":"you sent s3cret-word"}]`,
	} {
		var refused *couch.DocError
		require.ErrorAs(t, put(text), &refused, text)
		require.Equal(t, "x 1-a forbidden", refused.ID+" "+refused.Rev+" "+refused.Code)
		require.NotContains(t, refused.Reason, "s3cret")
	}
}

// TestSendingMayEnd makes Config.Sending fail before a body is sent, and in the middle of it. The server must not get
// the document, and the request must not be repeated.
func TestSendingMayEnd(t *testing.T) {
	t.Parallel()
	held := errors.New("the job is another node's")
	for name, parts := range map[string]int{"before it begins": 0, "in the middle": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			asked := 0
			db, puts := putServer(t, 0, nil, func(cfg *couch.Config) {
				cfg.NoCompression = true
				cfg.Sending = func() error {
					if asked++; asked > parts {
						cancel(held)
					}
					return context.Cause(ctx)
				}
			})
			_, err := db.BulkDocs(ctx, []couch.Document{document(t, `{"_id":"x","text":"`+strings.Repeat("x", 1<<20)+`"}`)})
			require.ErrorIs(t, err, held)
			require.Equal(t, parts+1, asked)
			require.Empty(t, puts())
		})
	}
}

func TestPutInline(t *testing.T) {
	t.Parallel()
	var zipped bytes.Buffer
	zip := gzip.NewWriter(&zipped)
	_, _ = io.WriteString(zip, "plain text")
	require.NoError(t, zip.Close())
	gz := attached{couch.Attachment{Name: "gz", ContentType: "text/plain", Length: 10, Encoding: "gzip"}, zipped.Bytes()}
	db, puts := putServer(t, 0, nil)

	doc, source := withAttachments(t, "x", "1-aa", plainAttachment("a", "text/plain", []byte("abc")), gz)
	require.NoError(t, db.PutInline(t.Context(), doc, source))
	got := puts()[0]
	require.Equal(t, "application/json", got.content)
	require.EqualValues(t, len(got.body), got.length)
	var sent struct {
		Attachments map[string]struct {
			Data     []byte `json:"data"`
			Encoding string `json:"encoding"`
		} `json:"_attachments"`
	}
	require.NoError(t, json.Unmarshal(got.body, &sent))
	require.Equal(t, "abc", string(sent.Attachments["a"].Data))
	require.Equal(t, "plain text", string(sent.Attachments["gz"].Data))
	require.Empty(t, sent.Attachments["gz"].Encoding)

	// A server would hold large ones in memory. What is compressed in another way cannot be sent as text.
	for _, a := range []attached{
		plainAttachment("a", "text/plain", make([]byte, 5<<20)),
		{couch.Attachment{Name: "br", ContentType: "text/plain", Length: 10, Encoding: "br"}, []byte("compressed")},
	} {
		doc, source = withAttachments(t, "x", "1-aa", a)
		require.NoError(t, db.PutInline(t.Context(), doc, source))
		require.Contains(t, puts()[0].content, "multipart/related")
	}
	doc = document(t, `{"_id":"x","_attachments":{"f":{"follows":true}}}`)
	require.NoError(t, db.PutInline(t.Context(), doc, &listed{{about(t, doc)[0], []byte("12345")}}))
	require.Contains(t, puts()[0].content, "multipart/related")
}
