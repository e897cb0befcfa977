package databases

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/frontend/internal/web"
	"settee/pkg/docstore"
)

func request(query string, headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "http://node/db", nil)
	r.URL.RawQuery = query
	for pair := range slices.Chunk(headers, 2) {
		r.Header.Set(pair[0], pair[1])
	}
	return r
}

func failed(t *testing.T, err error) *web.Failure {
	t.Helper()
	var failure *web.Failure
	require.ErrorAs(t, err, &failure)
	return failure
}

func revs(t *testing.T, texts ...string) []docstore.Rev {
	t.Helper()
	var revs []docstore.Rev
	for _, text := range texts {
		rev, err := docstore.ParseRev(text)
		require.NoError(t, err)
		revs = append(revs, rev)
	}
	return revs
}

func TestRangesOfIDs(t *testing.T) {
	t.Parallel()
	all, design := namespace{}, designDocs
	for _, c := range []struct {
		query      string
		of         namespace
		start, end string
		none       bool
	}{
		{"", all, "", "", false},
		{`startkey="b"&endkey="d"`, all, "b", "d", false},
		{`start_key="b"&end_key="d"`, all, "b", "d", false},
		{`startkey="b"&start_key="x"`, all, "b", "", false},
		{`key="b"`, all, "b", "b", false},
		{`startkey="d"&endkey="b"`, all, "d", "b", true},
		{`descending=true&startkey="d"&endkey="b"`, all, "d", "b", false},
		{`descending=true&startkey="b"&endkey="d"`, all, "b", "d", true},
		{`descending=true&startkey="d"`, all, "d", "", false},
		{`startkey=1`, all, "", "", false}, // what is no string sorts before all ids
		{`endkey={}`, all, "", "", true},
		{"", design, "_design/", "_design0", false},
		{"descending=true", design, "_design0", "_design/", false},
		{`startkey="_design/b"&endkey="z"`, design, "_design/b", "_design0", false},
		{`startkey="z"`, design, "z", "_design0", true},
		{`endkey="_a"`, design, "_design/", "_a", true},
	} {
		l, err := newListQuery(request(url.PathEscape(c.query))).listing(nil, c.of)
		require.NoError(t, err, c.query)
		assert.Equal(t, c.none, l.none, c.query)
		if !c.none {
			assert.Equal(t, [2]string{c.start, c.end}, [2]string{l.within.Start, l.within.End}, c.query)
		}
	}
	for _, bad := range []string{`startkey=a`, `keys=["a"]&key="a"`, `keys={}`, `keys=[`, `limit=-1`, `descending=1`} {
		_, err := newListQuery(request(url.PathEscape(bad))).listing(nil, all)
		require.Error(t, err, bad)
	}
}

func TestBodiesOfListings(t *testing.T) {
	t.Parallel()
	q := newListQuery(request(`limit=1&start_key="u"`))
	q.addBody([]byte(`{"limit":2,"skip":3,"descending":true,"startkey":"b","end_key":"e","keys":null,"other":1}`))
	require.NoError(t, q.Err)
	assert.Equal(t, 1, q.Count("limit", 0), "the URL precedes the body")
	assert.Equal(t, 3, q.Count("skip", 0))
	assert.True(t, q.Flag("descending", false))
	assert.Equal(t, `"u"`, q.Text("startkey"))
	assert.Equal(t, `"e"`, q.Text("endkey"))
	assert.Nil(t, q.keys)
	q.addBody([]byte(`{"keys":[1, "a" , {"b":[]}]}`))
	require.NoError(t, q.Err)
	require.Equal(t, 3, q.keys.len())
	for i, want := range []string{"1", `"a"`, `{"b":[]}`} {
		assert.Equal(t, want, string(q.keys.at(i)))
	}
	q.addBody([]byte(`{"keys":{}}`))
	assert.Equal(t, http.StatusBadRequest, failed(t, q.Err).Status)
}

func TestKindsOfFeeds(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]feedKind{
		"": feedNormal, "feed=normal": feedNormal, "feed=live": feedContinuous, "feed=continuous": feedContinuous, "feed=eventsource": feedEventSource,
	} {
		q := web.NewQuery(request(text))
		assert.Equal(t, want, readKind(q, "live", "all"), text)
		require.NoError(t, q.Err, text)
	}
	for text, live := range map[string]string{"feed=Normal": "live", "feed=live": ""} {
		q := web.NewQuery(request(text))
		readKind(q, live, "a and b")
		assert.Equal(t, http.StatusBadRequest, failed(t, q.Err).Status)
		assert.ErrorContains(t, q.Err, "Supported `feed` types: a and b")
	}
}

