package couch

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"settee/internal/costtest"
)

// Bytes that may be allocated per byte of an answer. Most of them are garbage at once.
const (
	changesBudget = 64  // an id, a slice of revisions and a revision, for a row of 33 bytes
	bulkBudget    = 128 // an error instead of a document, for {}, of 3 bytes
	partsBudget   = 256 // two buffers of 4 KiB for a part that has parts, of some 80 bytes; what a document says of an attachment, for "":{},
	cookieBudget  = 64
)

// counted is a reader that counts requested bytes.
type counted struct {
	io.Reader
	calls, bytes int
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.calls++
	c.bytes += n
	return n, err
}

// once fails the test if bytes were read or searched more than once.
func (c *counted) once(t *testing.T, text string) {
	t.Helper()
	if c.bytes > len(text) || c.calls > len(text)+100 {
		t.Errorf("%d bytes were read in %d calls, of %d that there are", c.bytes, c.calls, len(text))
	}
}

// in returns a reader of a text, optionally byte by byte.
func in(text string, pieces bool) *counted {
	if pieces {
		return &counted{Reader: iotest.OneByteReader(strings.NewReader(text))}
	}
	return &counted{Reader: strings.NewReader(text)}
}

func FuzzChanges(f *testing.F) {
	const row = `{"seq":"1-x","id":"a","changes":[{"rev":"1-a"}]}`
	f.Add(`{"results":[` + row + `],"last_seq":"1-x","pending":0}`)
	f.Add("\n\n" + `{"seq":1,"id":"a","changes":[{"rev":"1-a"}],"deleted":true}` + "\n" + `{"last_seq":1}`)
	f.Add(`{"results":[{"seq":1,"id":"a","changes":[{"rev":"1-a"}]}{"error":"e","reason":"r"}`)
	f.Add(row + "\n" + `{"seq":"2-x","id":"b","changes":[{"rev":"1-b"}],"deleted":true}`)
	f.Add("{\"results\":[\n\n\n" + row + strings.Repeat(",\n\n\n"+row, 100) + "\n\n],\n\"last_seq\":[1,\"x\"],\"pending\":null}")
	f.Add(strings.Repeat("\n", 3000) + strings.Repeat(`{"id":"","changes":[{"rev":""}]}`+"\n", 100) + `{"last_seq":{},"pending":-1}`)
	f.Add(`{"last_seq":"9","pending":1e9,"results":[{"id":"a","changes":[` + strings.Repeat(`{"rev":""},`, 500) + `{}]}]}`)
	f.Add(`{"results":[{"seq":"` + strings.Repeat("g", 5_000) + `","id":"a","changes":[{"rev":"1-a"}]},` + row + `],"last_seq":""}`)
	f.Add(`{"results":[` + strings.Repeat(`{"a":`, 200))
	f.Fuzz(func(t *testing.T, text string) {
		for _, feed := range []Feed{FeedNormal, FeedContinuous} {
			_ = drainChanges(strings.NewReader(text), feed)
			allRows(t, text, feed)
			for _, pieces := range []bool{false, true} {
				r := in(text, pieces)
				costtest.Memory(changesBudget).Check(t, len(text), func() { _ = drainChanges(r, feed) })
				r.once(t, text)
			}
		}
	})
}

func drainChanges(r io.Reader, feed Feed) error {
	c := newChanges(r, feed)
	for {
		row, err := c.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if len(row.Revs) == 0 && row.Err == nil || !utf8.ValidString(row.ID) || (row.Seq != nil && !json.Valid(row.Seq)) {
			panic("a row that should have been refused")
		}
	}
}

func FuzzUpdates(f *testing.F) {
	const row = `{"db_name":"a","type":"updated","seq":"1-x"}` + "\n"
	f.Add("\n\n" + row + "\n" + row + `{"last_seq":"1-x"}`)
	f.Add(row + `{"error":"e","reason":"r"}`)
	f.Add(`{"db_name":"","seq":null,"type":"\u0061"}{"seq":1}`)
	f.Add(strings.Repeat("\n", 3000) + strings.Repeat(`{"db_name":"x","ok":true}`, 100))
	f.Fuzz(func(t *testing.T, text string) {
		drain := func(r io.Reader) {
			u := newUpdates(r)
			for {
				update, err := u.Next()
				if err != nil {
					return
				}
				if !utf8.ValidString(update.Database) || (update.Seq != nil && !json.Valid(update.Seq)) {
					panic("a row that should have been refused")
				}
			}
		}
		for _, pieces := range []bool{false, true} {
			r := in(text, pieces)
			costtest.Memory(changesBudget).Check(t, len(text), func() { drain(r) })
			r.once(t, text)
		}
	})
}

