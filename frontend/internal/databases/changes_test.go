package databases_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
	"settee/internal/testkit"
	"settee/pkg/docstore"
)

// wireChanges makes the database that CouchDB had when its feeds were recorded, except for the
// contents of the attachments.
func wireChanges(n *node) *docstore.Database {
	db := n.NewDatabase("wire")
	webtest.Replicate(n, db, webtest.Leaf("plain", false, `{"v":"conflict"}`, 2, hexF, "967a00dff5e02add41819138abb3284d"))
	webtest.Replicate(n, db, webtest.Leaf("plain", false, `{"v":2}`, 2, hexD, "967a00dff5e02add41819138abb3284d"))
	webtest.Replicate(n, db, webtest.Leaf("gone", true, `{}`, 2, "d9b15b235a7d0afdfe6058d5fb8afbd1"))
	webtest.Replicate(n, db, webtest.Leaf("a/b c+dü", false, `{"v":1}`, 1, "7a7e4b29f3af401e69b6f86e4c26b727"))
	webtest.Replicate(n, db, webtest.Leaf("att2", false, `{}`, 1, "afd08f25edc29b4805e4bae1fd16ec6a"))
	webtest.Replicate(n, db, webtest.Leaf("num", false, `{"a":1.0}`, 1, "5b81110a7f591d501d47a11d32c9002d"))
	withAttachments := webtest.Leaf("att", false, `{"v":1}`, 1, "13e0ab7e3efab0226d4b0d7381ad71ed")
	for name, kind := range map[string]string{"hello.txt": "text/plain", "bin.dat": "application/octet-stream"} {
		upload, err := db.Upload(n.Context(), "att", strings.NewReader(name), docstore.UploadOptions{})
		require.NoError(n, err)
		withAttachments.Attachments = append(withAttachments.Attachments, docstore.EditAttachment{Name: name, Type: kind, Upload: upload})
	}
	webtest.Replicate(n, db, withAttachments)
	return db
}

// seqs returns the sequences of a feed, including last_seq.
func seqs(text string) (found []string) {
	for _, match := range webtest.Sequences.FindAllStringSubmatch(text, -1) {
		found = append(found, match[2])
	}
	return found
}

func TestRecordedChanges(t *testing.T) {
	t.Parallel()
	n := start(t)
	wireChanges(n)
	last := slices.Max(seqs(n.Get("/wire/_changes").Body))
	for _, number := range []int{32, 33, 35, 38, 39, 40, 41, 42, 45} {
		e := webtest.Recorded(t, number)
		if number == 35 { // from the end on
			e.Target = regexp.MustCompile(`since=[^&]*`).ReplaceAllString(e.Target, "since="+last)
		}
		want, got := e.Answer, n.Send(e)
		n.RequireSame(e, got, webtest.SameHead)
		switch number {
		case 39: // CouchDB counts there what the filter has left out
			want.Body = strings.Replace(want.Body, `"pending":4`, `"pending":0`, 1)
		case 40: // its shards have an order of their own
			require.Len(t, seqs(got.Body), 4)
			require.ElementsMatch(t, webtest.Keys(t, want.Body), webtest.Keys(t, got.Body))
			continue
		}
		require.Equal(t, webtest.AnySequence(want.Body), webtest.AnySequence(got.Body), number)
	}
}

// row is a row of a feed.
type row struct {
	Seq     *string
	ID      string
	Changes []struct{ Rev string }
	Deleted bool
	Doc     json.RawMessage
}

// page is the whole of a feed that is one JSON object.
type page struct {
	Results []row
	LastSeq string `json:"last_seq"`
	Pending *int
}

func (p page) ids() []string {
	ids := []string{}
	for _, row := range p.Results {
		ids = append(ids, row.ID)
	}
	return ids
}

func (n *node) changes(query, body string) page {
	n.Helper()
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	got := n.Do(method, "/db/_changes"+query, body).Is(n.T, http.StatusOK)
	var p page
	require.NoError(n, json.Unmarshal([]byte(got.Body), &p), "%s", got.Body)
	return p
}

