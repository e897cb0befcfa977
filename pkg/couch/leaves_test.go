package couch_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/couch"
	"settee/pkg/couch/couchtest"
)

// mixed is a multipart/mixed answer with one document with two attachments.
const mixedHead = "--out\r\nContent-Type: multipart/related; boundary=\"in\"\r\n\r\n" +
	"--in\r\nContent-Type: application/json\r\n\r\n" +
	`{"_id":"x","_rev":"1-a","_attachments":{"a":{"follows":true,"length":3},"old":{"stub":true,"length":9},"b":{"follows":true,"length":2}}}`

const mixedType = `multipart/mixed; boundary="out"`

// leavesUntil reads leaves with all their attachments until an error.
func leavesUntil(t *testing.T, db *couch.Database, id string) (read int, err error) {
	t.Helper()
	leaves, err := db.OpenRevs(t.Context(), id, "1-a", nil)
	if err != nil {
		return 0, err
	}
	defer leaves.Close()
	for {
		leaf, err := leaves.Next()
		if err != nil {
			return read, err
		}
		for {
			a, err := leaf.NextAttachment()
			if err == io.EOF {
				break
			}
			if err == nil {
				_, err = io.Copy(io.Discard, a)
			}
			if err != nil {
				return read, err
			}
			read++
		}
	}
}

func TestMultipartLeaves(t *testing.T) {
	t.Parallel()
	part := func(name, body string) string {
		return "\r\n--in\r\nContent-Disposition: attachment; filename=\"" + name + "\"\r\n\r\n" + body
	}
	const end = "\r\n--in--\r\n--out--"
	for _, test := range []struct {
		name, body string
		read       int
		is         error
		says       string
	}{
		{"good", mixedHead + part("a", "123") + part("b", "12") + end, 2, io.EOF, ""},
		{"no names", mixedHead + "\r\n--in\r\n\r\n123\r\n--in\r\n\r\n12" + end, 2, io.EOF, ""},
		{"odd names", mixedHead + part("=?utf-8?q?a?=", "123") + part("", "12") + end, 2, io.EOF, ""},
		{"escaped names", strings.NewReplacer(`"a"`, `"q\""`, `"b"`, `"q\\\""`).Replace(mixedHead) + part(`q\"`, "123") + part(`q\\\"`, "12") + end, 2, io.EOF, ""},
		{"names in two forms", mixedHead + part(`a"; filename*="UTF-8''a`, "123") + part("b", "12") + end, 2, io.EOF, ""},
		{"escaped and swapped", mixedHead + part(`_"; filename*=UTF-8''b; x="`, "12") + part("a", "123") + end, 0, couch.ErrMalformed, `where that of "a" should be`},
		{"no attachments, twice", "--out\r\nContent-Type: application/json\r\n\r\n{\"_id\":\"x\"}\r\n--out\r\nContent-Type: application/json; " +
			"error=\"true\"\r\n\r\n{\"missing\":\"1-b\"}\r\n--out--", 0, io.EOF, ""},
		{"empty", "", 0, io.ErrUnexpectedEOF, "reading document \"x\""},
		{"wrong boundary", strings.ReplaceAll(mixedHead, "--out", "--other"), 0, io.ErrUnexpectedEOF, ""},
		{"swapped", mixedHead + part("b", "12") + part("a", "123") + end, 0, couch.ErrMalformed, `the part of "b" where that of "a" should be`},
		{"one missing", mixedHead + part("a", "123") + end, 1, io.ErrUnexpectedEOF, `the part of "b"`},
		{"short", mixedHead + part("a", "12") + part("b", "12") + end, 0, io.ErrUnexpectedEOF, `attachment "a": 1 bytes are missing`},
		{"long", mixedHead + part("a", "1234") + part("b", "12") + end, 0, couch.ErrMalformed, `more than the announced 3 bytes`},
		{"cut in an attachment", mixedHead + part("a", "12"), 0, io.ErrUnexpectedEOF, ""},
		{"cut after the last", mixedHead + part("a", "123") + part("b", "12") + "\r\n--in--", 2, io.ErrUnexpectedEOF, ""},
		{"not a document", "--out\r\nContent-Type: application/json\r\n\r\n[]\r\n--out--", 0, couch.ErrMalformed, "not a JSON object"},
		{"not JSON", "--out\r\nContent-Type: application/json\r\n\r\n{\r\n--out--", 0, couch.ErrMalformed, "not a JSON object"},
		{"another's", "--out\r\nContent-Type: application/json\r\n\r\n{\"_id\":\"y\"}\r\n--out--", 0, couch.ErrMalformed, `document "y" was not asked for`},
		{"HTML", "--out\r\nContent-Type: text/html\r\n\r\n<p>\r\n--out--", 0, couch.ErrMalformed, `a part that is text/html`},
		{"no type", "--out\r\n\r\n{}\r\n--out--", 0, couch.ErrMalformed, `Content-Type`},
		{"bad header", "--out\r\nnonsense\r\n\r\n{}\r\n--out--", 0, couch.ErrMalformed, ``},
		{"no header", "--out\r\n", 0, io.ErrUnexpectedEOF, ``},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			read, err := leavesUntil(t, saying(t, mixedType, test.body), "x")
			require.Equal(t, test.read, read)
			require.ErrorIs(t, err, test.is)
			require.ErrorContains(t, err, test.says)
			if test.is != io.EOF {
				require.NotEqual(t, io.EOF, err)
			}
		})
	}
	t.Run("no boundary", func(t *testing.T) {
		t.Parallel()
		_, err := leavesUntil(t, saying(t, "multipart/mixed", "--\r\n"), "x")
		require.ErrorIs(t, err, couch.ErrMalformed)
	})
	t.Run("large document", func(t *testing.T) {
		t.Parallel()
		db := serving(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", mixedType)
			endless("--out\r\nContent-Type: application/json\r\n\r\n", "x")(w, r)
		}, func(c *couch.Config) { c.MaxDocument = 1 << 20 })
		_, err := leavesUntil(t, db, "x")
		require.ErrorIs(t, err, couch.ErrMalformed) // the handler's type is replaced: endless JSON
	})
}

