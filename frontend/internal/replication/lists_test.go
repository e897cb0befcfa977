package replication

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/frontend/internal/web"
	"settee/pkg/nodes"
	"settee/replicator"
	"settee/replicator/jobs"
	"settee/replicator/rates"
)

func query(text string) *web.Query { return web.NewQuery(&http.Request{URL: &url.URL{RawQuery: text}}) }

func TestListOptions(t *testing.T) {
	t.Parallel()
	q := query("")
	assert.Equal(t, jobs.ListOptions{Limit: defaultLimit}, readPage(q))
	require.NoError(t, q.Err)
	place := fdbjobs.Position{Owner: `a/"b`, ID: "id|1"}
	q = query(url.Values{"limit": {"99999999"}, "skip": {"3"}, "start_key": {startKey(&place)}}.Encode())
	assert.Equal(t, jobs.ListOptions{Limit: jobs.MaxLimit, Skip: 3, After: place}, readPage(q))
	require.NoError(t, q.Err)
	assert.Empty(t, startKey(nil))
	long := base64.RawURLEncoding.EncodeToString([]byte(`["` + string(make([]byte, fdbjobs.MaxNameSize+1)) + `",""]`))
	for _, bad := range []string{"limit=-1", "skip=x", "start_key=x", "start_key=W10x", "start_key=" + long} {
		q := query(bad)
		readPage(q)
		require.Error(t, q.Err, bad)
	}
}

func TestEndsOfPages(t *testing.T) {
	t.Parallel()
	list := jobs.List{Total: 9, Scanned: 4, Next: &fdbjobs.Position{Owner: "a", ID: "b"}}
	plain, search, sorted := jobs.ListOptions{}, jobs.ListOptions{Query: "x"}, jobs.ListOptions{Order: jobs.ByCrash}
	assert.Equal(t, pageEnd{Next: startKey(list.Next)}, endOf(list, plain))
	assert.Equal(t, pageEnd{Next: startKey(list.Next), Scanned: &list.Scanned}, endOf(list, search))
	assert.Equal(t, pageEnd{Next: startKey(list.Next), Scanned: &list.Scanned}, endOf(list, sorted))
	assert.Equal(t, &list.Total, totalOf(list, jobs.Filter{}, plain))
	assert.Nil(t, totalOf(list, jobs.Filter{}, sorted), "it is not known")
	assert.Nil(t, totalOf(list, jobs.Filter{Mirror: "m"}, plain), "it is not known")
}

func TestStates(t *testing.T) {
	t.Parallel()
	type shown = []replicator.ShownState
	type couch = []replicator.State
	for text, want := range map[string]jobs.States{
		"": {}, "states=": {Couch: couch{}}, "condition=": {Shown: shown{}},
		"states=running,+failed":                     {Couch: couch{"running", "failed"}},
		"condition=paused,parked":                    {Shown: shown{"paused", "parked"}},
		"states=error,initializing&condition=failed": {Couch: couch{"crashing", "pending"}, Shown: shown{"failed"}},
	} {
		q := query(text)
		assert.Equal(t, want, readStates(q), text)
		require.NoError(t, q.Err, text)
	}
	for text, wrong := range map[string]string{
		"states=running,walking": "States must be one or more of [initializing,error,running,pending,crashing,completed,failed]",
		"condition=PARKED":       "`condition` must be one or more of [running,pending,scheduled,parked,paused,crashing,completed,failed]",
	} {
		q := query(text)
		assert.Equal(t, jobs.States{}, readStates(q))
		require.ErrorContains(t, q.Err, wrong)
	}
}

// What is read is what a request that waits sees.
func TestParametersOfLists(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"condition", "limit", "q", "skip", "start_key", "states"}, DocParameters)
	assert.Equal(t, []string{"condition", "database", "limit", "mirror", "mirrored", "q", "skip", "sort", "start_key", "states", "user"}, JobParameters)
	assert.Equal(t, []string{"since", "step", "until"}, RateParameters)
}

func TestFilters(t *testing.T) {
	t.Parallel()
	name, empty := "ada", ""
	for text, want := range map[string]jobs.Filter{
		"":                     {},
		"database=_replicator": {Database: "_replicator"},
		"database=":            {Transient: true},
		"user=ada":             {User: &name},
		"user=":                {User: &empty},
		"database=&user=ada":   {Transient: true, User: &name},
		"mirrored=false":       {Unmirrored: true},
		"mirrored=true":        {},
	} {
		q := query(text)
		assert.Equal(t, want, readFilter(q), text)
		require.NoError(t, q.Err, text)
	}
	q := query("mirrored=no")
	readFilter(q)
	require.ErrorContains(t, q.Err, "`mirrored` must be true or false")
}

func TestOrders(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]jobs.Order{
		"": jobs.ByOwner, "skip=1": jobs.ByOwner, "sort=" + string(jobs.ByCrash): jobs.ByCrash, "sort=" + string(jobs.ByStuck): jobs.ByStuck,
		"sort=state&skip=1": jobs.ByState,
		"sort=" + string(jobs.ByRefusal) + "&start_key=" + startKey(&fdbjobs.Position{Owner: "17", ID: "a"}): jobs.ByRefusal,
	} {
		q := query(text)
		_, opts := readJobList(q)
		require.NoError(t, q.Err, text)
		assert.Equal(t, want, opts.Order, text)
	}
	q := query("sort=name")
	readJobList(q)
	require.ErrorContains(t, q.Err, "`sort` must be one of [state,failing,stuck,behind,documents_refused]")
}

