package frontend_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
	"settee/internal/testkit"
	"settee/pkg/docstore"
)

// sixteenMegabytes is the memory of clients with the setting smallMemory.
const (
	smallMemory      = "settee/memory_limit_bytes=67108864"
	sixteenMegabytes = 16 << 20
)

// memoryStays checks the sum of the memory of all requests.
func (n *node) memoryStays() {
	n.Helper()
	require.LessOrEqual(n, n.handler.Usage().Memory, int64(sixteenMegabytes))
}

// inBubble runs a test of a node with the database db, in which there is one document.
func inBubble(t *testing.T, settings []string, test func(t *testing.T, n *node, db *docstore.Database)) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) {
		n := startOn(t, webtest.Memory(t), webtest.ListenPipe(), settings...)
		db := n.NewDatabase("db")
		webtest.Write(t, db, webtest.Doc("first", `{"n":1}`))
		test(t, n, db)
	})
}

// largeList returns a JSON object of about so many bytes.
func largeList(size int) string {
	return `{"l":[` + strings.Repeat(`"`+strings.Repeat("x", 97)+`",`, size/100) + `1]}`
}

func TestStalledBodiesGiveMemoryBack(t *testing.T) {
	inBubble(t, []string{smallMemory}, func(t *testing.T, n *node, _ *docstore.Database) {
		body := largeList(2_000_000)
		for range 40 {
			c := n.Connect()
			go c.Begin(http.MethodPost, "/db/_revs_diff", body)
		}
		synctest.Wait()
		n.memoryStays()
		require.Greater(t, n.handler.Usage().Memory, int64(sixteenMegabytes/3), "they hold what there is for bodies")
		began := time.Now()
		n.Get("/db/first").Is(t, http.StatusOK)
		n.Get("/_up").Is(t, http.StatusOK)
		require.Zero(t, time.Since(began), "what a node needs to read is kept free")
		n.Do(http.MethodPost, "/db/_revs_diff", `{"first":["1-`+strings.Repeat("a", 10_000)+`"]}`, "Content-Type", "application/json").
			Is(t, http.StatusOK)
		require.LessOrEqual(t, time.Since(began), time.Second, "a body that stalls for half a second makes room")
		n.memoryStays()
	})
}

func TestUnreadAnswersGiveMemoryBack(t *testing.T) {
	for _, path := range []string{"/db/large", "/db/_all_docs?include_docs=true", "/db/_changes?include_docs=true", "/db/large?open_revs=all", "/db/large/a"} {
		t.Run(path, func(t *testing.T) {
			inBubble(t, []string{smallMemory}, func(t *testing.T, n *node, _ *docstore.Database) {
				body := `{"_attachments":{"a":{"data":"` + strings.Repeat("aaaa", 500_000) + `"}},` + largeList(1_000_000)[1:]
				n.Do(http.MethodPut, "/db/large", body, "Content-Type", "application/json").Is(t, http.StatusCreated)
				for range 40 {
					c := n.Connect()
					go c.Send("GET " + path + " HTTP/1.1\r\n" + webtest.RawHead + "\r\n")
				}
				synctest.Wait()
				n.memoryStays()
				require.Greater(t, n.handler.Usage().Memory, int64(sixteenMegabytes/3))
				began := time.Now()
				n.Get("/db/first").Is(t, http.StatusOK)
				require.Zero(t, time.Since(began), "a small document needs no memory of its own")
				n.Get("/db/large").Is(t, http.StatusOK)
				require.LessOrEqual(t, time.Since(began), 3*time.Second, "answers that stall for half a second make room, and those that wait have their turns")
				n.memoryStays()
			})
		})
	}
}

func TestWritesWaitForMemory(t *testing.T) {
	inBubble(t, []string{smallMemory}, func(t *testing.T, n *node, _ *docstore.Database) {
		body := largeList(2_000_000)
		answers := make(chan webtest.Answer)
		const writers = 10
		for i := range writers {
			go func() {
				a, err := n.Request(http.MethodPut, fmt.Sprintf("/db/d%d", i), body, "Content-Type", "application/json")
				assert.NoError(t, err)
				answers <- a
			}()
		}
		for range writers {
			(<-answers).Is(t, http.StatusCreated)
			n.memoryStays()
		}
		synctest.Wait()
		require.Zero(t, n.handler.Usage().Memory)
		require.Zero(t, n.handler.Usage().Spooled)
	})
}