func FuzzBulkGet(f *testing.F) {
	f.Add(`{"results":[{"id":"x","docs":[{"ok":{"_id":"x","_attachments":{"f":{"stub":true}}}},{"missing":"1-a"},{}]}]}`)
	f.Add(`{"results":[{"docs":[{"error":{"id":"x","rev":"1-a","error":"not_found","reason":"missing"}}],"id":"y"}],"a":[{}]}`)
	f.Add(`{"results":[{"id":"x","docs":[` + strings.Repeat(`{},`, 500) + `{"ok":{"_id":"x"}}]}]}`)
	f.Add(`{"results":[{"id":"y","docs":[{"ok":{"_id":"y","a":"` + strings.Repeat("z", 900) + `"}}]},{"id":"x","docs":[{"error":{}}]}]}`)
	f.Add(`{"results":[` + strings.Repeat(`{"id":"x","id":"y","docs":[]},`, 100) + `{}],"results":[]}`)
	f.Fuzz(func(t *testing.T, text string) {
		for _, pieces := range []bool{false, true} {
			r := in(text, pieces)
			costtest.Memory(bulkBudget).Check(t, len(text), func() { _ = drainBulkGet(r) })
			r.once(t, text)
		}
	})
}

func drainBulkGet(r io.Reader) error {
	b := newBulkResults([]DocRef{{ID: "x", Rev: "1-a"}, {ID: "y"}}, 1000)
	b.j = newAnswerReader(r, 16)
	answered := map[string]bool{}
	for {
		f, err := b.Next()
		if err == io.EOF {
			if !answered["x"] || !answered["y"] {
				panic("a document that nothing was said of")
			}
			return nil
		}
		if err != nil {
			return err
		}
		answered[f.ID] = true
		if f.Err == nil && (!json.Valid(f.Doc.Body) || f.Doc.ID != f.ID) {
			panic("a document that should have been refused")
		}
	}
}

func FuzzRevsDiff(f *testing.F) {
	f.Add(`{"x":{"missing":["1-a"]},"y":{"missing":["2-b","1-c"],"possible_ancestors":["1-a"]}}`)
	f.Add(`{"y":{"missing":[` + strings.Repeat(`"",`, 300) + `"1-c"],"possible_ancestors":[` + strings.Repeat(`"",`, 300) + `""]},"z":{}}`)
	f.Add(`{"y":{"missing":[` + strings.Repeat(`"1-c",`, 300) + `"1-c"]}}`)
	asked := []DocRevs{{ID: "x", Revs: []string{"1-a"}}, {ID: "y", Revs: []string{"1-c", "2-b", "3-c"}}}
	f.Fuzz(func(t *testing.T, text string) {
		for _, pieces := range []bool{false, true} {
			r := in(text, pieces)
			costtest.Memory(changesBudget).Check(t, len(text), func() {
				missing, err := readRevsDiff(r, asked)
				for i, m := range missing {
					if err == nil && len(m.Revs) > len(asked[i].Revs) {
						t.Errorf("more is missing than was asked for: %v", m)
					}
				}
			})
			r.once(t, text)
		}
	})
}

func FuzzWinners(f *testing.F) {
	f.Add(`{"total_rows":1,"offset":null,"rows":[{"id":"x","key":"x","value":{"rev":"1-a","deleted":true}},{"key":"y","error":"not_found"}]}`)
	f.Add(`{"rows":[` + strings.Repeat(`{"key":"","value":{"rev":""}},`, 300) + `{"key":"y","error":"ill","reason":{}}],"a":[]}`)
	asked := []string{"x", "y", "x"}
	f.Fuzz(func(t *testing.T, text string) {
		for _, pieces := range []bool{false, true} {
			r := in(text, pieces)
			costtest.Memory(changesBudget).Check(t, len(text), func() {
				winners, err := readWinners(r, asked)
				if err == nil && (len(winners) != len(asked) || winners[0] != winners[2]) {
					t.Errorf("not an answer: %v", winners)
				}
			})
			r.once(t, text)
		}
	})
}

func FuzzMultipart(f *testing.F) {
	f.Add("--b\r\nContent-Type: application/json\r\n\r\n{\"_id\":\"x\"}\r\n--b\r\nContent-Type: application/json; error=\"true\"\r\n\r\n{\"missing\":\"1-a\"}\r\n--b--", false)
	f.Add("--b\r\nContent-Type: multipart/related; boundary=\"c\"\r\n\r\n--c\r\nContent-Type: application/json\r\n\r\n"+
		`{"_id":"x","_attachments":{"f":{"follows":true,"length":3}}}`+"\r\n--c\r\nContent-Length: 3\r\n\r\n123\r\n--c--\r\n--b--", true)
	f.Add("--b\r\nContent-Type: multipart/related; boundary=\"b\"\r\n\r\n--b\r\nContent-Type: application/json\r\n\r\n"+
		`{"_id":"x","_attachments":{`+strings.Repeat(`"":{"follows":true},`, 30)+`"f":{}}}`+strings.Repeat("\r\n--b\r\n\r\n", 30)+"\r\n--b--", true)
	f.Add("--b\r\nContent-Type: application/json\r\n\r\n"+`{"_id":"x","_attachments":{`+strings.Repeat(`"":{},`, 120)+`"":{}}}`+"\r\n--b--", true)
	f.Add("--b\r\n"+strings.Repeat("a:\r\n", 300)+"\r\n\r\n--b--", true)
	f.Add("--b\r\nContent-Type: a/b"+strings.Repeat("; a*0=b", 300)+"\r\n\r\n--b--", true)
	f.Fuzz(func(t *testing.T, text string, read bool) {
		r := in(text, len(text)%2 == 0)
		costtest.Memory(partsBudget).Check(t, len(text), func() { readParts(t, r, text, read) })
		r.once(t, text)
	})
}