func TestChangesQueries(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.NewDatabase("db")
	require.Equal(t, "{\"results\":[\n\n],\n\"last_seq\":\"0\",\"pending\":0}\n\n", n.Get("/db/_changes").Body)
	require.Equal(t, "{\"results\":[\n\n],\n\"last_seq\":\"0\",\"pending\":0}\n\n", n.Get("/db/_changes?descending=true").Body)
	for i := range 6 {
		webtest.Write(t, db, webtest.Doc(fmt.Sprintf("d%d", i), `{}`))
	}
	all := n.changes("", "")
	require.Equal(t, []string{"d0", "d1", "d2", "d3", "d4", "d5"}, all.ids())
	require.Equal(t, *all.Results[5].Seq, all.LastSeq)
	seq := func(i int) string { return *all.Results[i].Seq }
	end := seq(5)
	for _, test := range []struct {
		query   string
		ids     string // one digit each
		last    string
		pending int
	}{
		{"", "012345", end, 0},
		{"?since=0&feed=normal&style=main_only", "012345", end, 0},
		{"?since=" + seq(2), "345", end, 0},
		{"?since=%22" + seq(2) + "%22", "345", end, 0},
		{"?last-event-id=" + seq(2), "345", end, 0},
		{"?since=" + end, "", end, 0},
		{"?since=now", "", end, 0},
		{"?since=1-f00000000000000000000000", "", "6-f00000000000000000000000", 0},
		{"?limit=2", "01", seq(1), 4},
		{"?limit=2&since=" + seq(1), "23", seq(3), 2},
		{"?limit=6", "012345", end, 0},
		{"?limit=100", "012345", end, 0},
		{"?limit=0", "", "0", 6},
		{"?limit=0&since=" + seq(3), "", seq(3), 2},
		{"?limit=0&since=now", "", end, 0},
		{"?descending=true", "543210", seq(0), 0},
		{"?descending=true&limit=1", "5", end, 5},
		{"?descending=true&limit=2&since=" + seq(3), "54", seq(4), 4},
		{"?limit=%2B9&descending=1&include_docs=yes", "012345", end, 0},
		{"?limit=9" + strings.Repeat("9", 30), "012345", end, 0},
		{"?feed=longpoll", "012345", end, 0},
		{"?feed=longpoll&limit=2", "01", seq(1), 4},
		{"?feed=longpoll&limit=0", "", "0", 6},
		{"?feed=longpoll&descending=true&limit=1", "5", end, 5},
		{"?feed=longpoll&since=" + end + "&timeout=0", "", end, 0},
		{"?unknown=1&heartbeat=true&timeout=7", "012345", end, 0},
	} {
		p := n.changes(test.query, "")
		require.Equal(t, test.ids, strings.ReplaceAll(strings.Join(p.ids(), ""), "d", ""), test.query)
		require.Equal(t, test.last, p.LastSeq, test.query)
		require.Equal(t, test.pending, *p.Pending, test.query)
	}
	// CouchDB decides which rows have a sequence by counting down from the limit.
	for query, want := range map[string]string{
		"?seq_interval=2&limit=6": "x.x.x.", "?seq_interval=3&limit=5": "..x..", "?seq_interval=1": "xxxxxx", "?seq_interval=4": "x...x.",
		"?seq_interval=100&limit=3": "...",
	} {
		p, got := n.changes(query, ""), ""
		for _, row := range p.Results {
			if row.Seq != nil {
				got += "x"
			} else {
				got += "."
			}
		}
		require.Equal(t, want, got, query)
		require.Equal(t, seq(len(p.Results)-1), p.LastSeq, query)
	}
}

