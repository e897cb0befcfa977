//go:build fdb && fire

package fire

import (
	"context"
	"fmt"
	"net/url"
	"path"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"settee/pkg/kv"
	"settee/replicator"
	"settee/replicator/jobs"
)

const (
	// sampleEvery is the time between two samples of the store.
	sampleEvery = 200 * time.Millisecond
	// prompt is the longest time of a commit while jobs can be run, and promptSample that of
	// reading all of them; taking over a job takes a dozen commits. If one takes longer, because
	// of a fault or a busy machine, the time for a take-over starts anew.
	prompt       = 400 * time.Millisecond
	promptSample = time.Second
	// takeOver is how long a job may be without a healthy process while one could run it.
	takeOver = activityTimeout + 5*time.Second
	// soonest is the least time between the end of a process and the take-over of its jobs: the
	// last heartbeat is at most a third of the timeout old.
	soonest = activityTimeout / 2
	// momentum is how long a thawed process may continue to send a request.
	momentum = time.Second

	// probe is the key that the test writes.
	probe = "probe"
)

// run is the latest run in a job's state: the process, and the run's name in it. current is false
// if a node has accepted the job and its run has not written the state yet.
type run struct {
	pid     int
	name    string
	current bool
}

// sample is the run of each running job, by its target and by its replication id, the targets of the parked jobs, and how many
// slots each process uses. used[0] counts the runs that have not written the state yet.
type sample struct {
	began, ended time.Time
	runs         map[string]run
	parked       map[string]bool
	used         map[int]int
}

// late is a task that was without a healthy process for too long.
type late struct {
	*task
	at      time.Time
	without time.Duration
}

// observer samples the store and the nodes all the time.
type observer struct {
	*cluster
	work    *work
	samples []sample

	able  time.Time           // since when jobs can be run; zero if they cannot
	ill   map[*task]time.Time // since when a task has had no healthy process
	last  map[*task]run       // the latest run of a task
	told  map[*task]bool      // reported already
	late  []late              // reported
	worst time.Duration       // the longest time of a task without a healthy process
	slow  []time.Time         // when samples or commits were not prompt
	full  int                 // samples in which no healthy process had a free slot
	dead  []string            // processes that exited unexpectedly
	swept int                 // writes of a thawed process after another one had taken the job

	parks, wakes map[string]int // how often a sample had a job parked that ran before, and the reverse, by the peer of its source
}

// watch takes samples until ctx ends.
func (l *observer) watch(ctx context.Context) {
	l.ill, l.last, l.told = map[*task]time.Time{}, map[*task]run{}, map[*task]bool{}
	l.parks, l.wakes = map[string]int{}, map[string]int{}
	var lastCommit time.Time
	var mu sync.Mutex
	var committing sync.WaitGroup
	// Commits have a goroutine of their own, so that a slow one is noticed while it lasts.
	committing.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			began := time.Now()
			err := l.store.Transact(ctx, func(tx kv.Transaction) error {
				tx.Set([]byte(probe), strconv.AppendInt(nil, int64(n), 10))
				return nil
			})
			mu.Lock()
			if err == nil && time.Since(began) < prompt {
				lastCommit = time.Now()
			}
			mu.Unlock()
			pause(ctx, sampleEvery)
		}
	})
	defer committing.Wait()
	for ctx.Err() == nil {
		began := time.Now()
		looking, cancel := context.WithTimeout(ctx, patience)
		now, err := l.take(looking)
		cancel()
		mu.Lock()
		commits := time.Since(lastCommit) < sampleEvery+2*prompt
		mu.Unlock()
		if err == nil {
			l.count(now)
			l.samples = append(l.samples, now)
		}
		switch {
		case err != nil || !commits || time.Since(began) > promptSample:
			l.able = time.Time{}
			l.slow = append(l.slow, time.Now())
		case !l.hasSlot(now):
			l.able = time.Time{}
			l.full++
		default:
			if l.able.IsZero() {
				l.able = time.Now()
			}
			l.judge(now)
		}
		for _, n := range l.nodes {
			if process, isSound := n.now(); isSound && process.Exited() {
				l.dead = append(l.dead, n.name)
				n.setHealthy(false)
			}
		}
		pause(ctx, sampleEvery)
	}
}

func pause(ctx context.Context, length time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(length):
	}
}

// count counts the jobs that were parked or woken since the sample before.
func (l *observer) count(now sample) {
	if len(l.samples) == 0 {
		return
	}
	before := l.samples[len(l.samples)-1]
	for _, k := range l.work.all() {
		switch parked := now.parked[k.name]; {
		case parked == before.parked[k.name]:
		case parked:
			l.parks[k.source.peer]++
		default:
			l.wakes[k.source.peer]++
		}
	}
}

