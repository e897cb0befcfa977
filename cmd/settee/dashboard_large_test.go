//go:build !fdb

// No other engine changes what these pages show.

package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"settee/fdbjobs"
	"settee/internal/browsertest"
	"settee/internal/seeds"
	"settee/internal/testkit"
	"settee/pkg/kv"
	"settee/replicator"
	"settee/replicator/jobs"
)

// soak is how long TestDashboardOfManyJobs watches a list of jobs. It then also measures times and the browser's memory,
// which on a busy machine may be anything.
var soak = flag.Duration("dashboard.soak", 0, "watch 100,000 jobs for so long, and fail if the dashboard is slow or grows")

const jobsAtOnce = 500

// fillStore makes a new store with many jobs of a user, which wait for a time: one of ten crashes, the others are pending.
func fillStore(t *testing.T, manyJobs int) (storeURL string) {
	t.Helper()
	storeURL = "pebble:" + filepath.Join(t.TempDir(), "data")
	db, err := kv.Open(t.Context(), storeURL, kv.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	require.NoError(t, checked(t, db))
	layer := fdbjobs.Open(db, jobsPrefix, fdbjobs.Options{Derive: jobs.Derivations()})
	defer layer.Close()
	store, err := jobs.Open(t.Context(), db, layer, jobs.Options{Documents: docsPrefix})
	require.NoError(t, err)
	var adding errgroup.Group // commits at the same time share a sync of the disk
	adding.SetLimit(16)
	for n := 0; n < manyJobs; n += jobsAtOnce {
		specs := make([]fdbjobs.Spec, jobsAtOnce)
		for i := range specs {
			specs[i] = waitingJob(t, store, n+i)
		}
		adding.Go(func() error {
			return db.Transact(t.Context(), func(tx kv.Transaction) error {
				return store.Jobs.Add(tx, specs...)
			})
		})
	}
	require.NoError(t, adding.Wait())
	return storeURL
}

// began is when the jobs of fillStore were added.
var began = time.Unix(1_790_000_000, 0)

// waitingJob returns the nth job of fillStore, in the form that package jobs gives it.
func waitingJob(t *testing.T, store *jobs.Store, n int) fdbjobs.Spec {
	t.Helper()
	request, err := replicator.ParseRequest(fmt.Appendf(nil,
		`{"source": "http://127.0.0.1:1/source-%d", "target": "http://127.0.0.1:1/target-%d", "continuous": true}`, n, n), replicator.ParseOptions{})
	require.NoError(t, err)
	user, id := "many", request.Replication.JobID("many")
	args := replicator.JobArgs{Replication: request.Replication, Definition: id, Life: id, User: &user, Added: began}
	args.ReplicationID, err = store.Requests.ReplicationID(request.Replication)
	require.NoError(t, err)
	state := replicator.JobState{State: replicator.StatePending, Definition: id, ReplicationID: args.ReplicationID, LastUpdated: began}
	spec := fdbjobs.Spec{ID: id, Owner: "user:" + user, Label: "transient", Scheduled: time.Now().Add(24 * time.Hour)}
	if n%10 == 0 {
		spec.Tag, state.State, state.CrashingSince, state.ErrorCount = "crashing", replicator.StateCrashing, began, 1
		state.SetError("db_not_found", "could not open the source")
	}
	spec.Args, err = args.Stored()
	require.NoError(t, err)
	spec.Listed, err = json.Marshal(args)
	require.NoError(t, err)
	spec.State, err = json.Marshal(state)
	require.NoError(t, err)
	return spec
}

// A page of a list of many jobs costs as much as one of a few: one request for each update, of bounded size, and the same
// number of rows. However often jobs change, nothing in the browser grows.
func TestDashboardOfManyJobs(t *testing.T) {
	testkit.SkipShort(t)
	t.Parallel()
	const running, most = 3, 100_000
	manyJobs := seeds.Rounds(t, most) / 1000 * 1000 // fillStore adds whole thousands
	if *soak > 0 {
		manyJobs = most
	}
	page := browsertest.Open(t) // without a browser there is nothing to do
	node := serveNode(t, fillStore(t, manyJobs))
	source := node.hosted("source")
	for i := range running {
		node.ask(http.StatusCreated, http.MethodPut, "_replicator/running-"+strconv.Itoa(i), document(t, map[string]any{
			"source": source, "target": node.hosted("target-" + strconv.Itoa(i)), "continuous": true,
		}))
	}
	d := openDashboardIn(page, node, adminName, adminPassword)
	d.show("nodes")
	d.WaitText("table", "replication")
	d.Text("(performance.setResourceTimingBufferSize(100000), '')")
	// requests are the requests for lists since the last call, and the bytes of their answers.
	requests := func() (sizes []int) {
		t.Helper()
		require.NoError(t, json.Unmarshal([]byte(d.Text(`(() => {
			const found = performance.getEntriesByType("resource").filter(e => e.name.includes("_scheduler/jobs?")).map(e => e.encodedBodySize);
			performance.clearResourceTimings();
			return JSON.stringify(found);
		})()`)), &sizes))
		return sizes
	}
	const rows = "document.querySelectorAll('table.jobs tbody tr').length"
	d.show("jobs")
	total := fmt.Sprintf("of %d,%03d jobs", manyJobs/1000, running)
	d.WaitText(".total", "1 to 50 "+total)
	d.Wait(rows + " === 50")
	d.press("Next page")
	d.WaitText(".total", "51 to 100 "+total)
	d.press("Last page")
	d.Wait(rows + " === " + strconv.Itoa(running))
	d.press("Page before")
	d.Wait(rows + " === 50")
	// A search goes on by itself until it has looked at all jobs.
	matching := 0
	for n := range manyJobs {
		if strings.HasPrefix(strconv.Itoa(n), "1999") {
			matching++
		}
	}
	d.show("jobs?q=127.0.0.1:1/source-1999")
	d.WaitText(".total", fmt.Sprintf("%d found in %d,%03d jobs", matching, manyJobs/1000, running))
	d.Wait(fmt.Sprintf("%s === %d", rows, matching))
	d.show("jobs?sort=name") // the running ones are the first
	d.Wait(rows + " === 50")
	sizes := requests()
	require.NotEmpty(t, sizes)
	require.Less(t, slices.Max(sizes), 100_000)

	written := 0
	update := func() {
		t.Helper()
		node.ask(http.StatusCreated, http.MethodPut, "source/"+strconv.Itoa(written), "{}")
		written++
		d.Wait(fmt.Sprintf("[...document.querySelectorAll('.progress')].filter(e => /^%d written/.test(e.innerText)).length === %d", written, running))
	}
	for range 3 { // until everything that the page keeps is there
		update()
	}
	requests()
	before, seen, watched := d.Memory(), time.Now(), 0
	for n := 0; n < 10 || time.Since(seen) < *soak; n++ {
		update()
		if sizes := requests(); len(sizes) > 0 {
			watched += len(sizes)
			assert.Less(t, slices.Max(sizes), 100_000)
		}
		require.Equal(t, "50", d.Text("String("+rows+")"))
	}
	after := d.Memory()
	// A page asks again half a second after an answer, at the earliest.
	assert.LessOrEqual(t, watched, 2*int(time.Since(seen)/time.Second)+5)
	// The rows of jobs that run may show more or less.
	assert.Less(t, after.Nodes, before.Nodes+50)
	assert.LessOrEqual(t, after.Listeners, before.Listeners+10)
	assert.LessOrEqual(t, after.Documents, before.Documents)
	t.Logf("%d updates, %d requests; before %+v, after %+v", written, watched, before, after)
	if *soak > 0 {
		assert.Less(t, after.Heap, before.Heap+1_000_000)
		var took []float64
		for range 20 {
			took = append(took, d.opens(t, "jobs?condition=pending&"+strconv.Itoa(len(took)), rows+" === 50"))
			d.show("nodes")
			d.WaitText("table", "replication")
		}
		slices.Sort(took)
		t.Logf("milliseconds until the list is shown: median %.0f, longest %.0f", took[len(took)/2], took[len(took)-1])
		assert.Less(t, took[len(took)/2], 300.)
	}
}

// opens returns how many milliseconds after a page was chosen an expression is true.
func (d dashboard) opens(t *testing.T, path, expression string) (milliseconds float64) {
	t.Helper()
	d.Text(fmt.Sprintf(`(() => {
		delete window.opened;
		const began = performance.now();
		const look = () => {
			if (window.opened || !(%s)) return;
			window.opened = performance.now() - began;
			watch.disconnect();
		};
		const watch = new MutationObserver(look);
		watch.observe(document.body, { childList: true, subtree: true });
		location.hash = %q;
		return "";
	})()`, expression, "#/"+path))
	d.Wait("window.opened")
	require.NoError(t, json.Unmarshal([]byte(d.Text("String(window.opened)")), &milliseconds))
	return milliseconds
}
