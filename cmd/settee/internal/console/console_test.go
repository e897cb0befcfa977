package console

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/clipperhouse/displaywidth"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func TestWords(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"0", "999", "1,000", "-1,234,567"}, []string{count(0), count(999), count(1000), count(-1234567)})
	assert.Equal(t, []string{"1 job", "0 jobs", "1,200 jobs"}, []string{some(1, "job"), some(0, "job"), some(1200, "job")})
	assert.Equal(t, []string{"0", "0.5", "12", "4,560"}, []string{rate(0), rate(0.5), rate(12.3), rate(4560)})
	assert.Equal(t, []string{"0 B", "999 B", "1.0 kB", "100 kB", "2.5 GB"}, []string{size(0), size(999), size(1000), size(99999), size(2.5e9)})
	assert.Equal(t, []string{"0 s", "59 s", "1 min 0 s", "2 h 5 min", "3 d 4 h"},
		[]string{span(-time.Second), span(59 * time.Second), span(time.Minute), span(125 * time.Minute), span(76 * time.Hour)})
	assert.Equal(t, "h:5984/a%2Fb", endpoint("http://u:p@h:5984/a%2Fb/"))
	assert.Equal(t, "a \uFFFD[31mb\uFFFDc", Clean("a\n\x1b[31mb\u202ec"))
}

func TestFilters(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]Filter{
		"":                                     {},
		"condition=paused%2Crunning":           {States: []string{"paused", "running"}},
		"database=a%2F_replicator&q=b.example": {Database: "a/_replicator", Search: "b.example"},
		"database=":                            {Transient: true},
		"sort=stuck&user=ann":                  {User: "ann", Sort: "stuck"},
	} {
		require.NoError(t, f.Check())
		assert.Equal(t, want, f.query().Encode())
	}
	for says, f := range map[string]Filter{
		"--state has \"odd\"": {States: []string{"odd"}},
		"--sort":              {Sort: "name"},
		"--database excludes": {Database: "_replicator", User: "ann"},
	} {
		assert.ErrorContains(t, f.Check(), says)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][2]string{
		"_replicator/a": {"_replicator", "a"}, "x/_replicator/a/b": {"x/_replicator", "a/b"},
	} {
		database, doc, ok := splitName(name)
		assert.True(t, ok)
		assert.Equal(t, want, [2]string{database, doc})
	}
	for _, name := range []string{"films", "my_replicator/x", "0123+continuous"} {
		_, _, ok := splitName(name)
		assert.False(t, ok, name)
	}
	assert.Equal(t, "/_scheduler/jobs/a%2Bcontinuous%7Cx", jobPath("a+continuous|x"))
}

// What the node tells about a job gets the times, and what is true beside it.
func TestWhy(t *testing.T) {
	t.Parallel()
	for want, condition := range map[string]string{
		"copies changes, for 1 min 0 s": `{"state": "running", "message": "copies changes", "since": "2026-01-02T11:59:00Z"}`,
		"has failed, and waits for its next try: db_not_found: no; goes on in 2 min 0 s": `{"state": "crashing",
			"message": "has failed, and waits for its next try: db_not_found: no", "until": "2026-01-02T12:02:00Z", "fault": {"message": "db_not_found: no", "text": "x"}}`,
		"is paused by its document, for 1 h 0 min; no": `{"state": "paused", "message": "is paused by its document",
			"since": "2026-01-02T11:00:00Z", "marks": [{"type": "failing", "count": 3}], "fault": {"message": "no", "text": "x"}}`,
		"3 documents refused; no progress for 5 min 0 s; copies changes": `{"state": "running", "message": "copies changes",
			"marks": [{"type": "stuck", "since": "2026-01-02T11:55:00Z"}, {"type": "documents_refused", "count": 3}]}`,
		"waits for a slot, for 10 s, behind 7 others of its database or user": `{"state": "pending", "message": "waits for a slot",
			"since": "2026-01-02T11:59:50Z", "queue": {"before": 7}}`,
		"waits for a slot, behind 1 other of its database or user": `{"state": "pending", "message": "waits for a slot", "queue": {"before": 1}}`,
		"waits for a slot, behind more than 1,000 others of its database or user": `{"state": "pending", "message": "waits for a slot",
			"queue": {"before": 1000, "more": true}}`,
	} {
		var job Job
		require.NoError(t, json.Unmarshal([]byte(`{"condition": `+condition+`}`), &job))
		assert.Equal(t, want, job.Why(noon))
	}
}

// A table fits into every width that has room for the least of its columns, and is aligned.
// A mirror is one line, and its databases come last, by name.
func TestMirrorsInLists(t *testing.T) {
	t.Parallel()
	made := func(database string) Job {
		return Job{ID: "of-" + database, Mirror: "m", MirroredDatabase: database, Condition: Condition{State: "parked"}}
	}
	mirror := Job{ID: "m", Info: &Info{Mirror: &Mirror{Databases: 3, States: map[string]int64{"current": 2, "first_run": 1}}}}
	portions := [][]Job{{made("c"), made("a")}, {mirror, {ID: "z"}, made("b")}}
	for inOrder, want := range map[bool]string{false: "JOB m z of-a of-b of-c", true: "JOB of-c of-a m z of-b"} {
		var out bytes.Buffer
		list := &List{Output: Output{Out: &out, Now: time.Now()}, InOrder: inOrder}
		for _, jobs := range portions {
			require.NoError(t, list.Write(jobs))
		}
		require.NoError(t, list.End())
		var names []string
		for line := range strings.Lines(out.String()) {
			names = append(names, strings.Fields(line)[1])
		}
		assert.Equal(t, want, strings.Join(names, " "))
		assert.Contains(t, out.String(), "3 databases")
	}
	var page bytes.Buffer
	to := Output{Out: &page, Now: noon}
	require.NoError(t, to.WriteJob(mirror))
	require.NoError(t, to.WriteDatabases(mirror, []Job{made("a"), made("b")}))
	assert.Regexp(t, `(?m)^Databases +3: 2 current, 1 first run$`, page.String())
	assert.Regexp(t, `(?s)\nDATABASE +STATE.*\na +parked.*\nb +parked`, page.String())
	assert.NotContains(t, page.String(), "more")
	require.NoError(t, to.WriteDatabases(mirror, make([]Job, ShownDatabases+1)))
	assert.Contains(t, page.String(), "There are more: settee jobs list --mirror m\n")
}

