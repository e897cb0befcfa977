package couch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDocPath(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"plain-1_2.3~4":     "plain-1_2.3~4",
		"a/b c+dü":          "a%2Fb%20c%2Bd%C3%BC",
		"_design/x":         "_design/x",
		"_design/a/b":       "_design/a%2Fb",
		"_local/a/b+c":      "_local/a%2Fb%2Bc",
		"_designer":         "_designer",
		"x/_design/y":       "x%2F_design%2Fy",
		"a%2Fb?x=1#y&z;:@,": "a%252Fb%3Fx%3D1%23y%26z%3B%3A%40%2C",
		".":                 "%2E",
		"..":                "%2E%2E",
		"...":               "...",
		`"\` + "\x00\n":     "%22%5C%00%0A",
	} {
		require.Equal(t, want, docPath(id))
	}
}

func TestSequenceParameter(t *testing.T) {
	t.Parallel()
	for seq, want := range map[string]string{
		`12`: "12", `"5-g1AA_+\u0041"`: "5-g1AA_+A", `[12, "g1"]`: `[12, "g1"]`, ` "now" `: "now", `1.0`: "1.0",
	} {
		got, err := sequenceParameter(json.RawMessage(seq))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 1, 48, 11, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "5": 5 * time.Second, "-5": 0, "soon": 0, "99999999999999999999": 0,
		"Sat, 21 Nov 2026 01:49:11 GMT": time.Minute, "Sat, 21 Nov 2026 01:00:00 GMT": 0,
	} {
		require.Equal(t, want, retryAfter(value, now), value)
	}
}

func TestWinnersThatAreRefused(t *testing.T) {
	t.Parallel()
	for rows, says := range map[string]string{
		``:                                      `document "x" was left out`,
		`1`:                                     "a row that is not an object",
		`{"id":"x"}`:                            `a row without a key: {"id":"x"}`,
		`{"key":"x"}`:                           `the row of "x" has no revision`,
		`{"key":1}`:                             "member key",
		`{"key":"x","value":1}`:                 "member value: malformed answer: not an object",
		`{"key":"x","value":{"rev":1}}`:         "member value",
		`{"key":"x","value":{"deleted":1}}`:     "neither true nor false",
		`{"key":"y","value":{"rev":"1-a"}}`:     `document "x" was left out`,
		`{"key":"x","error":"ill","reason":{}}`: `document "x": ill: {}`,
	} {
		_, err := readWinners(strings.NewReader(`{"rows":[`+rows+`]}`), []string{"x"})
		require.ErrorContains(t, err, says, rows)
	}
	_, err := readWinners(strings.NewReader(`{"results":[]}`), []string{"x"})
	require.ErrorIs(t, err, ErrMalformed)
}

// TestEveryCutOfJSON cuts answers at every byte.
func TestEveryCutOfJSON(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text string
		read func(string) error
	}{
		"changes": {
			`{"results":[` + "\n" + `{"seq":"1-x","id":"a\"b","changes":[{"rev":"1-a"}],"deleted":true},{"seq":[2,"x"],"id":"b","changes":[{"rev":"1-a"}]}` +
				"\n],\n" + `"last_seq":[2,"x"],"pending":0}`,
			func(s string) error { return drainChanges(strings.NewReader(s), FeedNormal) },
		},
		"continuous changes": {
			`{"seq":1,"id":"a","changes":[{"rev":"1-a"}]}` + "\n\n" + `{"last_seq":1}`,
			func(s string) error { return drainChanges(strings.NewReader(s), FeedContinuous) },
		},
		"bulk get": {
			`{"results":[{"id":"x","docs":[{"ok":{"_id":"x","_rev":"1-a"}},{"error":{"id":"x","error":"e","reason":"r"}}]},{"docs":[],"id":"y"}],"x":1}`,
			func(s string) error { return drainBulkGet(strings.NewReader(s)) },
		},
		"revs diff": {
			`{"x":{"missing":["1-a"],"possible_ancestors":["1-b"]},"y":{}}`,
			func(s string) error {
				_, err := readRevsDiff(strings.NewReader(s), []DocRevs{{ID: "x", Revs: []string{"1-a"}}})
				return err
			},
		},
		"winners": {
			`{"total_rows":1,"offset":0,"rows":[{"id":"x","key":"x","value":{"rev":"1-a","deleted":true}},{"key":"y","error":"not_found"}],"x":1}`,
			func(s string) error { _, err := readWinners(strings.NewReader(s), []string{"x", "y"}); return err },
		},
		"refusals": {
			`[{"id":"x","error":"forbidden","reason":"r"},{"ok":true}]`,
			func(s string) error { _, err := readRefused(strings.NewReader(s)); return err },
		},
		"leaves": {
			`[{"ok":{"_id":"x"}},{"missing":"1-a"}]`,
			func(s string) error {
				l := &jsonLeaves{j: newAnswerReader(strings.NewReader(s), 16), maxDocument: 1000}
				for {
					if _, err := l.next(); err == io.EOF {
						return nil
					} else if err != nil {
						return err
					}
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for n := range test.text {
				require.ErrorIs(t, test.read(test.text[:n]), io.ErrUnexpectedEOF, test.text[:n])
			}
			require.NoError(t, test.read(test.text))
		})
	}
}

func TestParseDocument(t *testing.T) {
	t.Parallel()
	const body = `{ "n" : 12345678901234567890, "_id":"a\u002fb", "_rev" : "1-a" , "_deleted":true, "_Id":1, "x":{"_id":"no","_attachments":7},` +
		`"_attachments" : {"f\u0066": {"content_type":"a/b","revpos":3,"digest":"md5-x","length":5,"stub":true},"g":{"data":"AA==","new":[{}]},` +
		`"h":{"follows":true,"encoding":"gzip","encoded_length":7,"length":9}}, "e":"\u00fc\/" }`
	d, err := ParseDocument([]byte(" " + body + "\n"))
	require.NoError(t, err)
	require.Equal(t, "a/b", d.ID)
	require.Equal(t, "1-a", d.Rev)
	require.True(t, d.Deleted)
	require.Equal(t, body, string(d.Body))
	require.True(t, d.HasAttachments())
	all, err := d.Attachments()
	require.NoError(t, err)
	require.Equal(t, []Attachment{
		{Name: "ff", ContentType: "a/b", RevPos: 3, Digest: "md5-x", Length: 5, EncodedLength: -1, Stub: true},
		{Name: "g", Length: -1, EncodedLength: -1, Inline: true},
		{Name: "h", Length: 9, Encoding: "gzip", EncodedLength: 7, Follows: true},
	}, all)

	// A Document made by a caller works the same.
	byHand := Document{ID: d.ID, Body: d.Body}
	require.True(t, byHand.HasAttachments())
	again, err := byHand.Attachments()
	require.NoError(t, err)
	require.Equal(t, all, again)

	followed, err := byHand.following(false, nil)
	require.NoError(t, err)
	require.Equal(t, strings.NewReplacer(
		`,"stub":true`, `,"follows":true`, `" : {"f\u0066": {`, `" : {"f\u0066":{`).Replace(body), string(followed.Body))
	require.Equal(t, followed.rawAttachments(), Document{Body: followed.Body}.rawAttachments())

	decoded, err := followed.decoded()
	require.NoError(t, err)
	require.Contains(t, string(decoded.Body), `"h":{"follows":true,"length":9}}, "e":"\u00fc\/" }`)

	// CouchDB says the encoded length if it has not compressed the content itself.
	d, err = ParseDocument([]byte(`{"_id":"x","_attachments":{"f":{"stub":true,"length":7,"digest":"md5-x","encoding":"gzip","encoded_length":7}}}`))
	require.NoError(t, err)
	all, err = d.Attachments()
	require.NoError(t, err)
	require.Equal(t, []Attachment{{Name: "f", Digest: "md5-x", Length: -1, Encoding: "gzip", EncodedLength: 7, Stub: true}}, all)
	followed, err = d.following(false, func(a Attachment) (int64, error) { return int64(len(a.Name)), nil })
	require.NoError(t, err)
	require.JSONEq(t, `{"_id":"x","_attachments":{"f":{"follows":true,"length":1}}}`, string(followed.Body))
	kept, err := d.following(true, nil)
	require.NoError(t, err)
	require.JSONEq(t, strings.Replace(string(d.Body), "stub", "follows", 1), string(kept.Body))
	followed.Body = bytes.Replace(d.Body, []byte(`"stub"`), []byte(`"follows"`), 1)
	decoded, err = Document{Body: followed.Body}.decoded()
	require.NoError(t, err)
	require.JSONEq(t, `{"_id":"x","_attachments":{"f":{"follows":true}}}`, string(decoded.Body))

	for _, none := range []string{`{"_id":"x"}`, `{"_id":"x","_attachments":{}}`, `{"_id":"x","_attachments":{ }}`, `{"_id":"x","a":{"_attachments":{"f":{}}}}`} {
		d, err := ParseDocument([]byte(none))
		require.NoError(t, err)
		require.False(t, d.HasAttachments(), none)
		same, err := d.following(true, nil)
		require.NoError(t, err)
		require.Equal(t, strings.ReplaceAll(none, "{ }", "{}"), string(same.Body))
	}
	for _, bad := range []string{
		``, `[]`, `7`, `{`, `{}`, `{"_id":""}`, `{"_id":7}`, `{"_id":"x","_rev":[]}`, `{"_id":"x","_deleted":"true"}`,
		`{"_id":"x","_attachments":[]}`, `{"_id":"x","_id":"y"}`, `{"_id":"x","_attachments":{},"_attachments":{}}`, "{\"_id\":\"\xff\"}",
	} {
		_, err := ParseDocument([]byte(bad))
		require.ErrorIs(t, err, ErrMalformed, bad)
		require.False(t, Document{Body: []byte(bad)}.HasAttachments())
	}
}

func FuzzDocument(f *testing.F) {
	for _, seed := range []string{
		`{"_id":"x"}`, `{ "a" : [ ], "_id" : "x" , "_attachments" : { "f" : { "stub" : true , "length" : 5 } , "g":{}} , "z":1.0 }`,
		`{"_id":"x","_attachments":{"\u0000":{"stub":false,"stub":true}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := ParseDocument(b)
		if err != nil {
			return
		}
		followed, err := d.following(len(b)%2 == 0, func(Attachment) (int64, error) { return 7, nil })
		if err != nil {
			return
		}
		if !json.Valid(followed.Body) {
			t.Fatalf("%q became %q", d.Body, followed.Body)
		}
		// Everything except the value of _attachments stays the same.
		at, tail := d.attachments.start, d.Body[d.attachments.end:]
		if !bytes.HasPrefix(followed.Body, d.Body[:at]) || !bytes.HasSuffix(followed.Body, tail) {
			t.Fatalf("%q became %q", d.Body, followed.Body)
		}
		before, _ := d.Attachments()
		after, err := followed.Attachments()
		if err != nil || len(before) != len(after) {
			t.Fatalf("%v became %v: %v", before, after, err)
		}
		for i := range after {
			if after[i].Name != before[i].Name || after[i].Stub || before[i].Stub && !after[i].Follows {
				t.Fatalf("%v became %v", before[i], after[i])
			}
		}
	})
}

// A row in CouchDB's spelling is equal to the row in any other spelling.
func TestPlainRows(t *testing.T) {
	t.Parallel()
	for text, plain := range map[string]bool{
		`{"seq":"1-g1","id":"a","changes":[{"rev":"1-a"}]}`:                true,
		`{"seq":"","id":"a","changes":[{"rev":""}]}`:                       true,
		`{"seq":"1-g1","id":"a","changes":[{"rev":"1-a"}],"deleted":true}`: true,
		`{"seq":null,"id":"a","changes":[{"rev":"1-a"}]}`:                  true,
		`{"seq":null,"id":"a","changes":[{"rev":"1-a"}],"deleted":true}`:   true,
		`{"seq":nil,"id":"a","changes":[{"rev":"1-a"}]}`:                   false,
		`{"seq":"1-g1","id":"a","changes":[{"rev":"1-a"},{"rev":"1-b"}]}`:  false,
		`{"seq":"1-g1","id":"a\"b","changes":[{"rev":"1-a"}]}`:             false,
		`{"seq":"1-ü","id":"ü","changes":[{"rev":"1-a"}]}`:                 false,
		`{"seq":1,"id":"a","changes":[{"rev":"1-a"}]}`:                     false,
		`{"seq":"1-g1","id":"","changes":[{"rev":"1-a"}]}`:                 false,
		`{"seq":"1-g1","id":"a","changes":[{"rev":"1-a"}`:                  false,
		`{"seq":"1-g1","id":"a","changes":[{"rev":"1-a"}],"deleted":true`:  false,
	} {
		for n := range text {
			_, ok := parsePlainRow([]byte(text[:n]))
			require.False(t, ok, text[:n])
		}
		row, ok := parsePlainRow([]byte(text + ",\n{"))
		require.Equal(t, plain, ok, text)
		if ok {
			require.Equal(t, len(text), row.end, text)
		}
		text = `{"results":[` + text + `],"last_seq":"x"}`
		require.Equal(t, allRows(t, strings.ReplaceAll(text, ":", ": "), FeedNormal), allRows(t, text, FeedNormal), text)
	}
}

// Reading rows in groups gives the same rows as reading them one by one, for any number of rows and any cuts.
func TestRowsComeInGroups(t *testing.T) {
	t.Parallel()
	for _, feed := range []Feed{FeedNormal, FeedContinuous} {
		var texts []string
		var want []Row
		for i := range 300 {
			row := Row{ID: fmt.Sprintf("d%d", i), Seq: fmt.Appendf(nil, `"%d-x"`, i), Revs: []string{fmt.Sprintf("1-%d", i)}, Deleted: i%7 == 0}
			spaces := strings.Repeat(" ", i%50/49) // a different spelling
			seq := string(row.Seq)
			if i%3 > 0 {
				seq, row.Seq = "null", nil
			}
			text := fmt.Sprintf(`{"seq":%s%s,"id":%q,"changes":[{"rev":%q}]`, spaces, seq, row.ID, row.Revs[0])
			if row.Deleted {
				text += `,"deleted":true`
			}
			texts, want = append(texts, text+"}"), append(want, row)
		}
		text := strings.Join(texts, "\n") + "\n" + `{"last_seq":"300-x"}`
		if feed == FeedNormal {
			text = `{"results":[` + strings.Join(texts, ",\n") + `],"last_seq":"300-x"}`
		}
		require.Equal(t, want, allRows(t, text, feed))
	}
}

// allRows reads a feed in groups, and requires the same result row by row and in pieces.
func allRows(t *testing.T, text string, feed Feed) []Row {
	t.Helper()
	var all []Row
	c := newChanges(strings.NewReader(text), feed)
	for row, err := c.Next(); err == nil; row, err = c.Next() {
		all = append(all, row)
	}
	for _, r := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text))} {
		c := newChanges(r, feed)
		var rows []Row
		for some, err := c.NextRows(); err == nil; some, err = c.NextRows() {
			require.LessOrEqual(t, len(some), maxRows)
			for _, row := range some {
				row.Seq = bytes.Clone(row.Seq)
				rows = append(rows, row)
			}
		}
		require.Equal(t, all, rows)
	}
	return all
}