func TestChangesThatAreRefused(t *testing.T) {
	testkit.SkipRace(t)
	t.Parallel()
	n := start(t)
	db := n.NewDatabase("db")
	webtest.Write(t, db, webtest.Doc("_design/f", `{"filters":{"t":"function(){}"},"views":{"v":{"map":"function(){}"}},"language":"javascript"}`))
	webtest.Write(t, db, webtest.Doc("_design/bad", `{"filters":1}`))
	const (
		bad   = "bad_request"
		parse = "query_parse_error"
		since = "Malformed sequence supplied in 'since' parameter."
		// CouchDB says so after 3.5.2. Before, these were errors of status 500, and no limit.
		notNumber, negative = "The %s parameter should be a non-negative integer", "The %s value should be a non-negative integer"
	)
	for query, want := range map[string]failed{
		"?feed=x":                     {400, bad, "Supported `feed` types: normal, continuous, live, longpoll, eventsource"},
		"?style=x":                    {400, parse, "`style` must be main_only or all_docs"},
		"?since=garbage":              {400, bad, since},
		"?since=":                     {400, bad, since},
		"?since=5-g1AAAA":             {400, bad, since},
		"?since=2026-13-45T99:99:99Z": {400, bad, "invalid_time_format"},
		"?since=2026-11-28":           {400, bad, since},
		"?since=null":                 {400, bad, since},
		"?limit=x":                    {400, bad, fmt.Sprintf(notNumber, "limit")},
		"?limit=":                     {400, bad, fmt.Sprintf(notNumber, "limit")},
		"?limit=1.5":                  {400, bad, fmt.Sprintf(notNumber, "limit")},
		"?limit=-1&feed=continuous":   {400, bad, fmt.Sprintf(negative, "limit")},
		"?timeout=x&feed=longpoll":    {400, bad, fmt.Sprintf(notNumber, "timeout")},
		"?timeout=":                   {400, bad, fmt.Sprintf(notNumber, "timeout")},
		"?timeout=-5&feed=continuous": {400, bad, fmt.Sprintf(negative, "timeout")},
		"?heartbeat=x":                {400, bad, "Invalid heartbeat value. Expecting a positive integer value (in milliseconds)."},
		"?heartbeat=-1":               {400, bad, "The heartbeat value should be a positive integer (in milliseconds)."},
		"?heartbeat=0":                {400, bad, "The heartbeat value should be a positive integer (in milliseconds)."},
		"?seq_interval=0":             {400, bad, "`seq_interval` must be a whole number of at least 1"},
		"?filter=_nope":               {400, bad, "unknown builtin filter name: there are _doc_ids, _selector, _design and _view"},
		"?filter=word":                {400, bad, "`filter` must be of the form `designname/filtername`"},
		"?filter=a/b/c":               {400, bad, "`filter` must be of the form `designname/filtername`"},
		"?filter=no/t":                {404, "not_found", "missing"},
		"?filter=f/no":                {404, "not_found", "missing json key: no"},
		"?filter=bad/t":               {404, "not_found", "missing json key: t"},
		"?filter=_view&view=bad/v":    {404, "not_found", "missing json key: views"},
		"?filter=_view":               {400, bad, "`view` filter parameter is not provided."},
		"?filter=_view&view=v":        {400, bad, "`view` must be of the form `designname/viewname`"},
		"?filter=_selector":           {400, bad, "Selector must be specified in POST payload"},
		"?filter=_doc_ids":            {400, bad, "`doc_ids` filter parameter is not a list of doc ids."},
		"?filter=_doc_ids&doc_ids=1":  {400, bad, "`doc_ids` filter parameter is not a list of doc ids."},
	} {
		webtest.Refused(t, n.Get("/db/_changes"+query), want.status, want.code, want.reason)
	}
	for _, query := range []string{"?filter=f/t", "?filter=/f//t/", "?filter=_view&view=f/v", "?filter=%2566/t"} {
		require.Equal(t, http.StatusOK, n.Get("/db/_changes"+query).Status, query)
	}
	webtest.Write(t, db, docstore.Edit{ID: "_design/f", Rev: current(t, db, "_design/f"), Deleted: true})
	webtest.Refused(t, n.Get("/db/_changes?filter=f/t"), 404, "not_found", "deleted")

	const notIDs = "`doc_ids` filter parameter is not a list of doc ids."
	for request, reason := range map[[2]string]string{
		{"?filter=_doc_ids", `{"doc_ids":["a",1]}`}:             notIDs,
		{"?filter=_doc_ids", `{"doc_ids":[null]}`}:              notIDs,
		{"?filter=_doc_ids", `{"doc_ids":null}`}:                notIDs,
		{"?filter=_doc_ids", `{}`}:                              notIDs,
		{"?filter=_selector", `{}`}:                             "Selector error: expected a JSON object",
		{"?filter=_selector", `{"selector":[]}`}:                "Selector error: expected a JSON object",
		{"?filter=_selector", `{"selector":{"a":{"$in":1}}}`}:   "Bad argument for operator $in: 1",
		{"?filter=_selector", `{"selector":{"a":{"$nope":1}}}`}: "Invalid operator: $nope",
		{"?filter=_doc_ids&limit=-1", `{"doc_ids":["a"]}`}:      fmt.Sprintf(negative, "limit"),
		{"", `[]`}: "Request body must be a JSON object",
		{"", `{`}:  "invalid UTF-8 JSON",
	} {
		webtest.Refused(t, n.Do(http.MethodPost, "/db/_changes"+request[0], request[1]), 400, bad, reason)
	}
	require.Equal(t, http.StatusUnsupportedMediaType, n.Do(http.MethodPost, "/db/_changes", `{}`, "Content-Type", "text/plain").Status)
	require.Equal(t, "GET,HEAD,POST", n.Do(http.MethodPut, "/db/_changes", "").Header.Get("Allow"))
	require.Equal(t, http.StatusOK, n.Do(http.MethodPost, "/db/_changes", "").Status)
}