// Each line is a list, and why it is refused; nothing if it is not.
func TestCombinations(t *testing.T) {
	t.Parallel()
	key, timed := "&start_key="+startKey(&fdbjobs.Position{Owner: "aa", ID: "b"}), "&start_key="+startKey(&fdbjobs.Position{Owner: "17", ID: "b"})
	for text, want := range map[string]string{
		"skip=1" + key: "", "q=a" + key: "", "user=ada&q=a&sort=failing": "", "sort=stuck&q=a" + timed: "", "sort=state" + key: "", "sort=state&skip=1": "",
		"database=&user=ada&skip=1": "", "mirrored=false&skip=1": "",
		"mirror=m&q=a&states=failed": "", "mirror=m&sort=failing" + timed: "", "mirror=m" + key: "",

		"q=a&skip=1":              "`skip` cannot be combined with `q`: use `start_key`",
		"database=x&user=ada":     "`user` is for jobs without a database, and cannot be combined with a `database`",
		"sort=state&q=a":          "`sort=state` cannot be combined with `q`, nor with both `skip` and `start_key`",
		"sort=state&skip=1" + key: "`sort=state` cannot be combined with `q`, nor with both `skip` and `start_key`",
		"sort=failing&skip=1":     "`skip` cannot be combined with `sort`: use `start_key`",
		"sort=failing" + key:      wrongStartKey,
		"mirror=m&database=x":     "`mirror` cannot be combined with `database` or `user`",
		"mirror=m&database=":      "`mirror` cannot be combined with `database` or `user`",
		"mirror=m&user=ada":       "`mirror` cannot be combined with `database` or `user`",
		"mirror=m&mirrored=false": "`mirrored=false` cannot be combined with `mirror`",
		"mirror=m&skip=1":         "`skip` cannot be combined with `mirror`: use `start_key`",
		"mirror=m&sort=state":     "`sort` of the jobs of a mirror must be failing",
		"mirror=m&sort=stuck":     "`sort` of the jobs of a mirror must be failing",
	} {
		q := query(text)
		if readJobList(q); want == "" {
			require.NoError(t, q.Err, text)
		} else {
			require.ErrorContains(t, q.Err, want, text)
		}
	}
	q := query("q=a&skip=1")
	readDocList(q)
	require.ErrorContains(t, q.Err, "`skip` cannot be combined with `q`")
}

// Whatever a request asks for, a plot has whole slots, which the nodes have kept, and not too many of them.
func TestPlots(t *testing.T) {
	t.Parallel()
	const hour = 3600
	now := time.Unix(1_000_000_007, 0)
	for _, text := range []string{
		"", "step=1", "step=61", "step=3600", "step=99999999", "since=0", "since=999990000&until=999999000&step=7", "until=99999999999",
		"since=999999000&until=999999001",
	} {
		q := query(text)
		p := readPlot(q, now)
		require.NoError(t, q.Err, text)
		slot := int64(p.slot / time.Second)
		assert.Contains(t, []time.Duration{rates.FineSlot, rates.CoarseSlot}, p.slot, text)
		assert.Zero(t, p.step%slot, text)
		assert.Zero(t, p.since%p.step, text)
		assert.Zero(t, p.until%p.step, text)
		assert.Less(t, p.since, p.until, text)
		assert.LessOrEqual(t, (p.until-p.since)/p.step, int64(maxPoints), text)
		assert.Greater(t, p.since, now.Unix()-25*hour-p.step, text)
	}
	for _, bad := range []string{"step=0", "since=999999000&until=999999000", "until=1", "since=x"} {
		q := query(bad)
		assert.Equal(t, plot{}, readPlot(q, now), bad)
		require.Error(t, q.Err, bad)
	}
}

func TestShownShares(t *testing.T) {
	t.Parallel()
	for weight, want := range map[float64]float64{0: 0, 1: 100, 0.07: 7, 1. / 100 * 29: 29, 3.33: 333} {
		assert.InDelta(t, want, sharesOf(weight), 0)
	}
}

// Only live replication nodes have slots. A node is live if one of the processes with its name is.
func TestClusters(t *testing.T) {
	t.Parallel()
	node := func(name string, live bool, roles ...string) nodes.Seen {
		return nodes.Seen{Node: nodes.Node{Name: name, Roles: roles, Running: 2, Held: 2, MaxJobs: 5}, Live: live}
	}
	assert.Equal(t, &replicator.Cluster{Live: map[string]bool{"a": true, "b": true}, Slots: 10, Used: 4}, clusterOf([]nodes.Seen{
		node("a", true, "api_frontend", "replication"), node("a", false, "replication"), node("b", false, "replication"), node("b", true, "replication"),
		node("c", true, "api_frontend"), node("d", false, "replication"),
	}))
}

func TestTimesOfTasks(t *testing.T) {
	t.Parallel()
	assert.Zero(t, unixSeconds(time.Time{}))
	assert.Equal(t, int64(7), unixSeconds(time.Unix(7, 999)))
}
