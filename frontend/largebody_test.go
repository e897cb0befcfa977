package frontend_test

import (
	"bufio"
	"context"
	"crypto/md5"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"hash"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/docstore"
	"settee/pkg/kv"
)

// sieve is a store that forgets the contents of attachments, and measures the heap while
// they are written. What is left in memory is what the server holds of them.
type sieve struct {
	kv.Database
	mu   sync.Mutex
	sets int
	most uint64
}

func (s *sieve) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	return s.Database.Transact(ctx, func(tx kv.Transaction) error { return fn(&sieveTx{tx, s}) })
}

type sieveTx struct {
	kv.Transaction
	sieve *sieve
}

func (tx *sieveTx) Set(key, value []byte) {
	if len(value) > 50_000 {
		tx.sieve.dropped()
		value = nil
	}
	tx.Transaction.Set(key, value)
}

func (s *sieve) dropped() {
	s.mu.Lock()
	s.sets++
	due := s.sets%100 == 0
	s.mu.Unlock()
	if due {
		s.measure()
	}
}

func (s *sieve) measure() {
	heap := heapInUse()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most = max(s.most, heap)
}

// measured returns how much the heap has grown at most.
func (s *sieve) measured(before uint64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := s.most
	s.most = 0
	return int64(most) - int64(before)
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// flow is a content that nobody holds: a block, over and over.
type flow struct {
	left  int64
	block []byte
	hash.Hash
	measure func()
}

func newFlow(size int64, measure func()) *flow {
	f := &flow{left: size, block: make([]byte, 50_000), Hash: md5.New(), measure: measure}
	_, _ = rand.Read(f.block) // never fails
	return f
}

// Read implements io.Reader.
func (f *flow) Read(p []byte) (int, error) {
	if f.left == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(int64(len(p)), f.left)], f.block)
	if f.left/10_000_000 != (f.left-int64(n))/10_000_000 {
		f.measure()
	}
	f.left -= int64(n)
	_, _ = f.Write(p[:n])
	return n, nil
}

// Not parallel: the heap is that of all tests.
func TestLargeAttachments(t *testing.T) {
	const size = 60_000_000
	store := &sieve{Database: memory(t)}
	n := startOn(t, store, listenTCP(t))
	db := n.create("db")
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
			content := newFlow(size, store.measure)
			before := heapInUse()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+n.address+test.target, test.body(content))
			require.NoError(t, err)
			r.Header.Set("Content-Type", test.kind)
			response, err := n.client.Do(r)
			require.NoError(t, err)
			defer response.Body.Close()
			text, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			require.Equal(t, http.StatusCreated, response.StatusCode, "%s", text)
			doc, err := db.Get(t.Context(), name, docstore.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, int64(size), doc.Attachments[0].Length)
			require.Equal(t, content.Sum(nil), doc.Attachments[0].MD5[:])
			require.Less(t, store.measured(before), int64(5_000_000))
		})
	}
}

// Of a bulk write a batch is in memory, and of its answer what is not worth sending yet.
func TestLargeBulk(t *testing.T) {
	const documents = 400
	store := &sieve{Database: memory(t)}
	n := startOn(t, store, listenTCP(t))
	n.create("db")
	out, in := io.Pipe()
	go func() {
		_, err := io.WriteString(in, `{"docs":[`)
		text := strings.Repeat("x", 60_000)
		for i := 0; i < documents && err == nil; i++ {
			_, err = fmt.Fprintf(in, `{"_id":"%d","v":"%s"},`, i, text)
		}
		if err == nil {
			_, err = io.WriteString(in, `{"_id":"last","_deleted":true}],"new_edits":true}`)
		}
		in.CloseWithError(err)
	}()
	before := heapInUse()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+n.address+"/db/_bulk_docs", out)
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	response, err := n.client.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	results := answer{response.StatusCode, response.Header, string(text)}.results(t)
	require.Len(t, results, documents+1)
	require.Equal(t, "last", results[documents]["id"])
	require.Less(t, store.measured(before), int64(6_000_000))
}

// slow writes a body in pieces, with a pause before each, and returns the answer.
func (n *node) slow(head string, pieces []string, pause time.Duration) answer {
	n.Helper()
	conn, err := n.dial(n.Context())
	require.NoError(n, err)
	defer conn.Close()
	_, err = io.WriteString(conn, head+"\r\n\r\n")
	require.NoError(n, err)
	for _, piece := range pieces {
		time.Sleep(pause) // of the bubble's clock
		_, err = io.WriteString(conn, piece)
		require.NoError(n, err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(n, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(n, err)
	require.Equal(n, response.StatusCode == http.StatusRequestTimeout, response.Close)
	return answer{response.StatusCode, response.Header, string(text)}
}

// A body may take its time, but not stop.
func TestSlowBodies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := startOn(t, memory(t), listenPipe())
		db := n.create("db")
		for target, body := range map[string]string{
			"/db/a": `{"v": "some text"}`, "/db/b/f": "the content of an attachment",
			"/db/c": related(`{"_attachments":{"f":{"follows":true}}}`, "content"),
		} {
			head := fmt.Sprintf("PUT %s HTTP/1.1\r\n"+rawHead+"Content-Type: %s\r\nContent-Length: %d", target, "text/plain", len(body))
			if target == "/db/c" {
				head = strings.Replace(head, "text/plain", relatedType, 1)
			}
			began := time.Now()
			got := n.slow(head, strings.Split(body, ""), 50*time.Second)
			require.Equal(t, http.StatusCreated, got.status, got.body)
			require.Equal(t, time.Duration(len(body))*50*time.Second, time.Since(began))

			before := n.rows()
			began = time.Now()
			got = n.slow(head, []string{body[:5]}, 50*time.Second)
			refused(t, got, http.StatusRequestTimeout, "timeout", "no more of the request body was received for 1m0s")
			require.Equal(t, 110*time.Second, time.Since(began))
			require.Equal(t, before, n.rows())
		}
		require.Equal(t, "content", n.content(db, n.doc(db, "c"), "f"))
	})
}
