package console

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/clipperhouse/displaywidth"
)

// tone says how a part of a line is to be shown.
type tone int

// The tones.
const (
	plain tone = iota
	strong
	faint
	good
	bad
)

// part is a part of a line.
type part struct {
	text string
	tone tone
}

// overview is what the screen of settee top shows.
type overview struct {
	host     string
	summary  *Summary // nil until the node has answered
	problems Problems
	rates    Rates
	nodes    []Member
	running  []Job
	pace     pace
	// failures has the error of each request that failed when it was last sent, by its path.
	failures map[string]error
}

// note notes whether a request failed.
func (o *overview) note(path string, err error) {
	if err == nil {
		delete(o.failures, path)
		return
	}
	if o.failures == nil {
		o.failures = map[string]error{}
	}
	o.failures[path] = err
}

// failure returns the error of one of the requests that failed, or nil.
func (o *overview) failure() error {
	for _, path := range slices.Sorted(maps.Keys(o.failures)) {
		return o.failures[path]
	}
	return nil
}

// lines returns the screen as lines for a terminal.
func (o *overview) lines(now time.Time, width, height int) [][]part {
	if o.summary == nil {
		text := "asking " + o.host
		if err := o.failure(); err != nil {
			text = err.Error()
		}
		return [][]part{{{Clean(text), plain}}}
	}
	lines := [][]part{{{o.host, strong}, {"  " + now.Format(time.DateTime), faint}}}
	if err := o.failure(); err != nil {
		lines = append(lines, []part{{Clean("not up to date: " + err.Error()), bad}})
	}
	lines = append(lines, o.verdict(now), nil, o.states())
	lines = append(lines, o.traffic(width)...)
	lines = append(lines, o.members(3)...)
	left := height - len(lines)
	attention := o.attention(now, width, max(left-2-min(len(o.running), left/3), 4))
	lines = append(lines, attention...)
	return append(lines, o.slowest(now, width, max(left-len(attention), 3))...)
}

// verdict says in a sentence or two whether something is to be done.
func (o *overview) verdict(now time.Time) []part {
	total, all := int64(0), int64(0) // those that have completed may have refused documents
	for state, n := range o.summary.Jobs {
		if all += n; state != "completed" {
			total += n
		}
	}
	needy := o.problems.Attention
	out := []part{{"All " + some(total, "job") + " are well.", good}}
	switch {
	case needy > 0:
		of := count(needy)
		if o.problems.More {
			of += " or more"
		}
		need := " need attention."
		if needy == 1 && !o.problems.More {
			need = " needs attention."
		}
		out[0] = part{of + " of " + some(all, "job") + need, bad}
	case total == 0:
		out[0] = part{"There are no jobs that have not ended.", plain}
	case total == 1:
		out[0].text = "The one job is well."
	}
	return append(out, o.slots(now))
}

// slots says how full the nodes are, and how long the job waits that has waited longest.
func (o *overview) slots(now time.Time) part {
	var used, slots int64
	open, cordoned := false, false
	for _, n := range o.nodes {
		if !n.Live || !slices.Contains(n.Roles, "replication") {
			continue
		}
		if cordoned = cordoned || n.Cordon != nil; n.Cordon == nil {
			open, used, slots = true, used+n.Running, slots+n.MaxJobs
		}
	}
	waiting := o.summary.Jobs["pending"]
	switch {
	case len(o.nodes) == 0:
		return part{}
	case !open && cordoned && waiting > 0:
		return part{" All nodes that replicate are cordoned, and " + waits(waiting) + ".", bad}
	case !open && cordoned:
		return part{" All nodes that replicate are cordoned.", bad}
	case !open:
		return part{" No node that replicates is live.", bad}
	case slots == 0 && waiting > 0:
		return part{" [replicator] max_jobs is 0, so no jobs are started, and " + waits(waiting) + ".", bad}
	case slots == 0:
		return part{" [replicator] max_jobs is 0, so no jobs are started.", bad}
	case used >= slots && !o.summary.OldestDue.IsZero():
		oldest := span(now.Sub(o.summary.OldestDue))
		return part{fmt.Sprintf(" All %s are used, and %s, the oldest for %s.", some(slots, "slot"), waits(waiting), oldest), strong}
	}
	return part{fmt.Sprintf(" %s of %s are used.", count(used), some(slots, "slot")), plain}
}

