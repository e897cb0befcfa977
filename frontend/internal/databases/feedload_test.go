package databases_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
	"settee/internal/testkit"
	"settee/pkg/docstore"
)

// rawFeed is a feed on a connection of its own.
type rawFeed struct {
	*webtest.Conn
	lines *bufio.Reader
}

func (n *node) rawFeed(query string) *rawFeed {
	n.Helper()
	c := n.Connect()
	c.Send("GET /db/_changes" + query + " HTTP/1.1\r\n" + webtest.RawHead + "\r\n")
	response, err := http.ReadResponse(c.Answers, nil)
	require.NoError(n, err)
	n.Cleanup(func() { response.Body.Close() })
	require.Equal(n, http.StatusOK, response.StatusCode)
	return &rawFeed{c, bufio.NewReader(response.Body)}
}

// expect reads the rows of these documents, in their order, and nothing else.
func (f *rawFeed) expect(ids []string) {
	f.Helper()
	for _, id := range ids {
		line, err := f.lines.ReadString('\n')
		require.NoError(f, err)
		require.Contains(f, line, `"id":"`+id+`"`)
	}
}

// However many feeds wait, the node has one watch for their database.
func TestAThousandFeeds(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n, store, db := streaming(t)
		feeds := make([]*rawFeed, webtest.UnderRace(1_000, 100))
		for i := range feeds {
			feeds[i] = n.rawFeed("?feed=continuous&heartbeat=60000&since=now")
		}
		synctest.Wait()
		watches := store.Watches.Load()
		require.EqualValues(t, 1, watches)
		time.Sleep(25 * time.Second)
		var ids []string
		for i := range 10 { // at once, and one by one
			var edits []docstore.Edit
			for j := range 1 + 4*(i%2) {
				ids = append(ids, fmt.Sprintf("doc%d.%d", i, j))
				edits = append(edits, webtest.Doc(ids[len(ids)-1], `{}`))
			}
			webtest.Write(t, db, edits...)
		}
		for i := range feeds {
			feeds[i].expect(ids)
		}
		require.NoError(t, feeds[0].Close())
		synctest.Wait()
		require.LessOrEqual(t, store.Watches.Load()-watches, int64(len(ids)))
		require.NoError(t, db.Delete(t.Context()))
		for _, f := range feeds[1:] {
			text, err := io.ReadAll(f.lines)
			require.NoError(t, err)
			require.Equal(t, webtest.FeedLast, webtest.AnySequence(string(text)))
		}
	})
}

func TestALongFeedIsStreamed(t *testing.T) {
	testkit.SkipRace(t)
	testkit.SkipShort(t)
	t.Parallel()
	n, store, db := streaming(t)
	const rows, size = 20_000, 600
	n.fill(db, rows, `{"text":"`+strings.Repeat("x", size)+`"}`)
	for query, ids := range map[string]int64{"?include_docs=true": rows, "?include_docs=true&feed=longpoll&limit=10000": rows / 2} {
		require.Greater(t, n.streams(store, http.MethodGet, "/db/_changes"+query, ""), ids*size)
	}
}