// readParts reads the leaves of an answer, and their attachments.
func readParts(t *testing.T, r io.Reader, text string, read bool) {
	t.Helper()
	leaves, err := newMultipartLeaves(r, "b", "x", 1000)
	if err != nil {
		t.Fatal(err)
	}
	for {
		leaf, err := leaves.next()
		if err == io.EOF && !strings.Contains(text, "--b--") {
			t.Fatal("an end that is none")
		}
		if err != nil {
			return
		}
		if leaf.Err == nil && !json.Valid(leaf.Doc.Body) {
			t.Fatal("a document that should have been refused")
		}
		leaf.fail = func(err error) error { return err } // normally set by Leaves
		for read {
			a, err := leaf.NextAttachment()
			if err == io.EOF {
				break
			}
			if err != nil {
				return
			}
			n, err := io.Copy(io.Discard, a)
			if err == nil && a.size() >= 0 && n != a.size() {
				t.Fatal("an attachment of the wrong length")
			}
		}
	}
}

// FuzzLeaves reads JSON answers to open_revs.
func FuzzLeaves(f *testing.F) {
	f.Add(`[{"ok":{"_id":"x","_rev":"1-a","_attachments":{"f":{"stub":true,"length":3}}}},{"missing":"1-b"}]`)
	f.Add(`[` + strings.Repeat(`{},`, 300) + `{"ok":{"_id":"x"}}]`)
	f.Add(`[{"ok":{"_id":"x","_attachments":{` + strings.Repeat(`"":{},`, 120) + `"":{"stub":true}}}}]`)
	f.Fuzz(func(t *testing.T, text string) {
		r := in(text, len(text)%2 == 0)
		costtest.Memory(partsBudget).Check(t, len(text), func() {
			none := func(string, Attachment) (*AttachmentReader, error) { return nil, io.EOF }
			leaves := &jsonLeaves{j: newAnswerReader(r, 16), id: "x", maxDocument: 1000, attachment: none}
			for {
				leaf, err := leaves.next()
				if err != nil {
					return
				}
				if leaf.Err == nil && !json.Valid(leaf.Doc.Body) {
					t.Fatal("a document that should have been refused")
				}
			}
		})
		r.once(t, text)
	})
}

func FuzzSessionCookie(f *testing.F) {
	const date = "Sat, 21 Nov 2026 01:00:00 GMT"
	f.Add("AuthSession=abc; Version=1; Path=/; HttpOnly; Max-Age=600", date)
	f.Add("authsession=\"a b\"; Expires=Sat, 21-Nov-2026 01:10:00 GMT", date)
	f.Add("AuthSession=; Max-Age=0\nAuthSession=x; Max-Age=-1\nother=1\nAuthSession=y; Max-Age=99999999999999999999", date)
	f.Add("AuthSession=a"+strings.Repeat("; Path=/", 1000), "yesterday")
	f.Add("AuthSession=a\rb; Expires=Fri, 31 Dec 9999 23:59:59 GMT", "Mon, 01 Jan 0001 00:00:00 GMT")
	f.Fuzz(func(t *testing.T, lines, date string) {
		header := http.Header{"Set-Cookie": strings.Split(lines, "\n"), "Date": {date}}
		costtest.Memory(cookieBudget).Check(t, len(lines), func() {
			g := granted(header)
			if g == (grant{}) {
				return
			}
			if g.secret == "" || g.age < 0 {
				t.Fatalf("a cookie that is none: %+v", g)
			}
			// It can be sent, and arrives unchanged.
			r := http.Request{Header: http.Header{"Cookie": {sessionCookie + "=" + g.secret}}}
			if c, err := r.Cookie(sessionCookie); err != nil || strings.Trim(c.Value, " ") != strings.Trim(g.secret, " ") || strings.ContainsAny(g.secret, "\r\n;") {
				t.Fatalf("%q is sent as %v: %v", g.secret, c, err)
			}
			s := session{by: cookies{}}
			s.take(g, time.Now(), Config{SessionRefresh: time.Minute})
			if left := time.Until(s.expires); left > longestSession || s.renew.After(s.expires) {
				t.Fatalf("it is good for %s, and is to be renewed at %s", left, s.renew)
			}
		})
	})
}
