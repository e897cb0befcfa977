package fdbjobs_test

import (
	"flag"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/internal/testkit"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/tuple"
)

// The model of what the layer costs. docs/job-layer.md has its tables, under "How far it goes". TestModelSteps compares
// it with single steps, and TestScale (scale_world_test.go) with loads that run.

var update = flag.Bool("update", false, "write the tables of docs/job-layer.md")

// The sizes of the model's jobs, in bytes.
const (
	modelID    = 40
	modelOwner = 20
	modelToken = 16
	modelArgs  = 500
	modelState = 300
)

// modelJob returns job n of the model. The ids are spread evenly.
func modelJob(n int) fdbjobs.Spec {
	return fdbjobs.Spec{
		ID: fmt.Sprintf("%016x%0*d", scatter(n), modelID-16, n), Owner: fmt.Sprintf("%0*d", modelOwner, 0),
		Token: fmt.Sprintf("%0*d", modelToken, n), Args: object(modelArgs), State: object(modelState),
	}
}

// scatter returns a number that looks random.
func scatter(n int) uint64 {
	return uint64(n) * 0x9e3779b97f4a7c15
}

// object returns a JSON object of a size.
func object(size int) []byte { return text(`{"a":"` + strings.Repeat("a", size-8) + `"}`) }

// step is what a step in the life of a job costs.
type step struct {
	keys, bytes        int // written: the keys, and the bytes of keys and values
	gets, ranges, rows int // read: single keys, ranges, and rows of ranges
}

func (s step) minus(o step) step {
	return step{s.keys - o.keys, s.bytes - o.bytes, s.gets - o.gets, s.ranges - o.ranges, s.rows - o.rows}
}

func (s step) plus(o step) step { return s.minus(step{}.minus(o)) }

// costs returns what a store has counted.
func costs(store *enginetest.Controlled) step {
	return step{
		keys: int(store.KeysWritten.Load()), bytes: int(store.SizeWritten.Load()),
		gets: int(store.Gets.Load()), ranges: int(store.Ranges.Load()), rows: int(store.Rows.Load()),
	}
}

// steps are the steps of a job whose owner waits.
type steps struct {
	add, update, renew, finish, resubmit step
	// accept is what a claim writes for a job. The other claims are what they read, with one owner and one claimer.
	accept, first, later, none step
	// heartbeat is what claims also write.
	heartbeat step
	// look is a monitor's that finds nothing, without the running jobs that it reads. requeue is what it also does for a job
	// that is overdue. standby is a look of the other monitors.
	look, requeue, standby step
}

