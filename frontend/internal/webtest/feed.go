package webtest

import (
	"bufio"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Feed is a changes feed as its client reads it.
type Feed struct {
	*testing.T
	Response *http.Response
	Lines    *bufio.Reader
	Began    time.Time
}

// Follow opens a feed of the database db.
func (n *Node) Follow(query string, headers ...string) *Feed {
	n.Helper()
	return n.Open(http.MethodGet, query, "", headers...)
}

// Open opens a feed of the database db with a method and a body.
func (n *Node) Open(method, query, body string, headers ...string) *Feed {
	n.Helper()
	return n.OpenAt(method, "/db/_changes"+query, body, headers...)
}

// OpenAt opens a feed of a path.
func (n *Node) OpenAt(method, target, body string, headers ...string) *Feed {
	n.Helper()
	began := time.Now()
	response, err := n.Stream(method, target, body, headers...)
	require.NoError(n, err)
	require.Equal(n, http.StatusOK, response.StatusCode)
	n.Cleanup(func() { response.Body.Close() })
	return &Feed{n.T, response, bufio.NewReader(response.Body), began}
}

// Line waits for a line.
func (f *Feed) Line() string {
	f.Helper()
	line, err := f.Lines.ReadString('\n')
	require.NoError(f, err)
	return AnySequence(strings.TrimSuffix(line, "\n"))
}

// Expect waits for lines that begin so, and no others.
func (f *Feed) Expect(prefixes ...string) {
	f.Helper()
	for _, prefix := range prefixes {
		line := f.Line()
		require.True(f, strings.HasPrefix(line, prefix) && (prefix != "" || line == ""), "%q is not %q", line, prefix)
	}
}

// Rest waits for the end.
func (f *Feed) Rest() string {
	f.Helper()
	text, err := io.ReadAll(f.Lines)
	require.NoError(f, err)
	return AnySequence(string(text))
}

// After requires that so much time has passed since the feed was opened.
func (f *Feed) After(d time.Duration) {
	f.Helper()
	require.Equal(f, d, time.Since(f.Began))
}

// Changed returns the beginning of a document's row.
func Changed(id string) string { return `{"seq":"...","id":"` + id + `"` }

// The ends of feeds: of one that is an object, and of the others.
const (
	FeedTail = `],` + "\n" + `"last_seq":"...","pending":0}` + "\n\n"
	FeedLast = `{"last_seq":"...","pending":0}` + "\n\n"
)

// Sequences matches the sequences in the text of a feed.
var Sequences = regexp.MustCompile(`("seq":|"last_seq":|id: )"([^"]*)"`)

// AnySequence returns the text of a feed without its sequences, which differ from server to server.
func AnySequence(text string) string { return Sequences.ReplaceAllString(text, `$1"..."`) }