// take reads the running and the parked jobs.
func (l *observer) take(ctx context.Context) (sample, error) {
	now := sample{began: time.Now(), runs: map[string]run{}, parked: map[string]bool{}, used: map[int]int{}}
	parked, err := l.jobs.Lists.List(ctx, jobs.Filter{States: jobs.States{Shown: []replicator.ShownState{replicator.ShownParked}}}, jobs.ListOptions{Limit: jobs.MaxLimit})
	if err != nil {
		return now, err
	}
	for _, job := range parked.Jobs {
		now.parked[targetOf(job.Args.Replication.Target.URL)] = true
	}
	for job, err := range l.jobs.Lists.Running(ctx) {
		if err != nil {
			return now, err
		}
		number, _, _ := strings.Cut(job.State.PID, ".")
		pid, _ := strconv.Atoi(number) // empty before the first run
		r := run{pid, job.State.PID, job.State.State == replicator.StateRunning}
		if r.current {
			now.used[pid]++
		} else {
			now.used[0]++
		}
		now.runs[targetOf(job.Args.Replication.Target.URL)] = r
		if id, _, _ := strings.Cut(job.State.ReplicationID, "+"); id != "" {
			now.runs[id] = r
		}
	}
	now.ended = time.Now()
	return now, nil
}

// targetOf returns the last part of a database's URL, the name of a task.
func targetOf(target string) string {
	u, err := url.Parse(target)
	if err != nil {
		return target
	}
	return path.Base(u.Path)
}

// hasSlot reports whether a healthy process can have a free slot. Until it has written the state, a run is in the slot of any of
// them.
func (l *observer) hasSlot(now sample) bool {
	free := -now.used[0]
	for _, n := range l.nodes[frontends:] {
		if process, isSound := n.now(); isSound {
			free += slots() - now.used[process.PID()]
		}
	}
	return free > 0
}

// judge looks for tasks that have been without a healthy process for too long. It ignores tasks
// with a database at the frontends, because these come and go.
func (l *observer) judge(now sample) {
	healthy := map[int]bool{}
	for _, n := range l.nodes {
		if process, isSound := n.now(); isSound {
			healthy[process.PID()] = true
		}
	}
	fault := l.lastFault()
	for _, k := range l.work.all() {
		if !k.continuous || !k.between() {
			continue
		}
		r, runs := now.runs[k.name]
		taken := runs && r != l.last[k]
		l.last[k] = r
		if runs && healthy[r.pid] || !runs && now.parked[k.name] {
			delete(l.ill, k)
			continue
		}
		since, known := l.ill[k]
		if !known || taken {
			l.ill[k], l.told[k] = now.ended, false
			continue
		}
		begin := since
		if l.able.After(begin) {
			begin = l.able
		}
		// A fault may have hit the node that took the job over before it wrote the state.
		if fault.After(since.Add(soonest)) && fault.After(begin) {
			begin = fault
		}
		without := now.ended.Sub(begin)
		l.worst = max(l.worst, without)
		if without > takeOver && !l.told[k] {
			l.told[k] = true
			l.late = append(l.late, late{k, now.ended, without})
		}
	}
}

// lastFault returns the time of the latest fault of a replication node.
func (l *observer) lastFault() (at time.Time) {
	for _, n := range l.nodes[frontends:] {
		if n.lastFault().After(at) {
			at = n.lastFault()
		}
	}
	return at
}

// reports describes all late tasks, with their runs around that time.
func (l *observer) reports() (all []string) {
	for _, k := range l.late {
		all = append(all, fmt.Sprintf("%s had no healthy process at %s for %s: %s", k.name, k.at.Format(time.TimeOnly), k.without,
			l.trail(k.name, k.at.Add(-2*takeOver), k.at.Add(2*takeOver))))
	}
	return all
}

// trail describes the runs of a job in a period.
func (l *observer) trail(key string, begin, end time.Time) string {
	var out strings.Builder
	last := run{}
	for _, now := range l.samples {
		if r := now.runs[key]; r != last && now.ended.After(begin) && now.ended.Before(end) {
			fmt.Fprintf(&out, "%s %s %s, ", now.ended.Format("04:05.0"), l.nameOf(r.pid), r.name)
			last = r
		}
	}
	return out.String()
}

// lateWrites returns the writes of a process for a job that another process had taken: the
// samples before and after the write show the same run of that process.
func (l *observer) lateWrites(writes []write) (late []string) {
	for _, w := range writes {
		after := sort.Search(len(l.samples), func(n int) bool { return l.samples[n].began.After(w.at) })
		before := sort.Search(len(l.samples), func(n int) bool { return !l.samples[n].ended.Before(w.at) }) - 1
		if w.pid == 0 || before < 0 || after == len(l.samples) {
			continue
		}
		key := keyOf(w.path)
		if r := l.samples[before].runs[key]; r.current && r.pid != w.pid && r == l.samples[after].runs[key] {
			if since, ok := l.sinceThaw(w.pid, w.at); ok {
				l.Logf("%s wrote %s %s after it was thawed, when %s had taken the job", l.nameOf(w.pid), w.path, since, l.nameOf(r.pid))
				l.swept++
				continue
			}
			late = append(late, fmt.Sprintf("at %s %s wrote %s, which %s had taken: %s", w.at.Format("04:05.000"), l.nameOf(w.pid), w.path, l.nameOf(r.pid),
				l.trail(key, w.at.Add(-2*takeOver), w.at.Add(2*takeOver))))
			l.work.explain(key)
		}
	}
	return late
}

// keyOf returns the task or the replication id of a write.
func keyOf(at string) string {
	parts := strings.Split(at, "/")
	for n, part := range parts {
		if part == "_local" && n+1 < len(parts) {
			return parts[n+1]
		}
	}
	if len(parts) < 2 {
		return ""
	}
	return parts[1]
}