// modelSteps computes the steps of a job, from the keys in the package's doc comment.
func modelSteps() (s steps) {
	const (
		data, other = int64(0), int64(1) // the first element of a key has one byte for data, and two for all others
		seconds     = int64(1 << 30)     // the time: it has that size from 1970 to 2106
		counter     = 8
	)
	id, owner := strings.Repeat("i", modelID), strings.Repeat("o", modelOwner)
	token, lock := strings.Repeat("t", modelToken), strings.Repeat("l", 32)
	stamp := tuple.Versionstamp{}
	key := func(first int64, elements ...any) int {
		return len(prefix) + len(append(tuple.Tuple{first, "work"}, elements...).Pack())
	}
	row := func(sequence any, status fdbjobs.Status, lock string, pending, running, finished int64) int {
		return key(data, id) + len(tuple.Tuple{
			sequence, string(status), lock, int64(0), owner, seconds, nil, "", token, nil, int64(1), "", "", false,
			pending, running, finished,
		}.Pack())
	}
	state, args := key(other, id)+modelState, key(other, id, 0)+modelArgs
	ready, active := key(other, owner, stamp, id), key(other, owner, "", id)
	held := active + len(tuple.Tuple{stamp, 60.0}.Pack())
	queued := ready + key(other, "ready") + counter // a row in ready, and the key that claimers watch
	entry := func(status fdbjobs.Status) int {      // in _jobs
		ended := int64(0)
		if status == fdbjobs.Finished {
			ended = 1
		}
		return key(other, "_jobs", ended, owner, "", "", id)
	}
	counted := func(statuses ...fdbjobs.Status) (n int) { // a tally for each
		for _, status := range statuses {
			n += entry(status) - len(tuple.Tuple{id}.Pack()) + len(tuple.Tuple{int64(4), string(status)}.Pack()) + counter
		}
		return n
	}
	const pending, running, finished = fdbjobs.Pending, fdbjobs.Running, fdbjobs.Finished

	s.add = step{keys: 7, gets: 2, bytes: args + state + queued + row(stamp, pending, "", 1, 0, 0) + entry(pending) + counted(pending)}
	s.accept = step{keys: 5, bytes: ready + held + row(nil, running, lock, 1, 1, 0) + counted(pending, running)}
	s.update = step{keys: 1, gets: 1, bytes: state}
	s.renew = step{keys: 2, gets: 1, bytes: state + held}
	ended := active + row(nil, finished, lock, 1, 1, 1) + entry(running) + entry(finished) + counted(running, finished)
	s.finish = step{keys: 7, gets: 1, bytes: state + ended}
	moved := active + queued + counted(running, pending)
	s.resubmit = step{keys: 7, gets: 2, bytes: state + moved + row(stamp, pending, lock, 2, 1, 0)}
	s.requeue = step{keys: 6, gets: 2, bytes: moved + row(stamp, pending, "", 2, 1, 0)}
	s.heartbeat = step{keys: 1, bytes: key(other, lock) + len(tuple.Tuple{seconds}.Pack())}

	// rollup; the job's row, state, args; the owner's account, charges and weight, the latter also with a conflict
	s.later = step{gets: 8, ranges: 6, rows: 4}       // delayed, the waiting owners, ready, the counters of the owner
	s.first = s.later.minus(step{ranges: 1, rows: 1}) // the heartbeats, fewer waiting owners, no running jobs
	s.none = step{gets: 4, ranges: 6, rows: 2}        // no job; ready
	s.standby = step{gets: 1}                         // the lease
	s.look = s.standby.plus(step{                     // active, heartbeats, owners, and the two counters of one
		keys: 1, bytes: key(other, "monitor") + len(tuple.Tuple{lock, int64(1)}.Pack()), ranges: 4, rows: 4,
	})
	return s
}

// TestModelSteps compares the model with each step of a job alone.
func TestModelSteps(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		store := enginetest.Control(db)
		b := newBundleWith(t, store, fdbjobs.Options{Timeout: 30 * time.Second})
		var h *fdbjobs.Held
		is := func(what string, want step, do func()) {
			t.Helper()
			synctest.Wait() // until the claimer has tidied
			before := costs(store)
			do()
			synctest.Wait()
			assert.Equal(t, want, costs(store).minus(before), what)
		}
		model := modelSteps()
		accept := func() { h = b.accept(t) }
		state := object(modelState)

		b.add(t, modelJob(0))
		is("first", model.accept.plus(model.first).plus(model.heartbeat), accept)
		is("add", model.add, func() { b.add(t, modelJob(1)) })
		b.add(t, modelJob(2), modelJob(3))
		after(400 * time.Millisecond)
		is("window", model.accept.plus(model.later).plus(step{rows: 2}), accept)
		is("again", model.accept.plus(model.later).plus(step{rows: 1}), accept)
		is("later", model.accept.plus(model.later), accept)
		is("none", model.none, func() { assert.Empty(t, b.take(t, 1)) })
		is("update", model.update, func() { require.NoError(t, h.Update(t.Context(), state, nil)) })
		after(5 * time.Second)
		is("renew", model.renew, func() { require.NoError(t, h.Update(t.Context(), state, nil)) })
		is("resubmit", model.resubmit, func() { require.NoError(t, h.Resubmit(t.Context(), time.Now(), state, nil)) })
		accept()
		is("finish", model.finish, func() { require.NoError(t, h.Finish(t.Context(), state, nil)) })
	})
}