// failed is an answer that is an error.
type failed struct {
	status       int
	code, reason string
}

func current(t *testing.T, db *docstore.Database, id string) docstore.Rev {
	t.Helper()
	found, err := db.Get(t.Context(), id, docstore.GetOptions{})
	require.NoError(t, err)
	return found.Rev
}

func TestChangesFilters(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.NewDatabase("db")
	webtest.Replicate(t, db, webtest.Leaf("conflict", false, `{"v":1}`, 2, "bb", "aa"), webtest.Leaf("conflict", false, `{"v":2}`, 2, "cc", "aa"),
		webtest.Leaf("conflict", true, `{"v":3}`, 2, "dd", "aa"))
	webtest.Write(t, db, webtest.Doc("_design/d", `{"v":1}`), webtest.Doc("x", `{"v":1}`), webtest.Doc("y", `{"v":"text"}`))
	webtest.Replicate(t, db, webtest.Leaf("dead", true, `{"v":1}`, 2, "ee"), webtest.Leaf("_design/dead", true, `{}`, 2, "ee"))
	info := n.Get("/db").JSON(t)
	for _, test := range []struct{ query, body, want string }{
		{"", "", "conflict:2-cc _design/d: x: y: dead:2-ee! _design/dead:2-ee!"},
		{"?style=all_docs&since=0", `{"doc_ids":["x"]}`, "conflict:2-cc,2-bb,2-dd _design/d: x: y: dead:2-ee! _design/dead:2-ee!"},
		{"?filter=_doc_ids", `{"doc_ids":["y","dead","no","y","_local/z",""]}`, "y: dead:2-ee!"},
		{"?filter=_doc_ids&descending=true", `{"doc_ids":["y","x"]}`, "y: x:"},
		{"?filter=_doc_ids", `{"doc_ids":[]}`, ""},
		{"?filter=_doc_ids&doc_ids=" + url.QueryEscape(`["x"]`), "", "x:"},
		{"?filter=_design", "", "_design/d: _design/dead:2-ee!"},
		{"?filter=_selector", `{"selector":{}}`, "conflict:2-cc _design/d: x: y: dead:2-ee! _design/dead:2-ee!"},
		{"?filter=_selector", `{"selector":{"v":1}}`, "_design/d: x: dead:2-ee!"},
		{"?filter=_selector&style=all_docs", `{"selector":{"v":{"$lte":1}}}`, "conflict:2-bb _design/d: x: dead:2-ee!"},
		{"?filter=_selector&style=all_docs", `{"selector":{"_deleted":true}}`, "conflict:2-dd dead:2-ee! _design/dead:2-ee!"},
		{"?filter=_selector", `{"selector":{"_id":"x"}}`, "x:"},
		{"?filter=_selector", `{"selector":{"_rev":"2-cc"}}`, "conflict:2-cc"},
		{"?filter=_selector&conflicts=true", `{"selector":{"_conflicts":{"$exists":true}}}`, "conflict:2-cc"},
		{"?filter=_selector&conflicts=true&style=all_docs", `{"selector":{"_conflicts":{"$exists":true}}}`, ""},
		{"?filter=_selector", `{"selector":{"_conflicts":{"$exists":true}}}`, ""},
	} {
		p := n.changes(test.query, test.body)
		var got []string
		for _, row := range p.Results {
			var revs []string
			for _, change := range row.Changes {
				if strings.HasPrefix(change.Rev, "2-") {
					revs = append(revs, change.Rev)
				}
			}
			text := row.ID + ":" + strings.Join(revs, ",")
			if row.Deleted {
				text += "!"
			}
			got = append(got, text)
		}
		require.Equal(t, test.want, strings.Join(got, " "), "%s %s", test.query, test.body)
		if !strings.Contains(test.query, "descending") {
			require.Equal(t, info["update_seq"], p.LastSeq, "what does not match was read, too")
		}
		require.Zero(t, *p.Pending)
	}
	p := n.changes("?filter=_selector&limit=1", `{"selector":{"v":1}}`)
	require.Equal(t, []string{"_design/d"}, p.ids())
	require.Equal(t, *p.Results[0].Seq, p.LastSeq)
	require.Equal(t, 4, *p.Pending)
	p = n.changes("?filter=_selector&since="+p.LastSeq, `{"selector":{"v":1}}`)
	require.Equal(t, []string{"x", "dead"}, p.ids())
}

