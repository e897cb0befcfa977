package databases_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
	"settee/internal/testkit"
)

// costly is a selector that takes too many steps on documents whose text is long.
const costly = `{"$or":[{"v":1},{"text":{"$regex":"[ab]{900}x"}}]}`

func longText(n int) string { return `{"text":"` + strings.Repeat("ab", n/2) + `"}` }

func post(n *node, query, text string) webtest.Answer {
	n.Helper()
	return n.Do(http.MethodPost, "/db/_changes?filter=_selector"+query, `{"selector":`+text+`}`)
}

// TestSelectorsThatAreTooLarge sends, among others, a request that once ended a node with 4 GB of memory.
func TestSelectorsThatAreTooLarge(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.NewDatabase("db")
	many := func(count int, each string) string {
		return `{"$or":[` + strings.TrimSuffix(strings.Repeat(each+",", count), ",") + `]}`
	}
	for text, reason := range map[string]string{
		many(100_000, `{"a":{"$regex":".{1000}"}}`): "Selector has more than 1048576 bytes.",
		many(20_000, `{"a":{"$regex":".{1000}"}}`):  "Selector has more than 50000 fields and operators.",
		many(10_000, `{"a":{"$regex":".{1000}"}}`):  "The $regex expressions of the selector have more than 50000 instructions together.",
		many(50_000, `{"a":1}`):                     "Selector has more than 50000 fields and operators.",
	} {
		webtest.Refused(t, post(n, "", text), http.StatusBadRequest, "bad_request", reason)
	}
}

// TestSelectorsThatTakeTooLong checks that a feed whose selector takes too many steps to match a document fails with
// the reason: as an answer of its own if nothing was sent, and behind the rows otherwise, where no last_seq follows.
func TestSelectorsThatTakeTooLong(t *testing.T) {
	testkit.SkipRace(t)
	testkit.SkipShort(t)
	t.Parallel()
	n := start(t)
	db := n.NewDatabase("db")
	webtest.Write(t, db, webtest.Doc("long", longText(200_000)))
	const reason = `Selector error: the selector takes more than 25000000 steps to match the document "long"`
	for _, feed := range []string{"normal", "longpoll", "continuous", "eventsource"} {
		webtest.Refused(t, post(n, "&feed="+feed, costly), http.StatusBadRequest, "bad_request", reason)
	}
	require.Equal(t, http.StatusOK, post(n, "", `{"v":1}`).Status)

	// The first row is larger than what is held back, so that it is sent before the error.
	n.NewDatabase("other")
	db = n.NewDatabase("db2")
	webtest.Write(t, db, webtest.Doc("first", `{"v":1,"more":"`+strings.Repeat("x", 100_000)+`"}`))
	webtest.Write(t, db, webtest.Doc("long", longText(200_000)))
	words := fmt.Sprintf(`{"code":400,"error":"bad_request","reason":%q}`, reason)
	for _, feed := range []string{"eventsource", "normal", "longpoll", "continuous"} {
		end := "\n" + words + "\n"
		if feed == "eventsource" {
			end = "event: error\ndata: " + words + "\n\n"
		}
		got := n.Do(http.MethodPost, "/db2/_changes?filter=_selector&include_docs=true&feed="+feed, `{"selector":`+costly+`}`).Is(t, http.StatusOK)
		require.Contains(t, got.Body, `"id":"first"`, feed)
		require.True(t, strings.HasSuffix(got.Body, end), "%s: %q", feed, got.Body[max(0, len(got.Body)-300):])
		require.NotContains(t, got.Body, "last_seq", feed)
	}
	n.Journal.Line(t, "a feed was ended early", "25000000 steps")
}

// TestAFeedEndsWithItsClient checks that a feed ends after its client has gone, even if no document passes its filter.
func TestAFeedEndsWithItsClient(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.NewDatabase("db")
	for i := range 50 {
		webtest.Write(t, db, webtest.Doc(fmt.Sprintf("d%02d", i), longText(20_000)))
	}
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+n.Address+"/db/_changes?filter=_selector&heartbeat=1",
		strings.NewReader(`{"selector":{"text":{"$regex":"[ab]{400}x"}}}`))
	require.NoError(t, err)
	response, err := n.Client.Do(r) // a heartbeat: it reads documents
	require.NoError(t, err)
	cancel()
	_ = response.Body.Close()
	n.Journal.Line(t, "the client hung up")
}