// TestModelLook compares the model with a monitor's look, with and without a job that is overdue.
func TestModelLook(t *testing.T) {
	for _, overdue := range []bool{false, true} {
		testkit.RunBubble(t, fmt.Sprint("overdue=", overdue), func(t *testing.T) {
			store := enginetest.Control(enginetest.Memory(t))
			b := newBundleWith(t, store, fdbjobs.Options{Timeout: 30 * time.Second})
			b.add(t, modelJob(0), modelJob(1), modelJob(2))
			held := b.take(t, 2)
			_, stop := b.monitor(t)
			defer stop()
			renew := func(h *fdbjobs.Held) { require.NoError(t, h.Update(t.Context(), nil, nil)) }
			want := modelSteps().look.plus(step{rows: 2}) // of active
			after(18 * time.Second)
			renew(held[0])
			if overdue {
				want = want.plus(modelSteps().requeue)
			} else {
				renew(held[1])
			}
			after(11 * time.Second)
			before := costs(store)
			after(time.Second) // a timeout after the monitor's first look
			assert.Equal(t, want, costs(store).minus(before))
		})
	}
}

// load is a steady load on a queue, whose jobs have one owner.
type load struct {
	jobs     int           // that run
	claimers int           // processes: each holds its share of the jobs, takes jobs and has a monitor
	update   time.Duration // between two updates of a job, of which the last ends it
	timeout  time.Duration // of the queue
	life     time.Duration // of a job with its holder
}

const (
	modelRead   = time.Millisecond     // the time of reads that are made together
	modelCommit = 5 * time.Millisecond // the time of a commit
	modelAtOnce = 4                    // transactions of a process before updates share them
)

// renewal is the time between two updates of a job that renew the hold.
func (l load) renewal() time.Duration {
	every := (l.timeout/6 + l.update - 1) / l.update
	return l.update * every //nolint:durationcheck // a number of updates
}

// window is the number of rows in ready that a claim reads at most.
func (l load) window() int { return min(max(16, 4*l.claimers), 2048) }

// perSecond is what happens in a second.
type perSecond struct{ transactions, keys, bytes, gets, ranges, rows float64 }

// and adds a number of steps.
func (r perSecond) and(n float64, s step) perSecond {
	return perSecond{
		r.transactions, r.keys + n*float64(s.keys), r.bytes + n*float64(s.bytes),
		r.gets + n*float64(s.gets), r.ranges + n*float64(s.ranges), r.rows + n*float64(s.rows),
	}
}

// starts returns the number of jobs that start in a second. As many are added and end.
func (l load) starts() float64 { return float64(l.jobs) / l.life.Seconds() }

// updates returns the number of updates and ends in a second.
func (l load) updates() float64 { return float64(l.jobs) / l.update.Seconds() }

// rates returns what a load costs. Jobs wait, so that each process takes one as soon as one of its own has ended.
func (l load) rates() map[kind]perSecond {
	s, starts, updates, claimers := modelSteps(), l.starts(), l.updates(), float64(l.claimers)
	renewals := float64(l.jobs)/l.renewal().Seconds() - starts // a job does not renew when it ends
	shared := modelAtOnce / (modelRead + modelCommit).Seconds()
	writes := perSecond{transactions: min(updates, claimers*shared)}
	writes = writes.and(updates-renewals-starts, s.update).and(renewals, s.renew).and(starts, s.finish)

	// Each claim reads a window, of which later has one row.
	window := float64(l.window())
	claims := perSecond{transactions: starts}.and(starts, s.accept.plus(s.later))
	heartbeats := min(starts, claimers/2) // written, and read: all of them
	claims = claims.and(heartbeats, s.heartbeat).and(heartbeats, step{ranges: 1})
	claims.rows += heartbeats*claimers + starts*(window-1)

	looks := 6 / l.timeout.Seconds() // of one monitor
	pages := float64(l.jobs/5_000 + 1)
	monitors := perSecond{transactions: (claimers + 1 + pages) * looks}.and((claimers-1)*looks, s.standby).and(looks, s.look)
	monitors.ranges += (pages - 1) * looks
	monitors.rows += looks * (claimers - 1 + float64(l.jobs))
	adds := perSecond{transactions: starts}.and(starts, s.add)
	return map[kind]perSecond{kindAdds: adds, kindWrites: writes, kindClaims: claims, kindMonitors: monitors}
}

