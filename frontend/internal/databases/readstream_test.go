package databases_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
	"settee/internal/costtest"
	"settee/internal/testkit"
	"settee/pkg/docstore"
	"settee/pkg/kv/enginetest"
)

// zeros is a content of many bytes that takes no memory.
func zeros(size int64) io.Reader { return io.LimitReader(zeroReader{}, size) }

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// streaming starts a node whose store counts what is read, on a network that holds nothing back.
func streaming(t *testing.T) (*node, *enginetest.Controlled, *docstore.Database) {
	t.Helper()
	store := enginetest.Control(webtest.Memory(t))
	n := startOn(t, store, webtest.ListenPipe())
	return n, store, n.NewDatabase("db")
}

// streams reads an answer and requires that the node never reads much more from its store than it has sent. It returns
// the number of bytes of the answer.
func (n *node) streams(store *enginetest.Controlled, method, target, body string, headers ...string) (size int64) {
	n.Helper()
	store.BytesRead.Store(0)
	response, err := n.Stream(method, target, body, headers...)
	require.NoError(n, err)
	defer response.Body.Close()
	require.Equal(n, http.StatusOK, response.StatusCode)
	for {
		read, err := io.CopyN(io.Discard, response.Body, 100_000)
		size += read
		require.Less(n, store.BytesRead.Load()-size, int64(3<<20), "after %d bytes of %s", size, target)
		if err == io.EOF {
			return size
		}
		require.NoError(n, err)
	}
}

func TestLargeAttachmentsAreStreamed(t *testing.T) {
	t.Parallel()
	n, store, db := streaming(t)
	size, less := int64(webtest.UnderRace(30_000_000, 8_000_000)), int64(webtest.UnderRace(10_000_000, 5_000_000))
	for id, size := range map[string]int64{"doc": size, "other": less} {
		n.replicated(db, id, `{}`, false, []string{"a"},
			n.upload(db, id, "large", "application/x-bin", zeros(size), docstore.UploadOptions{}))
	}
	const json, bulk = "application/json", `{"docs":[{"id":"other"}]}`
	require.Equal(t, size, n.streams(store, http.MethodGet, "/db/doc/large", ""))
	require.Greater(t, n.streams(store, http.MethodGet, "/db/doc?attachments=true", "", "Accept", json), size/3*4)
	require.Greater(t, n.streams(store, http.MethodGet, "/db/doc?attachments=true", "", "Accept", "multipart/related"), size)
	require.Greater(t, n.streams(store, http.MethodGet, "/db/other?open_revs=all&attachments=true", "", "Accept", json), less/3*4)
	require.Greater(t, n.streams(store, http.MethodGet, "/db/other?open_revs=all", "", "Accept", "multipart/mixed"), less)
	require.Greater(t, n.streams(store, http.MethodPost, "/db/_bulk_get?attachments=true", bulk, "Accept", json), less/3*4)
	require.Greater(t, n.streams(store, http.MethodPost, "/db/_bulk_get", bulk, "Accept", "multipart/mixed"), less)
	require.Greater(t, n.streams(store, http.MethodGet, "/db/_all_docs?include_docs=true&attachments=true&key=%22other%22", ""), less/3*4)
	// Contents that are not sent are not read.
	require.Empty(t, n.Do(http.MethodHead, "/db/doc?attachments=true", "").Body)
}

func TestEncodedAttachmentsAreStreamed(t *testing.T) {
	t.Parallel()
	n, store, db := streaming(t)
	size := webtest.UnderRace(10_000_000, 5_000_000)
	content := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(content) // which gzip cannot shrink; never fails
	stored := webtest.Gzipped(t, string(content))
	n.replicated(db, "doc", `{}`, false, []string{"a"},
		n.upload(db, "doc", "large", "application/x-bin", strings.NewReader(stored), docstore.UploadOptions{Encoding: "gzip"}))
	require.EqualValues(t, size, n.streams(store, http.MethodGet, "/db/doc/large", "", "Accept-Encoding", "identity"))
	require.Greater(t, n.streams(store, http.MethodGet, "/db/doc?attachments=true", "", "Accept", "application/json"), int64(size))
}

func TestListingsAreStreamed(t *testing.T) {
	testkit.SkipRace(t)
	t.Parallel()
	n, store, db := streaming(t)
	const count = 10_000
	n.fill(db, count, `{"text":"`+strings.Repeat("x", 800)+`"}`)
	var ids, keys []string
	for i := range count {
		ids, keys = append(ids, fmt.Sprintf(`{"id":"%06d"}`, i)), append(keys, fmt.Sprintf(`"%06d"`, i))
	}
	const most = count * 800
	require.Greater(t, n.streams(store, http.MethodGet, "/db/_all_docs?include_docs=true", ""), int64(most))
	require.Greater(t, n.streams(store, http.MethodPost, "/db/_all_docs?include_docs=true", `{"keys":[`+strings.Join(keys, ",")+`]}`), int64(most))
	require.Greater(t, n.streams(store, http.MethodPost, "/db/_bulk_get", `{"docs":[`+strings.Join(ids, ",")+`]}`), int64(most))
	require.Equal(t, count, strings.Count(n.Get("/db/_all_docs").Body, `"rev"`))
}

// A list that a client sends costs no more than a few times its length. It is not parallel: it measures the process.
func TestListsTakeLittleMemory(t *testing.T) {
	n := start(t)
	n.fill(n.NewDatabase("db"), 1, `{}`)
	many := func(text string, size int) string {
		return "[" + strings.Repeat(text+",", size/(len(text)+1)) + text + "]"
	}
	for path, body := range map[string]string{
		"/db/_all_docs?limit=200000": `{"keys":` + many("1", 2_000_000) + `}`,
		"/db/_bulk_get":              `{"docs":` + many("1", 200_000) + `,"more":` + many("1", 2_000_000) + `}`,
	} {
		var got webtest.Answer
		costtest.Bound{Memory: 64 << 20, MemoryPerByte: 150}.Check(t, len(body), func() {
			got = n.Do(http.MethodPost, path, body, "Content-Type", "application/json")
		})
		require.Equal(t, http.StatusOK, got.Status)
		require.Greater(t, len(got.Body), 5<<20)
	}
}

// Time is the bubble's, and the network is in memory.
func TestLongAnswers(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := startOn(t, webtest.Memory(t), webtest.ListenPipe())
		db := n.NewDatabase("db")
		const size = 3_000_000
		n.replicated(db, "doc", `{}`, false, []string{"a"},
			n.upload(db, "doc", "bin", "application/x-bin", bytes.NewReader(binary(size)), docstore.UploadOptions{}))
		for target, want := range map[string]int64{"/db/doc/bin": size, "/db/doc?open_revs=all": size + 700} {
			conn := n.Connect()
			conn.Send("GET " + target + " HTTP/1.1\r\n" + webtest.RawHead + "Accept: */*\r\n\r\n")
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
		line := n.Journal.Line(t, `"path":"/db/doc/bin"`)
		require.Greater(t, line["duration"], float64((9 * time.Minute).Milliseconds()))
		require.Equal(t, strconv.Itoa(size), fmt.Sprint(int64(line["bytes"].(float64))))
	})
}