func TestSpooledBodiesHaveAQuota(t *testing.T) {
	inBubble(t, []string{smallMemory, "settee/spool_limit_bytes=5000000", "settee/spool_dir=" + t.TempDir()}, func(t *testing.T, n *node, _ *docstore.Database) {
		c := n.Connect()
		go c.Begin(http.MethodPost, "/db/_bulk_docs", `{"docs":[`+largeList(3_500_000)+`]}`)
		synctest.Wait()
		require.Greater(t, n.handler.Usage().Spooled, int64(3_500_000))
		n.Do(http.MethodPost, "/db/_bulk_docs", `{"docs":[`+largeList(3_500_000)+`]}`, "Content-Type", "application/json").Is(t, http.StatusCreated)
		require.Zero(t, c.Status(), "it made room")
		synctest.Wait()
		require.Zero(t, n.handler.Usage().Spooled)
		started := make(chan struct{})
		reader, writer := io.Pipe()
		go func() { // a body that goes on makes no room
			defer writer.Close()
			defer close(started)
			_, _ = io.WriteString(writer, `{"docs":[`+largeList(3_500_000))
			for range 100 {
				time.Sleep(time.Second / 10)
				_, _ = io.WriteString(writer, " ")
			}
			_, _ = io.WriteString(writer, "]}")
		}()
		slow := make(chan int, 1)
		go func() {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+n.Address+"/db/_bulk_docs", reader)
			assert.NoError(t, err)
			request.Header.Set("Content-Type", "application/json")
			response, err := n.Client.Do(request)
			if assert.NoError(t, err) {
				slow <- response.StatusCode
				_ = response.Body.Close()
			}
		}()
		time.Sleep(time.Second)
		refusal := n.Do(http.MethodPost, "/db/_bulk_docs", `{"docs":[`+largeList(3_500_000)+`]}`, "Content-Type", "application/json")
		webtest.Refused(t, refusal, http.StatusServiceUnavailable, "service_unavailable", "this node has too little disk space for the body of the request now: try again later")
		require.NotEmpty(t, refusal.Header.Get("Retry-After"))
		require.Equal(t, http.StatusCreated, <-slow)
	})
}

func TestLargeDocumentsAreSentInPieces(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.NewDatabase("db")
	text := strings.Repeat(`\" { [ ] } \\`, 30_000)
	body := "{\n\t\"text\" : \"" + text + "\",\r\n \"list\": [ 1 , {\"a\" : [ ] } , \" \\\\\" ], \"last\" : { } }\n"
	plain := struct {
		ID, Rev string
		Text    string
		List    []any
		Last    map[string]any
	}{}
	n.Do(http.MethodPut, "/db/large", body, "Content-Type", "application/json").Is(t, http.StatusCreated)
	n.Do(http.MethodPut, "/db/small", `{"a":1}`, "Content-Type", "application/json").Is(t, http.StatusCreated)
	var want json.RawMessage = []byte(strings.ReplaceAll(n.Get("/db/large").Is(t, http.StatusOK).Body, "\n", ""))
	require.NoError(t, json.Unmarshal(want, &plain))
	require.Len(t, plain.Text, len(text)-30_000*2)
	require.NotContains(t, string(want), "\t", "CouchDB sends no white space between the tokens")
	require.Contains(t, string(want), `"list":[1,{"a":[]}," \\"],"last":{}}`)
	rev := string(want[strings.Index(string(want), `"_rev":"`)+8:])
	rev = rev[:strings.IndexByte(rev, '"')]
	for path, before := range map[string]string{
		"/db/_all_docs?include_docs=true":                      `"doc":`,
		"/db/_all_docs?include_docs=true&keys=[\"large\"]":     `"doc":`,
		"/db/_changes?include_docs=true":                       `"doc":`,
		"/db/large?open_revs=all":                              `"ok":`,
		"/db/large?open_revs=[\"" + rev + "\"]&latest=true":    `"ok":`,
		"/db/_changes?include_docs=true&feed=longpoll&limit=1": `"doc":`,
	} {
		got := n.Do(http.MethodGet, strings.ReplaceAll(strings.ReplaceAll(path, `"`, "%22"), "[", "%5B"), "", "Accept", "application/json").Is(t, http.StatusOK)
		require.Contains(t, got.Body, before+string(want)+"}", path)
	}
	got := n.Do(http.MethodPost, "/db/_bulk_get", `{"docs":[{"id":"large"},{"id":"small"}]}`, "Content-Type", "application/json", "Accept", "application/json")
	require.Contains(t, got.Is(t, http.StatusOK).Body, `{"ok":`+string(want)+`}`)
	got = n.Do(http.MethodPost, "/db/_changes?filter=_selector", `{"selector":{"last":{"$exists":true}}}`, "Content-Type", "application/json")
	require.Contains(t, got.Is(t, http.StatusOK).Body, `"id":"large"`)
	require.NotContains(t, got.Body, `"id":"small"`)
	head := n.Do(http.MethodHead, "/db/large", "").Is(t, http.StatusOK)
	require.Equal(t, fmt.Sprint(len(want)+1), head.Header.Get("Content-Length"))
}

func TestLargeHeadersAreRefused(t *testing.T) {
	t.Parallel()
	n := start(t)
	for size, want := range map[int]int{15_000: http.StatusOK, 17_000: http.StatusRequestHeaderFieldsTooLarge} {
		c := n.Connect()
		c.Send("GET / HTTP/1.1\r\n" + webtest.RawHead + "X-Large: " + strings.Repeat("x", size) + "\r\n\r\n")
		require.Equal(t, want, c.Status())
	}
}