// TestModelDocument compares the tables of docs/job-layer.md with the model.
func TestModelDocument(t *testing.T) {
	t.Parallel()
	const path = "../docs/job-layer.md"
	read, err := os.ReadFile(path)
	require.NoError(t, err)
	text := string(read)
	for name, table := range map[string]string{"steps": stepsTable(), "loads": loadsTable()} {
		mark := "<!-- " + name + ": generated by go test ./fdbjobs -update -->\n"
		before, rest, found := strings.Cut(text, mark)
		require.True(t, found, "%s has no line %s", path, mark)
		_, after, _ := strings.Cut(rest, "\n\n")
		text = before + mark + table + "\n" + after
	}
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return
	}
	require.Equal(t, text, string(read), "stale: run go test ./fdbjobs -update")
}

func stepsTable() string {
	s := modelSteps()
	var b strings.Builder
	writeHeader(&b, "step", "keys written", "bytes written", "keys read", "ranges read", "rows of ranges")
	for _, row := range []struct {
		name string
		step
	}{
		{"add", s.add},
		{"accept: take the job", s.accept},
		{"and find it: first claim of a process", s.first},
		{"or: later claim", s.later},
		{"claim that finds nothing", s.none},
		{"update, state only", s.update},
		{"update that renews the hold", s.renew},
		{"finish", s.finish},
		{"resubmit", s.resubmit},
		{"look of a monitor that stands by", s.standby},
		{"look of the one that looks for all", s.look},
		{"and requeue a job", s.requeue},
	} {
		fmt.Fprintf(&b, "| %s | %d | %s | %d | %d | %d |\n",
			row.name, row.keys, grouped(row.bytes), row.gets, row.ranges, row.rows)
	}
	return b.String()
}

func writeHeader(b *strings.Builder, columns ...string) {
	b.WriteString("| " + strings.Join(columns, " | ") + " |\n" + strings.Repeat("| --- ", len(columns)) + "|\n")
}

// What one core of FoundationDB does in a second, and the copies of each write: see docs/job-layer.md.
const (
	coreReads  = 55_000
	coreWrites = 20_000
	copies     = 3
)

func loadsTable() string {
	var b strings.Builder
	writeHeader(&b, "jobs", "processes", "update every", "transactions/s: updates", "adds", "claims", "monitors",
		"keys written/s", "MB written/s", "keys read/s", "rows read/s: claims", "monitors", "cores: writes", "reads")
	for _, l := range []load{
		{jobs: 1_000, claimers: 1, update: 10 * time.Second},
		{jobs: 30_000, claimers: 30, update: 10 * time.Second},
		{jobs: 1_000_000, claimers: 100, update: 10 * time.Second},
		{jobs: 1_000_000, claimers: 1_000, update: 10 * time.Second},
		{jobs: 1_000_000, claimers: 1_000, update: 2 * time.Second},
		{jobs: 1_000_000, claimers: 10_000, update: 10 * time.Second},
	} {
		l.timeout, l.life = time.Minute, 1000*time.Second
		rates := l.rates()
		var all perSecond
		for _, r := range rates {
			all.keys, all.bytes, all.gets, all.rows = all.keys+r.keys, all.bytes+r.bytes, all.gets+r.gets, all.rows+r.rows
		}
		fmt.Fprintf(&b, "| %s | %s | %v |", grouped(l.jobs), grouped(l.claimers), l.update)
		for _, n := range []float64{
			rates[kindWrites].transactions, rates[kindAdds].transactions,
			rates[kindClaims].transactions, rates[kindMonitors].transactions,
			all.keys, all.bytes / 1e6, all.gets, rates[kindClaims].rows, rates[kindMonitors].rows,
			copies * all.keys / coreWrites, (all.gets + all.rows) / coreReads,
		} {
			b.WriteString(" " + figure(n) + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// figure returns a number with three digits, or all of a whole number up to 9,999.
func figure(n float64) string {
	if n < 10_000 && n == math.Trunc(n) {
		return grouped(int(n))
	}
	unit := math.Pow(10, math.Floor(math.Log10(n))-2)
	n = math.Round(n/unit) * unit
	if n < 100 {
		return strconv.FormatFloat(n, 'g', 3, 64)
	}
	return grouped(int(math.Round(n)))
}

// grouped returns a number with commas.
func grouped(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return grouped(n/1000) + fmt.Sprintf(",%03d", n%1000)
}