func waits(n int64) string {
	if n == 1 {
		return "1 job waits"
	}
	return count(n) + " jobs wait"
}

// rare are the states that are left out of the line of states if no job is in them.
var rare = []string{"scheduled", "parked", "paused"}

// states is the line with the number of jobs in each state.
func (o *overview) states() (line []part) {
	tones := map[string]tone{"running": good, "crashing": bad, "failed": bad}
	for _, state := range States {
		if o.summary.Jobs[state] == 0 && slices.Contains(rare, state) {
			continue
		}
		text := fmt.Sprintf("%s %s", count(o.summary.Jobs[state]), state)
		if len(line) > 0 {
			line = append(line, part{gap, plain})
		}
		how := tones[state]
		if o.summary.Jobs[state] == 0 {
			how = faint
		}
		line = append(line, part{text, how})
	}
	return line
}

// traffic says what all nodes did in the last step, and in the steps before.
func (o *overview) traffic(width int) [][]part {
	r := o.rates
	// The last step is not over.
	n := min(len(r.DocsWritten), len(r.DocWriteFailures), len(r.BytesReceived), len(r.BytesSent)) - 1
	if n < 1 || r.Step <= 0 {
		return nil
	}
	now := func(numbers []int64) float64 { return float64(numbers[n-1]) / float64(r.Step) }
	line := []part{
		{rate(now(r.DocsWritten)), strong}, {" documents a second", plain},
		{", " + size(now(r.BytesReceived)) + " received and " + size(now(r.BytesSent)) + " sent", plain},
	}
	if refused := now(r.DocWriteFailures); refused > 0 {
		line = append(line, part{", " + rate(refused) + " refused", bad})
	}
	written := r.DocsWritten[:n]
	most := float64(slices.Max(written)) / float64(r.Step)
	label := " up to " + rate(most) + " a second in " + span(time.Duration(int64(n)*r.Step)*time.Second)
	return [][]part{line, {{bars(written, max(width-displaywidth.String(label), 8)), good}, {label, faint}}}
}

// bars draws numbers as a row of bars, of at most so many. Each bar is the largest of its numbers.
func bars(numbers []int64, most int) string {
	const levels = "▁▂▃▄▅▆▇█"
	each := (len(numbers) + most - 1) / most
	top := max(slices.Max(numbers), 1)
	var out strings.Builder
	for group := range slices.Chunk(numbers, each) {
		level := int(math.Ceil(float64(slices.Max(group)) / float64(top) * 7))
		out.WriteRune([]rune(levels)[level])
	}
	return out.String()
}

// members are the lines of the nodes, at most so many.
func (o *overview) members(most int) (lines [][]part) {
	if len(o.nodes) < 2 {
		return nil // the slots say it
	}
	for i, n := range o.nodes {
		if i == most {
			return append(lines, []part{{"and " + some(int64(len(o.nodes)-most), "other node"), faint}})
		}
		line := []part{{Clean(n.Name), plain}, {fmt.Sprintf("  %s of %s", count(n.Running), some(n.MaxJobs, "job")), faint}}
		if state := n.State(); state != "live" {
			line = append(line, part{"  " + state, bad})
		}
		lines = append(lines, line)
	}
	return lines
}

