package frontend_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/docstore"
)

// zeros is a content of many bytes that takes no memory.
func zeros(size int64) io.Reader { return io.LimitReader(zeroReader{}, size) }

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func liveHeap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// inBounds reads an answer and requires that it never takes much memory. It returns the
// number of its bytes.
func (n *node) inBounds(method, target, body string, headers ...string) (size int64) {
	n.Helper()
	return n.inBoundsOf(8<<20, method, target, body, headers...)
}

func (n *node) inBoundsOf(most int64, method, target, body string, headers ...string) (size int64) {
	n.Helper()
	before := liveHeap()
	request, err := http.NewRequestWithContext(n.Context(), method, "http://"+n.address+target, strings.NewReader(body))
	require.NoError(n, err)
	for pair := range slices.Chunk(headers, 2) {
		request.Header.Set(pair[0], pair[1])
	}
	response, err := n.client.Do(request)
	require.NoError(n, err)
	defer response.Body.Close()
	require.Equal(n, http.StatusOK, response.StatusCode)
	for step := int64(3_000_000); ; step = 12_000_000 {
		read, err := io.CopyN(io.Discard, response.Body, step)
		size += read
		require.Less(n, liveHeap()-before, most, "after %d bytes of %s", size, target)
		if err == io.EOF {
			return size
		}
		require.NoError(n, err)
	}
}

// It is not parallel: other tests would be measured too.
func TestLargeAttachmentsAreStreamed(t *testing.T) {
	n := startOn(t, memory(t), listenPipe()) // which holds nothing back
	db, err := n.docs.Create(t.Context(), "db")
	require.NoError(t, err)
	const size, less = 60_000_000, 20_000_000
	for id, size := range map[string]int64{"doc": size, "other": less} {
		n.replicated(db, id, `{}`, false, []string{"a"},
			n.upload(db, id, "large", "application/x-bin", zeros(size), docstore.UploadOptions{}))
	}
	const json, bulk = "application/json", `{"docs":[{"id":"other"}]}`
	require.EqualValues(t, size, n.inBounds(http.MethodGet, "/db/doc/large", ""))
	require.Greater(t, n.inBounds(http.MethodGet, "/db/doc?attachments=true", "", "Accept", json), int64(size/3*4))
	require.Greater(t, n.inBounds(http.MethodGet, "/db/doc?attachments=true", "", "Accept", "multipart/related"), int64(size))
	require.Greater(t, n.inBounds(http.MethodGet, "/db/other?open_revs=all&attachments=true", "", "Accept", json), int64(less/3*4))
	require.Greater(t, n.inBounds(http.MethodGet, "/db/other?open_revs=all", "", "Accept", "multipart/mixed"), int64(less))
	require.Greater(t, n.inBounds(http.MethodPost, "/db/_bulk_get?attachments=true", bulk, "Accept", json), int64(less/3*4))
	require.Greater(t, n.inBounds(http.MethodPost, "/db/_bulk_get", bulk, "Accept", "multipart/mixed"), int64(less))
	require.Greater(t, n.inBounds(http.MethodGet, "/db/_all_docs?include_docs=true&attachments=true&key=%22other%22", ""), int64(less/3*4))
	// Of contents that nobody wants nothing is read.
	require.Empty(t, n.do(http.MethodHead, "/db/doc?attachments=true", "").body)
}

// It is not parallel: other tests would be measured too.
func TestEncodedAttachmentsAreStreamed(t *testing.T) {
	n := startOn(t, memory(t), listenPipe()) // which holds nothing back
	db, err := n.docs.Create(t.Context(), "db")
	require.NoError(t, err)
	const size = 30_000_000 // which gzip makes small
	stored := gzipped(t, strings.Repeat("\x00", size))
	n.replicated(db, "doc", `{}`, false, []string{"a"},
		n.upload(db, "doc", "large", "application/x-bin", strings.NewReader(stored), docstore.UploadOptions{Encoding: "gzip"}))
	require.EqualValues(t, size, n.inBounds(http.MethodGet, "/db/doc/large", "", "Accept-Encoding", "identity"))
	require.Greater(t, n.inBounds(http.MethodGet, "/db/doc?attachments=true", "", "Accept", "application/json"), int64(size))
}

