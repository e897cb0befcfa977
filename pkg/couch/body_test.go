package couch

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// net/http reads on after the last byte of a body of known length. If the server has answered by then, the body must
// end, because an error would break the connection with the answer.
func TestABodyThatWasReadHasEndedAlsoWhenTheExchangeIsOver(t *testing.T) {
	t.Parallel()
	doc, err := ParseDocument([]byte(`{"_id":"d","_rev":"1-a","_attachments":{"f":{"content_type":"a/b","length":3,"follows":true}}}`))
	require.NoError(t, err)
	streamed := &streamedBody{source: &oneAttachment{}, attachments: []Attachment{{Name: "f", ContentType: "a/b", Length: 3}}}
	streamed.multipart(doc, "edge")
	docs := bulkDocsBody([]Document{doc, doc})
	for name, body := range map[string]requestBody{"streamed": streamed, "documents": docs} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, length := body.open()
			read, err := io.ReadAll(io.LimitReader(r, length-1))
			require.NoError(t, err)
			require.Len(t, read, int(length-1))
			var one [1]byte
			_, err = io.ReadFull(r, one[:])
			require.NoError(t, err)
			body.done()
			_, err = r.Read(one[:])
			require.Equal(t, io.EOF, err)
		})
	}
}

// After the exchange a body returns no more bytes, because its memory may be reused.
func TestABodyEndsWithTheExchange(t *testing.T) {
	t.Parallel()
	docs := bulkDocsBody([]Document{{Body: []byte(`{"_id":"a"}`)}, {Body: []byte(`{"_id":"b"}`)}})
	for range 2 { // the body can be sent again
		r, length := docs.open()
		all, err := io.ReadAll(r)
		require.NoError(t, err)
		require.JSONEq(t, `{"new_edits":false,"docs":[{"_id":"a"},{"_id":"b"}]}`, string(all))
		require.Len(t, all, int(length))
	}
	r, _ := docs.open()
	_, err := r.Read(make([]byte, 5))
	require.NoError(t, err)
	docs.done()
	_, err = r.Read(make([]byte, 5))
	require.Equal(t, errExchangeOver, err)
}

// oneAttachment is a source of one attachment.
type oneAttachment struct{ done bool }

func (o *oneAttachment) NextAttachment() (*AttachmentReader, error) {
	if o.done {
		return nil, io.EOF
	}
	o.done = true
	return NewAttachmentReader(Attachment{Name: "f", ContentType: "a/b", Length: 3}, strings.NewReader("123")), nil
}

// reads is a source that takes a time for each read of at most size bytes.
type reads struct {
	size, left int
	takes      time.Duration
}

func (r *reads) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	time.Sleep(r.takes)
	n := min(len(p), r.size, r.left)
	r.left -= n
	return n, nil
}

// The bytes of a fast source are sent together, and the bytes of a slow one do not wait for long.
func TestBytesAreSentTogether(t *testing.T) {
	for name, test := range map[string]struct {
		source reads
		pieces []int
	}{
		"fast":                    {reads{size: 4 << 10, left: 70 << 10}, []int{32 << 10, 32 << 10, 6 << 10}},
		"slow":                    {reads{size: 1000, left: 10_000, takes: fillTime / 4}, []int{4000, 4000, 2000}},
		"very slow":               {reads{size: 10, left: 30, takes: time.Minute}, []int{10, 10, 10}},
		"ends with a whole piece": {reads{size: 4 << 10, left: 32 << 10}, []int{32 << 10}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got []int
				for p := make([]byte, 32<<10); ; {
					n, err := fill(p, &test.source)
					if n > 0 {
						got = append(got, n)
					}
					if err == io.EOF {
						break
					}
					require.NoError(t, err)
				}
				require.Equal(t, test.pieces, got)
			})
		})
	}
}
