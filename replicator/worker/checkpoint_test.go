package worker

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch/couchtest"
)

func parsed(text string) checkpoint { return parseCheckpoint(json.RawMessage(text)) }

func TestCommonAncestor(t *testing.T) {
	t.Parallel()
	const (
		abc = `{"_id":"_local/x","_rev":"0-3","session_id":"c","source_last_seq":"30-c","replication_id_version":4,"history":[` +
			`{"session_id":"c","recorded_seq":"30-c"},{"session_id":"b","recorded_seq":20},{"session_id":"a","recorded_seq":[10,"a"]}]}`
		ab = `{"session_id":"b","source_last_seq":20,"history":[{"session_id":"b","recorded_seq":20},{"session_id":"a","recorded_seq":[10,"a"]}]}`
		xa = `{"session_id":"x","source_last_seq":99,"history":[{"session_id":"x","recorded_seq":99},{"session_id":"a","recorded_seq":[10,"a"]}]}`
		x  = `{"session_id":"x","source_last_seq":99,"history":[{"session_id":"x","recorded_seq":99}]}`

		early = `{"session_id":"s","source_last_seq":5,"history":[{"session_id":"s","recorded_seq":5,"missing_checked":50,"end_time":"Sat, 21 Nov 2026 01:00:00 GMT"}]}`
		late  = `{"session_id":"s","source_last_seq":7,"history":[{"session_id":"s","recorded_seq":7,"missing_checked":70,"end_time":"Sat, 21 Nov 2026 02:00:00 GMT"}]}`
		later = `{"session_id":"s","source_last_seq":8,"history":[{"session_id":"s","recorded_seq":8,"missing_checked":70,"end_time":"Sat, 21 Nov 2026 03:00:00 GMT"}]}`
		next  = `{"session_id":"t","source_last_seq":9,"history":[{"session_id":"t","recorded_seq":9},{"session_id":"s","recorded_seq":7,"missing_checked":70}]}`
	)
	for name, test := range map[string]struct {
		source, target string
		seq            string
		history        int
	}{
		"the same":                           {abc, abc, `"30-c"`, 3},
		"the target is ahead":                {ab, abc, `20`, 2},
		"the source is ahead":                {abc, ab, `20`, 2},
		"they went apart":                    {abc, xa, `[10,"a"]`, 1},
		"nothing in common":                  {abc, x, ``, 0},
		"the source has none":                {``, abc, ``, 0},
		"the target has none":                {abc, ``, ``, 0},
		"neither has one":                    {``, ``, ``, 0},
		"a run ended between its two writes": {early, late, `5`, 1},
		"the target was restored":            {late, early, `5`, 1},
		"restored, and nothing was checked":  {later, late, `7`, 1},
		"restored, and another session":      {next, early, `5`, 1},
		"no sessions":                        {`{"source_last_seq":5,"history":[]}`, `{"source_last_seq":5,"history":[]}`, ``, 0},
		"empty session ids":                  {`{"session_id":"","source_last_seq":5}`, `{"session_id":"","source_last_seq":5}`, ``, 0},
		"a number as session id":             {`{"session_id":1,"source_last_seq":5}`, `{"session_id":1,"source_last_seq":5}`, ``, 0},
		"a session without a sequence":       {`{"session_id":"s","history":[]}`, `{"session_id":"s","history":[]}`, ``, 0},
		"a sequence that is none":            {`{"session_id":"s","source_last_seq":{"a":1}}`, `{"session_id":"s","source_last_seq":true}`, ``, 0},
		"a null sequence":                    {`{"session_id":"s","source_last_seq":null}`, `{"session_id":"s","source_last_seq":null}`, ``, 0},
		"a history that is an object":        {strings.Replace(abc, `"history":[`, `"history":{},"x":[`, 1), ab, ``, 0},
		"entries that are no objects":        {strings.Replace(abc, `"history":[`, `"history":[1,null,"c",[],`, 1), ab, `20`, 2},
		"an entry without recorded_seq":      {strings.Replace(abc, `"recorded_seq":20`, `"end_last_seq":20`, 1), ab, ``, 0},
		"not an object":                      {`[]`, abc, ``, 0},
		"a string":                           {`"c"`, abc, ``, 0},
		"not JSON":                           {`{"session_id":`, abc, ``, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seq, history := commonAncestor(parsed(test.source), parsed(test.target))
			require.Equal(t, test.seq, string(seq))
			require.Len(t, history, test.history)
		})
	}
}