// It is not parallel: other tests would be measured too.
func TestListingsAreStreamed(t *testing.T) {
	n := startOn(t, memory(t), listenPipe()) // which holds nothing back
	db, err := n.docs.Create(t.Context(), "db")
	require.NoError(t, err)
	const count = 20_000
	n.fill(db, count, `{"text":"`+strings.Repeat("x", 800)+`"}`)
	var ids, keys []string
	for i := range count {
		ids, keys = append(ids, fmt.Sprintf(`{"id":"%06d"}`, i)), append(keys, fmt.Sprintf(`"%06d"`, i))
	}
	const most = count * 800
	require.Greater(t, n.inBounds(http.MethodGet, "/db/_all_docs?include_docs=true", ""), int64(most))
	require.Greater(t, n.inBounds(http.MethodPost, "/db/_all_docs?include_docs=true", `{"keys":[`+strings.Join(keys, ",")+`]}`), int64(most))
	require.Greater(t, n.inBounds(http.MethodPost, "/db/_bulk_get", `{"docs":[`+strings.Join(ids, ",")+`]}`), int64(most))
	require.Equal(t, count, strings.Count(n.get("/db/_all_docs").body, `"rev"`))
}

// What a client asks for is not kept as more than it sent.
//
// It is not parallel: other tests would be measured too.
func TestListsTakeLittleMemory(t *testing.T) {
	n := startOn(t, memory(t), listenPipe()) // which holds nothing back
	db, err := n.docs.Create(t.Context(), "db")
	require.NoError(t, err)
	n.fill(db, 1, `{}`)
	many := func(text string, size int) string {
		return "[" + strings.Repeat(text+",", size/(len(text)+1)) + text + "]"
	}
	for path, body := range map[string]string{
		"/db/_all_docs?limit=200000": `{"keys":` + many("1", 2_000_000) + `}`,
		"/db/_bulk_get":              `{"docs":` + many("1", 200_000) + `,"more":` + many("1", 2_000_000) + `}`,
	} {
		require.Greater(t, n.inBoundsOf(12<<20, http.MethodPost, path, body), int64(5<<20))
	}
}

// Time is the bubble's, and the network is in memory.
func TestLongAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := startOn(t, memory(t), listenPipe())
		db, err := n.docs.Create(t.Context(), "db")
		require.NoError(t, err)
		const size = 3_000_000
		n.replicated(db, "doc", `{}`, false, []string{"a"},
			n.upload(db, "doc", "bin", "application/x-bin", bytes.NewReader(binary(size)), docstore.UploadOptions{}))
		for target, want := range map[string]int64{"/db/doc/bin": size, "/db/doc?open_revs=all": size + 700} {
			conn, err := n.dial(t.Context())
			require.NoError(t, err)
			_, err = io.WriteString(conn, "GET "+target+" HTTP/1.1\r\n"+rawHead+"Accept: */*\r\n\r\n")
			require.NoError(t, err)
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			var got int64
			for err == nil { // as slowly as a client may be: it takes some minutes
				var n int64
				n, err = io.CopyN(io.Discard, response.Body, 250_000)
				got += n
				time.Sleep(50 * time.Second)
			}
			require.ErrorIs(t, err, io.EOF)
			require.InDelta(t, want, got, 200, target)
			require.NoError(t, response.Body.Close())
			require.NoError(t, conn.Close())
		}
		line := n.log.line(t, `"path":"/db/doc/bin"`)
		require.Greater(t, line["duration"], float64((9 * time.Minute).Milliseconds()))
		require.Equal(t, strconv.Itoa(size), fmt.Sprint(int64(line["bytes"].(float64))))
	})
}
