package frontend_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/docstore"
)

// stacks counts the goroutines in whose stack there is a text.
func stacks(text string) int {
	buffer := make([]byte, 64<<20)
	all := string(buffer[:runtime.Stack(buffer, true)])
	n := 0
	for stack := range strings.SplitSeq(all, "\n\n") {
		if strings.Contains(stack, text) {
			n++
		}
	}
	return n
}

// until waits until so many goroutines have a text in their stacks.
func until(t *testing.T, text string, n int) {
	t.Helper()
	for stacks(text) != n {
		require.NoError(t, t.Context().Err())
		runtime.Gosched()
	}
}

// rawFeed is a feed on a connection of its own.
type rawFeed struct {
	conn  net.Conn
	lines *bufio.Reader
}

func (n *node) rawFeed(query string) rawFeed {
	n.Helper()
	conn, err := n.dial(n.Context())
	require.NoError(n, err)
	n.Cleanup(func() { conn.Close() })
	_, err = fmt.Fprintf(conn, "GET /db/_changes%s HTTP/1.1\r\n"+rawHead+"\r\n", query)
	require.NoError(n, err)
	return rawFeed{conn: conn}
}

// open reads the header of the answer.
func (f *rawFeed) open(t *testing.T) {
	t.Helper()
	buffered := bufio.NewReader(f.conn)
	response, err := http.ReadResponse(buffered, nil)
	require.NoError(t, err)
	t.Cleanup(func() { response.Body.Close() })
	require.Equal(t, http.StatusOK, response.StatusCode)
	f.lines = bufio.NewReader(response.Body)
}

// expect reads the rows of these documents, in their order, and nothing else.
func (f *rawFeed) expect(t *testing.T, ids []string) {
	t.Helper()
	for _, id := range ids {
		line, err := f.lines.ReadString('\n')
		require.NoError(t, err)
		require.Contains(t, line, `"id":"`+id+`"`)
	}
}

// It is not parallel: it counts goroutines.
func TestAThousandFeeds(t *testing.T) {
	n := start(t)
	db := n.newDatabase("db")
	const many = 1_000
	feeds := make([]rawFeed, many)
	for i := range feeds {
		feeds[i] = n.rawFeed("?feed=continuous&heartbeat=60000&since=now")
	}
	for i := range feeds {
		feeds[i].open(t)
	}
	until(t, "docstore.(*Database).WaitChange", many)
	// Each has the goroutine of its request, and net/http's, which notices that a client
	// hangs up. All have one watch.
	require.Equal(t, many, stacks("settee/frontend.(*Handler)"))
	require.Equal(t, 1, stacks("docstore.(*ticker).run"))

	var ids []string
	for i := range 10 { // at once, and one by one
		var edits []docstore.Edit
		for j := range 1 + 4*(i%2) {
			ids = append(ids, fmt.Sprintf("doc%d.%d", i, j))
			edits = append(edits, doc(ids[len(ids)-1], `{}`))
		}
		write(t, db, edits...)
	}
	for i := range feeds {
		feeds[i].expect(t, ids)
	}
	require.NoError(t, feeds[0].conn.Close())
	until(t, "docstore.(*Database).WaitChange", many-1)
	require.NoError(t, db.Delete(t.Context()))
	for _, f := range feeds[1:] {
		text, err := io.ReadAll(f.lines)
		require.NoError(t, err)
		require.Equal(t, last, anySequence(string(text)))
	}
	until(t, "docstore.(*ticker).run", 0)
}

// It is not parallel: other tests would be measured too.
func TestALongFeedInLittleMemory(t *testing.T) {
	n := startOn(t, memory(t), listenPipe()) // which holds nothing: the node makes no more than is read
	db := n.newDatabase("db")
	const rows, size, atOnce = 50_000, 300, 500
	body := `{"text":"` + strings.Repeat("x", size) + `"}`
	edits := make([]docstore.Edit, atOnce)
	for i := range rows / atOnce {
		for j := range edits {
			edits[j] = doc(fmt.Sprintf("doc%06d", i*atOnce+j), body)
		}
		write(t, db, edits...)
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC() // twice: pools keep things for one collection
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for query, ids := range map[string]int{"?include_docs=true": rows, "?include_docs=true&feed=longpoll&limit=10000": 10_000} {
		f := n.rawFeed(query)
		f.open(t)
		line, err := f.lines.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "{\"results\":[\n", line)
		for i := range ids {
			line, err := f.lines.ReadString('\n')
			require.NoError(t, err)
			require.Contains(t, line, fmt.Sprintf(`"id":"doc%06d"`, i))
			if i%5_000 == 0 {
				require.Less(t, heap()-before, int64(rows*size/10), "row %d", i)
			}
		}
	}
}
