package databases_test

import (
	"crypto/md5"
	"encoding/base64"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
	"settee/internal/testkit"
	"settee/pkg/docstore"
	"settee/pkg/kv/enginetest"
)

// flow is a content that is made as it is read.
type flow struct {
	io.Reader
	store  *enginetest.Controlled
	given  int64
	widest int64 // the most that was given and not yet written to the store
}

// newFlow returns a flow of size bytes into a store, and the sum of what is read from it.
func newFlow(store *enginetest.Controlled, size int64) (*flow, hash.Hash) {
	store.BytesWritten.Store(0)
	sum := md5.New()
	return &flow{Reader: io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{}), size), sum), store: store}, sum
}

// Read implements io.Reader.
func (f *flow) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	f.given += int64(n)
	f.widest = max(f.widest, f.given-f.store.BytesWritten.Load())
	return n, err
}

func TestLargeAttachments(t *testing.T) {
	t.Parallel()
	size := webtest.UnderRace(20_000_000, 6_000_000)
	n, store, db := streaming(t)
	encoded := func(content io.Reader) io.Reader {
		out, in := io.Pipe()
		go func() {
			encoder := base64.NewEncoder(base64.StdEncoding, in)
			_, err := io.Copy(encoder, content)
			if err == nil {
				err = encoder.Close()
			}
			in.CloseWithError(err)
		}()
		return out
	}
	inline := func(content io.Reader) io.Reader {
		return io.MultiReader(strings.NewReader(`{"_attachments":{"f":{"data":"`), encoded(content), strings.NewReader(`"}}}`))
	}
	for name, test := range map[string]struct {
		target, kind string
		body         func(io.Reader) io.Reader
	}{
		"plain": {"/db/plain/f", "text/plain", func(content io.Reader) io.Reader { return content }},
		"related": {"/db/related", relatedType, func(content io.Reader) io.Reader {
			whole := related(fmt.Sprintf(`{"_attachments":{"f":{"follows":true,"length":%d}}}`, size), "|")
			head, tail, _ := strings.Cut(whole, "|")
			return io.MultiReader(strings.NewReader(head), content, strings.NewReader(tail))
		}},
		"inline": {"/db/inline", "application/json", inline},
	} {
		t.Run(name, func(t *testing.T) {
			content, sum := newFlow(store, int64(size))
			before := store.Transactions.Load()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+n.Address+test.target, test.body(content))
			require.NoError(t, err)
			r.Header.Set("Content-Type", test.kind)
			response, err := n.Client.Do(r)
			require.NoError(t, err)
			defer response.Body.Close()
			text, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			require.Equal(t, http.StatusCreated, response.StatusCode, "%s", text)
			doc, err := db.Get(t.Context(), name, docstore.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, int64(size), doc.Attachments[0].Length)
			require.Equal(t, sum.Sum(nil), doc.Attachments[0].MD5[:])
			if name == "inline" { // where the whole body is received first, into a file
				require.Greater(t, store.Transactions.Load()-before, int64(size/1_000_000))
			} else {
				require.Less(t, content.widest, int64(3_000_000))
			}
		})
	}
}

// The documents of a bulk write are written in batches.
func TestLargeBulk(t *testing.T) {
	t.Parallel()
	const documents = 200
	n, store, _ := streaming(t)
	var body strings.Builder
	body.WriteString(`{"docs":[`)
	for i := range documents {
		fmt.Fprintf(&body, `{"_id":"%d","v":"%s"},`, i, strings.Repeat("x", 60_000))
	}
	body.WriteString(`{"_id":"last","_deleted":true}],"new_edits":true}`)
	before := store.Transactions.Load()
	results := n.PostJSON("/db/_bulk_docs", body.String()).Results(t)
	require.Len(t, results, documents+1)
	require.Equal(t, "last", results[documents]["id"])
	require.Greater(t, store.Transactions.Load()-before, int64(documents*60_000/1_000_000))
}

// slow writes a body in pieces, with a pause before each, and returns the answer.
func (n *node) slow(head string, pieces []string, pause time.Duration) webtest.Answer {
	n.Helper()
	conn := n.Connect()
	conn.Send(head + "\r\n\r\n")
	for _, piece := range pieces {
		time.Sleep(pause) // of the bubble's clock
		conn.Send(piece)
	}
	got, closes := conn.Answer()
	require.Equal(n, got.Status == http.StatusRequestTimeout, closes)
	return got
}

// A body may take its time, but not stop.
func TestSlowBodies(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := startOn(t, webtest.Memory(t), webtest.ListenPipe())
		db := n.NewDatabase("db")
		for target, body := range map[string]string{
			"/db/a": `{"v": "some text"}`, "/db/b/f": "the content of an attachment",
			"/db/c": related(`{"_attachments":{"f":{"follows":true}}}`, "content"),
		} {
			head := fmt.Sprintf("PUT %s HTTP/1.1\r\n"+webtest.RawHead+"Content-Type: %s\r\nContent-Length: %d", target, "text/plain", len(body))
			if target == "/db/c" {
				head = strings.Replace(head, "text/plain", relatedType, 1)
			}
			began := time.Now()
			got := n.slow(head, strings.Split(body, ""), 50*time.Second)
			require.Equal(t, http.StatusCreated, got.Status, got.Body)
			require.Equal(t, time.Duration(len(body))*50*time.Second, time.Since(began))

			before := n.rows()
			began = time.Now()
			got = n.slow(head, []string{body[:5]}, 50*time.Second)
			webtest.Refused(t, got, http.StatusRequestTimeout, "timeout", "no more of the request body was received for 1m0s")
			require.Equal(t, 110*time.Second, time.Since(began))
			require.Equal(t, before, n.rows())
		}
		require.Equal(t, "content", n.content(db, n.doc(db, "c"), "f"))
	})
}
