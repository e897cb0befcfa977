package replicator

import "time"

// JobStatus is the status of a job in the job layer.
type JobStatus string

// The statuses of jobs.
const (
	JobPending  JobStatus = "pending"
	JobRunning  JobStatus = "running"
	JobFinished JobStatus = "finished"
)

// Facts is what [Explain] knows of a job. State, Args and Args.Replication are never nil; any other pointer may be.
type Facts struct {
	Now time.Time

	// These follow from what the store has of the job. Scheduled is from when a pending job may run. Queued reports that it
	// waits for that after an error or by its schedule, also if the time has come and no node has noticed yet. Again reports that
	// a node has noticed that the wait after an error is over. Parked reports that the job waits for a change of its source, Turn that
	// it waits for its turn in a mirror, Redefined that it got a new definition while it ran.
	Status    JobStatus
	Scheduled time.Time
	Queued    bool
	Again     bool
	Parked    bool
	Turn      bool
	Redefined bool
	Args      *JobArgs
	State     *JobState

	// Pause is the pause of the job's database; nil if that is not paused. Its Since may be zero.
	Pause *Pause
	// Cluster is what is known of the nodes, nil if that is nothing. It is collected once for a request.
	Cluster *Cluster
	// Mirror sums up the databases of a mirror. It is nil for other jobs.
	Mirror *MirrorSummary

	// Queue and Watch are known of a single job only, because they cost reads. They decide nothing: a list and a page of one
	// job agree.
	Queue *Queue
	Watch *Watch
}

// Cluster is what is known of the replication nodes of a store.
type Cluster struct {
	// Live has the names of the live ones.
	Live map[string]bool
	// Slots is the number of their slots, and Used the number of slots in use, both without nodes that are cordoned. Used is some seconds
	// old.
	Slots, Used int
	// Slotless is the number of running jobs without a slot of these: those that end or were asked to park, mirrors, and the jobs of
	// cordoned nodes.
	Slotless int
	// Cordoned reports that all of them are cordoned.
	Cordoned bool
}

// waits returns why due jobs wait. A nil Cluster is not known.
func (c *Cluster) waits() Reason {
	switch {
	case c != nil && len(c.Live) == 0:
		return ReasonNoNode
	case c != nil && c.Cordoned:
		return ReasonCordoned
	}
	return ReasonSlot
}

// InUse returns the number of slots in use while so many jobs run, which was read after what the nodes say. It is at most Slots.
func (c *Cluster) InUse(running int64) int64 {
	return min(max(running-int64(c.Slotless), 0), int64(c.Slots))
}

// Waiting returns why due jobs wait, and says it as [Explain] does for each of them.
func (c *Cluster) Waiting() (reason Reason, message string) {
	reason = c.waits()
	return reason, messageOf(&Condition{Reason: reason}, c)
}

// Queue says how many due jobs of the same database or user are before a job that waits for a slot.
type Queue struct {
	Before int `json:"before"`
	// More reports that there are more than Before.
	More bool `json:"more,omitempty"`
}

// Watch says how a parked job learns that its source has changed.
type Watch struct {
	// Server is the URL of the server of the source.
	Server   string `json:"server"`
	Database string `json:"database"`
	// By is ByFeed or ByQuestions, empty while the watch of the server begins.
	By string `json:"by,omitempty"`
	// NextQuestion is when the source is asked next; zero if it is not asked.
	NextQuestion time.Time `json:"next_question,omitzero"`
	// Reason is why there are questions. Only those see it who may: see [Condition.For].
	Reason string `json:"reason,omitempty"`
}

// nodeKnownAfter is how long a node may run jobs before another one knows it.
const nodeKnownAfter = 15 * time.Second

// started reports whether the job runs, and its state is the state of that run.
func (f *Facts) started() bool { return f.Status == JobRunning && f.State.State == StateRunning }

// nodeLost reports whether the node of a running job is not live.
func (f *Facts) nodeLost() bool {
	return f.started() && f.Cluster != nil && f.State.Node != "" && !f.Cluster.Live[f.State.Node] &&
		f.Now.Sub(f.State.StartTime) >= nodeKnownAfter
}

// woken reports whether a job that was parked waits for a slot because its source has changed, or may have.
func (f *Facts) woken() bool {
	return f.Status == JobPending && !f.Parked && f.Args.Paused == nil && f.State.Parked != nil && !f.State.Parked.Since.IsZero()
}