func TestRecordedCheckpoints(t *testing.T) {
	t.Parallel()
	body := func(number int) string { return strings.TrimSpace(couchtest.Recorded(t, number).Body) }
	require.Equal(t, checkpoint{rev: "0-1", session: "s2"}, parsed(body(59)))

	// The answer to POST /_replicate is the checkpoint with one or two more members.
	for _, number := range []int{65, 66, 67} {
		answer := body(number)
		c := parsed(answer)
		require.Len(t, c.history, 1)
		require.Equal(t, c.seq, c.history[0].seq)
		require.Equal(t, answer, string(recordOf(c).result(number == 66)))
	}
}

func TestHistoriesAreBounded(t *testing.T) {
	t.Parallel()
	var earlier []session
	for i := range 80 {
		earlier = append(earlier, parsed(fmt.Sprintf(`{"history":[{"session_id":"s%d","recorded_seq":%d}]}`, i, i)).history...)
	}
	rec := newRecord(entry{SessionID: "new", StartLastSeq: beginning, EndLastSeq: beginning, RecordedSeq: beginning},
		json.RawMessage("7"), earlier, false)
	again := parseCheckpoint(encode(rec))
	require.Len(t, again.history, 50)
	require.Equal(t, "new", again.history[0].id)
	require.Equal(t, "s48", again.history[49].id)

	for i := range earlier {
		earlier[i].raw = json.RawMessage(`{"session_id":"` + strings.Repeat("x", 3000) + `"}`)
	}
	result := newRecord(entry{SessionID: "new", StartLastSeq: beginning, EndLastSeq: beginning, RecordedSeq: beginning},
		json.RawMessage("7"), earlier, false).result(false)
	require.LessOrEqual(t, len(result), 60_000)
	require.Greater(t, len(result), 55_000)
	require.True(t, strings.HasPrefix(string(result), `{"ok":true,"session_id":"new","source_last_seq":7,`))

	huge := json.RawMessage(`"` + strings.Repeat("x", 70_000) + `"`)
	result = newRecord(entry{SessionID: "new", StartLastSeq: beginning, EndLastSeq: huge, RecordedSeq: huge}, huge, nil, false).result(false)
	require.JSONEq(t, `{"ok":true,"session_id":"new"}`, string(result))
}

func FuzzParseCheckpoint(f *testing.F) {
	f.Add([]byte(`{"_rev":"0-1","session_id":"a","source_last_seq":"1-x","history":[{"session_id":"a","recorded_seq":1,"missing_checked":1.5}]}`))
	f.Add([]byte(`{"history":[{"session_id":"a","recorded_seq":{}},null,{"session_id":"b","recorded_seq":[1]}],"docs_read":"x"}`))
	f.Add([]byte(`[{"history":{}}]`))
	f.Add([]byte(`{"session_id":"\ud800","source_last_seq":-1e9}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		c := parseCheckpoint(doc)
		seq, history := commonAncestor(c, c)
		if seq != nil && !json.Valid(seq) {
			t.Fatalf("%q is not a sequence", seq)
		}
		// The result is JSON with the same meaning.
		rec := newRecord(entry{SessionID: "s", StartLastSeq: beginning, EndLastSeq: beginning, RecordedSeq: beginning}, beginning, history, true)
		if again := parseCheckpoint(encode(rec)); again.session != "s" || len(again.history) != min(len(history), maxHistory-1)+1 {
			t.Fatalf("%s became %s", doc, encode(rec))
		}
		if result := recordOf(c).result(true); !json.Valid(result) || len(result) > maxResult {
			t.Fatalf("a result of %d bytes", len(result))
		}
	})
}