func TestTables(t *testing.T) {
	t.Parallel()
	rows := [][]string{
		{"running", "_replicator/films", "a.example/films", "12", strings.Repeat("long ", 40)},
		{"crashing", "_replicator/本棚", "b.example/shelf", "1,234", "refused"},
	}
	for width := 20; width < 300; width++ {
		table := table{width: width, columns: []column{
			{head: "STATE", least: 3}, {head: "JOB", least: 5}, {head: "SOURCE", least: 9, spare: 2}, {head: "N", right: true, least: 3, spare: 1},
			{head: "WHY", least: 4},
		}}
		lines := table.lines(rows)
		require.Len(t, lines, 3)
		for _, line := range lines {
			require.LessOrEqual(t, displaywidth.String(line), width, line)
		}
	}
	whole := table{columns: []column{{head: "A"}, {head: "N", right: true}}}
	assert.Equal(t, []string{"A     N", "one   1", "two  22"}, whole.lines([][]string{{"one", "1"}, {"two", "22"}}))
	assert.Equal(t, []string{"x     3"}, whole.lines([][]string{{"x", "3"}}), "later rows are below the first ones")
	assert.Equal(t, []string{"\uFFFDx    4"}, whole.lines([][]string{{"\x1bx", "4"}}), "a terminal obeys no cell")
}

func TestProblems(t *testing.T) {
	t.Parallel()
	db, doc := "_replicator", "a"
	one := []Job{{Database: &db, DocID: &doc}}
	for want, p := range map[[2]string]Problem{
		{"target h: answers with a server error", "_replicator/a"}: {Kind: "failing", Message: "target h: answers with a server error", First: one},
		{"no progress: target h: accepts requests, and does not answer", "_replicator/a: Look."}: {
			Kind: "stuck", Message: "target h: accepts requests, and does not answer", Advice: Advice{"server_hangs", "Look."}, First: one},
		{"target h: refuses documents", "_replicator/a: settee jobs failures JOB lists them, with the reasons"}: {
			Kind: "documents_refused", Message: "target h: refuses documents", Advice: Advice{"refused_documents", "Look."}, First: one},
		{"source h: late", "Create it."}: {Kind: "late", Message: "source h: late", Advice: Advice{"feed", "Create it."}},
	} {
		assert.Equal(t, want, [2]string{p.what(), p.hint()})
	}
	o := &overview{summary: &Summary{}, problems: Problems{Total: 7, Problems: []Problem{
		{Message: "h: 500 full", Jobs: 3, Since: noon.Add(-time.Minute), First: one}, {Message: "x", Jobs: 1, First: one},
	}}}
	text := ""
	for _, line := range o.attention(noon, 80, 5) {
		for _, p := range line {
			text += p.text + "\n"
		}
	}
	assert.Contains(t, text, "1 min 0 s")
	assert.Contains(t, text, "h: 500 full")
	assert.Contains(t, text, "and 6 other problems")
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	members := []Member{{Name: "n", Roles: []string{"replication"}, Live: true, Running: 8, MaxJobs: 8}}
	without := []Member{{Name: "n", Roles: []string{"replication"}, Live: true}}
	for want, o := range map[string]*overview{
		"There are no jobs that have not ended.": {summary: &Summary{Jobs: map[string]int64{"completed": 3}}},
		"All 17 jobs are well. All 8 slots are used, and 4 jobs wait, the oldest for 27 min 0 s.": {
			summary: &Summary{Jobs: map[string]int64{"running": 8, "pending": 4, "scheduled": 5}, OldestDue: noon.Add(-27 * time.Minute)}, nodes: members},
		"3 of 10 jobs need attention. 8 of 8 slots are used.": {
			summary: &Summary{Jobs: map[string]int64{"running": 8, "crashing": 1, "failed": 1}}, problems: Problems{Attention: 3}, nodes: members},
		"The one job is well. [replicator] max_jobs is 0, so no jobs are started, and 1 job waits.": {
			summary: &Summary{Jobs: map[string]int64{"pending": 1}}, nodes: without},
		"There are no jobs that have not ended. [replicator] max_jobs is 0, so no jobs are started.": {
			summary: &Summary{}, nodes: without},
		"The one job is well. All nodes that replicate are cordoned, and 1 job waits.": {
			summary: &Summary{Jobs: map[string]int64{"pending": 1}}, nodes: []Member{{Roles: []string{"replication"}, Live: true, Cordon: &Cordon{}}}},
		"The one job is well. No node that replicates is live.": {
			summary: &Summary{Jobs: map[string]int64{"pending": 1}}, nodes: []Member{{Roles: []string{"replication"}}}},
	} {
		text := ""
		for _, p := range o.verdict(noon) {
			text += p.text
		}
		assert.Equal(t, want, text)
	}
}
