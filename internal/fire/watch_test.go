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
)

const (
	// lookEvery is the time between two looks at the store.
	lookEvery = 200 * time.Millisecond
	// prompt is how long a commit takes at most while jobs can be run, and promptLook a look at all of them: what takes
	// over a job needs a dozen commits. The time for a take-over begins anew when one takes longer, be it for a blow or
	// because the machine is busy.
	prompt     = 400 * time.Millisecond
	promptLook = time.Second
	// takeOver is how long a job may be without a sound process while one could run it.
	takeOver = activityTimeout + 5*time.Second
	// momentum is for how long a process that was frozen may go on with what it was sending when that happened.
	momentum = time.Second
)

// run is one run of a job: the process, and the run's name in it. Of a job that was taken, and has not said by
// whom, it is what was last said.
type run struct {
	pid   int
	name  string
	known bool // by whom
}

// look is what the store said: which run each running job is in, by its target and by its replication id.
type look struct {
	began, ended time.Time
	runs         map[string]run
}

// late is a task that was without a sound process for too long.
type late struct {
	*task
	at      time.Time
	without time.Duration
}

// lookout looks at the store, and at the nodes, all the time.
type lookout struct {
	*cluster
	work  *work
	looks []look

	able  time.Time           // since when jobs could be run; zero: they cannot be now
	ill   map[*task]time.Time // since when a task has had no sound process, or another one that is not sound
	last  map[*task]run       // that a task was in
	told  map[*task]bool      // that has been said
	late  []late              // what was said
	worst time.Duration       // that a task was without a sound process while one could run it
	slow  int                 // looks, or commits beside them, that were not prompt
	dead  []string            // processes that exited by themselves
	swept int                 // writes that came when another process had the job, by the momentum of a thawed one
}

// watch looks until ctx ends.
func (l *lookout) watch(ctx context.Context) {
	l.ill, l.last, l.told = map[*task]time.Time{}, map[*task]run{}, map[*task]bool{}
	var lastCommit time.Time
	var mu sync.Mutex
	var committing sync.WaitGroup
	// Commits are on their own: one that takes long is to be noticed while it does.
	committing.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			began := time.Now()
			err := l.store.Transact(ctx, func(tx kv.Transaction) error {
				tx.Set([]byte("probe"), strconv.AppendInt(nil, int64(n), 10))
				return nil
			})
			mu.Lock()
			if err == nil && time.Since(began) < prompt {
				lastCommit = time.Now()
			}
			mu.Unlock()
			pause(ctx, lookEvery)
		}
	})
	defer committing.Wait()
	for ctx.Err() == nil {
		began := time.Now()
		looking, cancel := context.WithTimeout(ctx, patience)
		now, err := l.look(looking)
		cancel()
		mu.Lock()
		commits := time.Since(lastCommit) < lookEvery+2*prompt
		mu.Unlock()
		if err == nil {
			l.looks = append(l.looks, now)
		}
		if err == nil && commits && time.Since(began) < promptLook {
			if l.able.IsZero() {
				l.able = time.Now()
			}
			l.judge(now)
		} else {
			l.able = time.Time{}
			l.slow++
		}
		for _, n := range l.nodes {
			if process, isSound := n.now(); isSound && process.Exited() {
				l.dead = append(l.dead, n.name)
				n.become(down)
			}
		}
		pause(ctx, lookEvery)
	}
}

func pause(ctx context.Context, length time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(length):
	}
}

// look reads the jobs that run.
func (l *lookout) look(ctx context.Context) (look, error) {
	now := look{began: time.Now(), runs: map[string]run{}}
	for job, err := range l.jobs.Running(ctx) {
		if err != nil {
			return now, err
		}
		pid, _, _ := strings.Cut(job.State.PID, ".")
		n, _ := strconv.Atoi(pid) // none before the first run
		r := run{n, job.State.PID, job.State.State == replicator.StateRunning}
		now.runs[targetOf(job.Args.Replication.Target.URL)] = r
		if id, _, _ := strings.Cut(job.State.ReplicationID, "+"); id != "" {
			now.runs[id] = r
		}
	}
	now.ended = time.Now()
	return now, nil
}

// targetOf is the last part of the path of a database's URL: the name of a task.
func targetOf(target string) string {
	u, err := url.Parse(target)
	if err != nil {
		return target
	}
	return path.Base(u.Path)
}

// judge looks for tasks that have been without a sound process for too long. The frontends' own databases come and go
// with them, so tasks that have one may crash.
func (l *lookout) judge(now look) {
	sound := map[int]bool{}
	for _, n := range l.nodes {
		if process, isSound := n.now(); isSound {
			sound[process.PID()] = true
		}
	}
	for _, k := range l.work.all() {
		if !k.continuous || !k.between() {
			continue
		}
		r, runs := now.runs[k.name]
		// A node that took the job may have been struck before it could do or say anything.
		taken := runs && r != l.last[k]
		l.last[k] = r
		if runs && sound[r.pid] {
			delete(l.ill, k)
			continue
		}
		since, known := l.ill[k]
		if !known || taken {
			l.ill[k], l.told[k] = now.ended, false
			continue
		}
		if l.able.After(since) {
			since = l.able
		}
		without := now.ended.Sub(since)
		l.worst = max(l.worst, without)
		if without > takeOver && !l.told[k] {
			l.told[k] = true
			l.late = append(l.late, late{k, now.ended, without})
		}
	}
}

// said are all that were late, with the runs that they were in around that time.
func (l *lookout) said() (all []string) {
	for _, k := range l.late {
		all = append(all, fmt.Sprintf("%s had no sound process at %s for %s: %s", k.name, k.at.Format(time.TimeOnly), k.without,
			l.trail(k.name, k.at.Add(-2*takeOver), k.at.Add(2*takeOver))))
	}
	return all
}

// trail says which runs a job was in.
func (l *lookout) trail(key string, begin, end time.Time) string {
	var out strings.Builder
	last := run{}
	for _, now := range l.looks {
		if r := now.runs[key]; r != last && now.ended.After(begin) && now.ended.Before(end) {
			fmt.Fprintf(&out, "%s %s %s, ", now.ended.Format("04:05.0"), l.nameOf(r.pid), r.name)
			last = r
		}
	}
	return out.String()
}

// lateWrites are those of a process for a job that another one had taken, and had still: the look that had ended before
// the write and the one that began after it found the same run.
func (l *lookout) lateWrites(writes []write) (late []string) {
	for _, w := range writes {
		after := sort.Search(len(l.looks), func(n int) bool { return l.looks[n].began.After(w.at) })
		before := sort.Search(len(l.looks), func(n int) bool { return !l.looks[n].ended.Before(w.at) }) - 1
		if w.pid == 0 || before < 0 || after == len(l.looks) {
			continue
		}
		key := keyOf(w.path)
		if r := l.looks[before].runs[key]; r.known && r.pid != w.pid && r == l.looks[after].runs[key] {
			if since, ok := l.sinceThaw(w.pid, w.at); ok {
				l.Logf("%s wrote %s %s after it was let go on, when %s had taken it", l.nameOf(w.pid), w.path, since, l.nameOf(r.pid))
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

// keyOf is the task or the replication id that a write is of.
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