func TestPatienceOfFeeds(t *testing.T) {
	t.Parallel()
	const standard = time.Minute
	for text, want := range map[string][2]time.Duration{
		"":                            {0, standard},
		"timeout=0":                   {0, 0},
		"timeout=100":                 {0, 100 * time.Millisecond},
		"timeout=99999999999999999":   {0, standard},
		"heartbeat=true":              {standard, standard},
		"heartbeat=5000&timeout=1000": {5 * time.Second, time.Second},
		"heartbeat=1":                 {minHeartbeat, standard},
		"heartbeat=99999999999999999": {standard, standard},
	} {
		q := web.NewQuery(request(text))
		assert.Equal(t, patience{want[0], want[1]}, readPatience(q, feedLongpoll, standard, reasonOfChanges), text)
		require.NoError(t, q.Err, text)
	}
	assert.Equal(t, normalHeartbeat, readPatience(web.NewQuery(request("")), feedNormal, standard, reasonOfChanges).heartbeat)
	for text, reason := range map[string]string{ // as CouchDB 3.5.0 says
		"heartbeat=":                             "Invalid heartbeat value. Expecting a positive integer value (in milliseconds).",
		"heartbeat=1.5":                          "Invalid heartbeat value. Expecting a positive integer value (in milliseconds).",
		"heartbeat=0":                            "The heartbeat value should be a positive integer (in milliseconds).",
		"heartbeat=-1000":                        "The heartbeat value should be a positive integer (in milliseconds).",
		"heartbeat=-1" + strings.Repeat("0", 20): "The heartbeat value should be a positive integer (in milliseconds).",
	} {
		q := web.NewQuery(request(text))
		readPatience(q, feedLongpoll, standard, reasonOfChanges)
		require.ErrorContains(t, q.Err, reason, text)
	}
}

func TestWhereFeedsBegin(t *testing.T) {
	t.Parallel()
	read := func(kind feedKind, r *http.Request) (since, error) { return readSince(r, web.NewQuery(r), kind) }
	at := time.Date(2026, 1, 9, 19, 1, 2, 0, time.UTC)
	for text, want := range map[string]since{
		"": {}, "since=0": {}, "since=%220%22": {}, "last-event-id=0": {}, "since=now": {now: true}, "since=now&last-event-id=0": {},
		"since=2026-01-09T19:01:02Z": {at: &at}, "last-event-id=2026-01-09T19:01:02Z": {at: &at}, "since=2024-02-29T00:00:00Z": {at: new(time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC))},
		"descending=true&since=nowhere": {}, "descending=true&since=2026-13-09T19:01:02Z": {},
	} {
		begins, err := read(feedNormal, request(text))
		require.NoError(t, err, text)
		assert.Equal(t, want, begins, text)
	}
	for text, reason := range map[string]string{
		"since=nowhere": malformed, "since=2026-01-09": malformed, "since=2026-01-09T19:01:02.000Z": malformed, "since=2026-01-09T19:01:02%2B00:00": malformed,
		"since=2026-01-09t19:01:02Z": malformed, "since=2026-01-09T19:01:02z": malformed, "since=2026-01-09%2019:01:02Z": malformed,
		"since=%222026-01-09T19:01:02Z%22": malformed, "since=": malformed, "since=2026-13-45T99:99:99Z": "invalid_time_format",
		"since=2026-02-30T00:00:00Z": "invalid_time_format", "since=abcd-ef-ghTij:kl:mnZ": "invalid_time_format",
	} {
		_, err := read(feedNormal, request(text))
		require.ErrorContains(t, err, reason, text)
		assert.Equal(t, http.StatusBadRequest, failed(t, err).Status, text)
	}
	_, err := read(feedEventSource, request("since=now", "Last-Event-Id", "nowhere"))
	require.Error(t, err, "a browser that connects again")
	_, err = read(feedNormal, request("since=0", "Last-Event-Id", "nowhere"))
	require.NoError(t, err)
}

const malformed = "Malformed sequence supplied in 'since' parameter."