// attention returns the lines of what needs attention, at most so many.
func (o *overview) attention(now time.Time, width, most int) [][]part {
	found := o.problems.Problems
	if len(found) == 0 {
		return nil
	}
	t := table{width: width, columns: []column{
		{head: "JOBS", right: true, least: 4}, {head: "SINCE", least: 8}, {head: "PROBLEM", least: 40},
	}}
	fits := max((most-3)/2, 1)
	var rows [][]string
	for _, p := range found[:min(len(found), fits)] {
		since := ""
		if !p.Since.IsZero() {
			since = span(now.Sub(p.Since))
		}
		rows = append(rows, []string{count(p.Jobs), since, p.what()})
	}
	written := t.lines(rows)
	lines := [][]part{nil, {{written[0], faint}}}
	indent := strings.Repeat(" ", displaywidth.String(written[0])-len("PROBLEM"))
	for i, p := range found[:len(rows)] {
		lines = append(lines, []part{{written[i+1], bad}}, []part{{indent + displaywidth.TruncateString(Clean(p.hint()), max(width-len(indent), 8), "…"), faint}})
	}
	if rest := o.problems.Total - int64(len(rows)); rest > 0 {
		lines = append(lines, []part{{"and " + some(rest, "other problem"), faint}})
	}
	return lines
}

// slowest are the lines of the running jobs that will take longest, at most so many.
func (o *overview) slowest(now time.Time, width, most int) [][]part {
	jobs := slices.DeleteFunc(slices.Clone(o.running), func(j Job) bool {
		return j.Condition.Reason == "idle"
	})
	if len(jobs) == 0 || most < 3 {
		return nil
	}
	slices.SortStableFunc(jobs, func(a, b Job) int {
		return cmp.Or(
			-cmp.Compare(stuckFor(&a, now), stuckFor(&b, now)), -cmp.Compare(o.pace.remaining(&a), o.pace.remaining(&b)), cmp.Compare(a.Name(), b.Name()))
	})
	t := table{width: width, columns: []column{
		{head: "SLOWEST", least: 24}, {head: "WRITTEN", least: 9, right: true, spare: 1}, {head: "A SECOND", least: 8, right: true},
		{head: "LEFT", least: 9, right: true}, {head: "WHAT IT DOES", least: 20},
	}}
	var rows [][]string
	for _, job := range jobs[:min(len(jobs), most-2)] {
		rows = append(rows, []string{job.Name(), job.written(), o.pace.text(&job), job.left(), job.Why(now)})
	}
	lines := [][]part{nil}
	for i, line := range t.lines(rows) {
		how := plain
		switch {
		case i == 0:
			how = faint
		case jobs[i-1].Condition.has("stuck"):
			how = bad
		}
		lines = append(lines, []part{{line, how}})
	}
	return lines
}

func stuckFor(j *Job, now time.Time) time.Duration {
	if since := j.Condition.mark("stuck").Since; !since.IsZero() {
		return now.Sub(since)
	}
	return 0
}

// pace knows how fast jobs write, from what they had written at two times.
type pace struct {
	last map[string]sample
	rate map[string]float64 // documents a second, of jobs that were seen twice
}

type sample struct {
	at      time.Time
	written int64
}

// note takes what running jobs have written until now. It forgets all others.
func (p *pace) note(now time.Time, jobs []Job) {
	last, rates := map[string]sample{}, map[string]float64{}
	for _, job := range jobs {
		if job.Info == nil {
			continue
		}
		seen := sample{now, job.Info.DocsWritten}
		if before, ok := p.last[job.JobID]; ok && seen.at.After(before.at) && seen.written >= before.written {
			rates[job.JobID] = float64(seen.written-before.written) / seen.at.Sub(before.at).Seconds()
		}
		last[job.JobID] = seen
	}
	p.last, p.rate = last, rates
}

func (p *pace) text(j *Job) string {
	if r, ok := p.rate[j.JobID]; ok {
		return rate(r)
	}
	return ""
}

// remaining returns in how many seconds a job will have copied what is left. A job of which less is known comes behind.
func (p *pace) remaining(j *Job) float64 {
	if j.Info.ChangesPending == nil {
		return 0
	}
	left := float64(*j.Info.ChangesPending)
	if r := p.rate[j.JobID]; r > 0 {
		return left / r
	}
	return left // as if it wrote one a second
}

// write writes the lines without their tones.
func (o *overview) write(out io.Writer, now time.Time, width, height int) error {
	for _, line := range o.lines(now, width, height) {
		var text strings.Builder
		for _, p := range line {
			text.WriteString(p.text)
		}
		if _, err := fmt.Fprintln(out, strings.TrimRight(text.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}