func TestAncestorsFitInAQuery(t *testing.T) {
	t.Parallel()
	ancestors := make([]string, 1000)
	for i := range ancestors {
		ancestors[i] = fmt.Sprintf("%d-%032x", i+1, i)
	}
	var query string
	db := serving(t, func(w http.ResponseWriter, r *http.Request) {
		query = r.URL.RawQuery
		w.Header().Set("Content-Type", mixedType)
		_, _ = io.WriteString(w, "--out--")
	})
	require.Empty(t, readLeaves(t, db, "x", "1001-a", ancestors...))
	values, err := url.ParseQuery(query)
	require.NoError(t, err)
	var named []string
	require.NoError(t, json.Unmarshal([]byte(values.Get("atts_since")), &named))
	require.NotEmpty(t, named)
	require.Equal(t, ancestors[:len(named)], named)
	require.Less(t, len(query), 7000)
}

// TestEveryCut cuts a recorded answer at every byte. A part must never pass for the whole.
func TestEveryCut(t *testing.T) {
	testkit.SkipRace(t)
	testkit.SkipShort(t)
	t.Parallel()
	_, chunked, _ := bytes.Cut(couchtest.Recorded(t, 25).Response, []byte("\r\n\r\n"))
	whole := unchunk(t, chunked)
	boundary := `multipart/mixed; boundary="14f09049fec56b1aeb6b1aa58444b603"`
	server := make(chan []byte, 1)
	db := serving(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", boundary)
		_, _ = w.Write(<-server)
	}, noRetries)
	for n := range len(whole) + 1 {
		server <- whole[:n]
		read, err := leavesUntil(t, db, "att")
		if n < len(whole) {
			// Within the last boundary it looks like an attachment that is too long.
			if !errors.Is(err, couch.ErrMalformed) {
				require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%d bytes of %d", n, len(whole))
			}
			continue
		}
		require.Equal(t, io.EOF, err)
		require.Equal(t, 2, read)
	}
}

func unchunk(t *testing.T, b []byte) []byte {
	t.Helper()
	var whole []byte
	for {
		line, rest, ok := bytes.Cut(b, []byte("\r\n"))
		require.True(t, ok)
		var size int
		_, err := fmt.Sscanf(string(line), "%x", &size)
		require.NoError(t, err)
		if size == 0 {
			return whole
		}
		whole = append(whole, rest[:size]...)
		b = rest[size+2:]
	}
}

func TestJSONLeavesGoWrong(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, body string
		is         error
	}{
		{"empty", "", io.ErrUnexpectedEOF},
		{"cut", `[{"ok":{"_id":"x"}}`, io.ErrUnexpectedEOF},
		{"an object", `{"ok":{"_id":"x"}}`, couch.ErrMalformed},
		{"another's", `[{"ok":{"_id":"y"}}]`, couch.ErrMalformed},
		{"attachments", `[{"ok":{"_id":"x","_attachments":[]}}]`, couch.ErrMalformed},
		{"attachment", `[{"ok":{"_id":"x","_attachments":{"f":[]}}}]`, couch.ErrMalformed},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			db := serving(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, test.body)
			}, noRetries)
			_, err := leavesUntil(t, db, "x")
			require.ErrorIs(t, err, test.is)
			require.ErrorContains(t, err, `reading document "x"`)
		})
	}
	t.Run("an attachment that is gone", func(t *testing.T) {
		t.Parallel()
		db := serving(t, func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/f") {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			_, _ = io.WriteString(w, `[{"ok":{"_id":"x","_rev":"1-a","_attachments":{"f":{"stub":true,"length":2}}}}]`)
		}, noRetries)
		_, err := leavesUntil(t, db, "x")
		require.ErrorIs(t, err, couch.ErrNotFound)
		require.ErrorContains(t, err, `attachments of document "x": GET http`)
	})
	t.Run("an attachment of another length", func(t *testing.T) {
		t.Parallel()
		for length, is := range map[int]error{1: couch.ErrMalformed, 3: io.ErrUnexpectedEOF} {
			db := serving(t, func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/f") {
					_, _ = io.WriteString(w, "12")
					return
				}
				fmt.Fprintf(w, `[{"ok":{"_id":"x","_rev":"1-a","_attachments":{"f":{"stub":true,"length":%d}}}}]`, length)
			}, noRetries)
			_, err := leavesUntil(t, db, "x")
			require.ErrorIs(t, err, is)
		}
	})
}