func TestListsOfRevisions(t *testing.T) {
	t.Parallel()
	found, err := parseRevsQueries([]byte(`{"a":["2-bb","1-aa","2-bb"],"b":[]}`))
	require.NoError(t, err)
	assert.Equal(t, []docstore.RevsQuery{{ID: "a", Revs: revs(t, "1-aa", "2-bb")}, {ID: "b", Revs: []docstore.Rev{}}}, found)
	for text, reason := range map[string]string{
		`[]`: "", `{"a":1}`: "Invalid revisions, must be a list", `{"a":["1"]}`: "Invalid rev format", `{"a":["x-a"]}`: "Invalid rev format",
	} {
		_, err := parseRevsQueries([]byte(text))
		assert.Equal(t, http.StatusBadRequest, failed(t, err).Status, text)
		require.ErrorContains(t, err, reason)
	}
	list, err := parseRevisions([]byte(`["2-bb","1-aa"]`))
	require.NoError(t, err)
	assert.Equal(t, revs(t, "2-bb", "1-aa"), list, "in the order of the list")
	for _, bad := range []string{`{}`, `[1]`, `["1"]`} {
		_, err := parseRevisions([]byte(bad))
		require.Error(t, err, bad)
	}
}

func TestPathsOfRevisions(t *testing.T) {
	t.Parallel()
	doc := &docstore.Document{Rev: revs(t, "3-cc")[0], Path: []string{"cc", "bb", "aa"}}
	assert.Equal(t, []revInfo{{"3-cc", "available"}, {"2-bb", "missing"}, {"1-aa", "missing"}}, revInfos(doc))
	doc.Deleted = true
	assert.Equal(t, "deleted", revInfos(doc)[0].Status)
}

// Clients read listings and feeds line by line.
func TestBodiesAreOnOneLine(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{`{}`: ``, ` { "a" : 1 } `: `"a" : 1`, "{\n \"a\":\r\n[1,\n2]}": `"a":[1,2]`} {
		assert.Equal(t, want, string(bodyMembers([]byte(body))), body)
	}
}

func TestNamesOfFiles(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		`a.txt`:     `attachment; filename="a.txt"`,
		`"a\b".txt`: `attachment; filename="\"a\\b\".txt"`,
		"a\r\nX: y": `attachment; filename="a__X: y"; filename*=UTF-8''a%0D%0AX%3A%20y`,
		`é.txt`:     `attachment; filename="é.txt"; filename*=UTF-8''%C3%A9.txt`,
	} {
		assert.Equal(t, want, disposition(name))
	}
}

func TestDestinations(t *testing.T) {
	t.Parallel()
	read := func(text string, plusIsSpace bool) (id, rev string, err error) {
		target, err := destination(http.Header{"Destination": {text}}, plusIsSpace)
		if err != nil {
			return "", "", err
		}
		return target.ID, target.Rev, nil
	}
	for _, c := range []struct {
		text        string
		plusIsSpace bool
		id, rev     string
	}{
		{"b", false, "b", ""}, {"a%2Fb+c", false, "a/b+c", ""}, {"b+c", true, "b c", ""}, {"b?rev=1-aa", false, "b", "1-aa"}, {"_design/d", false, "_design/d", ""},
	} {
		id, rev, err := read(c.text, c.plusIsSpace)
		require.NoError(t, err, c.text)
		assert.Equal(t, [2]string{c.id, c.rev}, [2]string{id, rev}, c.text)
	}
	for _, bad := range []string{"", "http://node/db/b", "https://node/db/b", "%zz", "b?%zz", "b?rev=", "b?rev=x", "_b"} {
		_, _, err := read(bad, false)
		assert.Equal(t, http.StatusBadRequest, failed(t, err).Status, bad)
	}
}

func TestPagesThatMayPostForms(t *testing.T) {
	t.Parallel()
	require.NoError(t, refererIsHost(request("", "Referer", "http://node/page")))
	require.NoError(t, refererIsHost(request("", "Referer", "https://example.org/page", "X-Forwarded-Host", "example.org")))
	for _, bad := range []string{"", "http://other/page", "http://node:1/page", "node", "%zz"} {
		assert.Equal(t, http.StatusBadRequest, failed(t, refererIsHost(request("", "Referer", bad))).Status, bad)
	}
}

func TestMembersOfDocuments(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"2-bb", "1-aa"}, revTexts(revs(t, "2-bb", "1-aa")))
	assert.True(t, json.Valid([]byte(`{`+string(bodyMembers([]byte(`{"a":1}`)))+`}`)))
}