func TestChangesWithDocuments(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.NewDatabase("db")
	webtest.Replicate(t, db, webtest.Leaf("c", false, "{\"v\" :\r\n 1}", 2, "bb", "aa"), webtest.Leaf("c", false, `{}`, 2, "cc", "aa"), webtest.Leaf("c", true, `{}`, 2, "dd", "aa"))
	webtest.Replicate(t, db, webtest.Leaf("c", false, "{\n \"v\" : \"ü\\n\"}", 2, "ee", "aa"))
	webtest.Replicate(t, db, webtest.Leaf("dead", true, `{"x":1}`, 2, "ee"))
	for query, want := range map[string][]string{
		"?conflicts=true": {"null", "null"},
		"?include_docs=true": {`{"_id":"c","_rev":"2-ee","v":"ü\n"}`,
			`{"_id":"dead","_rev":"2-ee","_deleted":true,"x":1}`},
		"?include_docs=true&style=all_docs": {`{"_id":"c","_rev":"2-ee","v":"ü\n"}`,
			`{"_id":"dead","_rev":"2-ee","_deleted":true,"x":1}`},
		"?include_docs=true&conflicts=true": {`{"_id":"c","_rev":"2-ee","v":"ü\n","_conflicts":["2-cc","2-bb"]}`,
			`{"_id":"dead","_rev":"2-ee","_deleted":true,"x":1}`},
	} {
		p := n.changes(query, "")
		require.Len(t, p.Results, len(want))
		for i, row := range p.Results {
			if row.Doc == nil {
				row.Doc = json.RawMessage("null")
			}
			require.JSONEq(t, want[i], string(row.Doc), query)
		}
	}
	// A row is one line, even if its document was written with line ends.
	continuous := n.Get("/db/_changes?include_docs=true&feed=continuous&timeout=0").Body
	require.Len(t, strings.Split(continuous, "\n"), 5)
	require.Contains(t, continuous, `,"doc":{"_id":"c","_rev":"2-ee","v":"ü\n"}}`+"\n")
	require.True(t, strings.HasSuffix(continuous, `"pending":0}`+"\n\n"))
}

func TestChangesWithAttachments(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.NewDatabase("db")
	text := bytes.Repeat([]byte("a text that is worth compressing "), 5_000)
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	_, err := writer.Write(text)
	require.NoError(t, err)
	require.NoError(t, writer.Close())
	edit := webtest.Doc("d", `{"v":1}`)
	for name, opts := range map[string]docstore.UploadOptions{
		"packed": {Encoding: "gzip", DecodedLength: new(int64(len(text)))}, "plain": {}, "empty": {},
	} {
		content := map[string][]byte{"packed": packed.Bytes(), "plain": text, "empty": nil}[name]
		upload, err := db.Upload(t.Context(), "d", bytes.NewReader(content), opts)
		require.NoError(t, err)
		edit.Attachments = append(edit.Attachments, docstore.EditAttachment{Name: name, Type: "text/plain", Upload: upload})
	}
	webtest.Write(t, db, edit)
	for _, feed := range []string{"normal", "longpoll"} {
		var shown struct {
			Attachments map[string]map[string]any `json:"_attachments"`
		}
		read := func(query string) map[string]map[string]any {
			shown.Attachments = nil
			p := n.changes("?include_docs=true&feed="+feed+query, "")
			require.NoError(t, json.Unmarshal(p.Results[0].Doc, &shown))
			return shown.Attachments
		}
		stubs := read("&att_encoding_info=true")
		require.Equal(t, true, stubs["packed"]["stub"])
		require.EqualValues(t, len(text), stubs["packed"]["length"])
		require.EqualValues(t, packed.Len(), stubs["packed"]["encoded_length"])
		require.Equal(t, "gzip", stubs["packed"]["encoding"])
		require.NotContains(t, stubs["plain"], "encoding")
		require.NotContains(t, read("")["packed"], "encoding")
		whole := read("&attachments=true")
		for name, content := range map[string][]byte{"packed": text, "plain": text, "empty": {}} {
			data, err := base64.StdEncoding.DecodeString(whole[name]["data"].(string))
			require.NoError(t, err)
			require.True(t, bytes.Equal(content, data), name)
			require.NotContains(t, whole[name], "stub")
			require.NotContains(t, whole[name], "length")
		}
	}
}

func TestChangesPending(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.fill(n.NewDatabase("db"), 10_002, `{}`)
	for query, want := range map[string]string{
		"?limit=1": "null", "?limit=2": "10000", "?limit=3": "9999", "?limit=1&descending=true": "null", "?limit=2&descending=true": "10000",
		"?feed=longpoll&limit=1": "null",
	} {
		require.Regexp(t, `"pending":`+want+"}\n\n$", n.Get("/db/_changes"+query).Body, query)
	}
}

func TestChangesTag(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.NewDatabase("db")
	tag := n.Get("/db/_changes").Header.Get("ETag")
	require.Regexp(t, `^"[0-9A-Z]+"$`, tag)
	for _, known := range []string{tag, "W/" + tag, `"x", ` + tag, "*"} {
		got := n.Do(http.MethodGet, "/db/_changes", "", "If-None-Match", known).Is(t, http.StatusNotModified)
		require.Equal(t, tag, got.Header.Get("ETag"))
		require.Empty(t, got.Body)
	}
	head := n.Do(http.MethodHead, "/db/_changes", "").Is(t, http.StatusOK)
	require.Equal(t, tag, head.Header.Get("ETag"))
	require.Equal(t, http.StatusOK, n.Do(http.MethodHead, "/db/_changes?feed=continuous", "").Status)
	require.Equal(t, http.StatusOK, n.Do(http.MethodPost, "/db/_changes", "{}", "If-None-Match", tag).Status)
	webtest.Write(t, db, webtest.Doc("a", `{}`))
	changed := n.Do(http.MethodGet, "/db/_changes", "", "If-None-Match", tag).Is(t, http.StatusOK)
	require.NotEqual(t, tag, changed.Header.Get("ETag"))
	require.NoError(t, db.Delete(t.Context()))
	n.NewDatabase("db")
	require.NotEqual(t, tag, n.Get("/db/_changes").Header.Get("ETag"), "it is another database")
}
