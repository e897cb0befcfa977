package replicator

import (
	"slices"
	"time"
)

// ShownState is the state of a job for people. CouchDB has fewer: see [State].
type ShownState string

// The states that are shown.
const (
	ShownPending   ShownState = "pending"
	ShownScheduled ShownState = "scheduled"
	ShownCrashing  ShownState = "crashing"
	ShownParked    ShownState = "parked"
	ShownPaused    ShownState = "paused"
	ShownRunning   ShownState = "running"
	ShownCompleted ShownState = "completed"
	ShownFailed    ShownState = "failed"
)

// ShownStates are all states, those of jobs that have ended last.
var ShownStates = []ShownState{
	ShownRunning, ShownPending, ShownScheduled, ShownParked, ShownPaused, ShownCrashing, ShownCompleted, ShownFailed,
}

// Ended reports whether jobs in a state have ended.
func (s ShownState) Ended() bool { return s == ShownCompleted || s == ShownFailed }

// Reason says in one word why a job is in its state.
type Reason string

// The reasons. What a run does is a reason, too: see [Doing].
const (
	ReasonCopiedAll         Reason = "copied_all"
	ReasonCollision         Reason = "collision"
	ReasonInvalidDefinition Reason = "invalid_definition"
	ReasonGaveUp            Reason = "gave_up"
	ReasonEndedElsewhere    Reason = "ended_elsewhere"
	ReasonGone              Reason = "gone"

	ReasonNodeLost         Reason = "node_lost"
	ReasonPausing          Reason = "pausing"
	ReasonNewDefinition    Reason = "new_definition"
	ReasonSourceUnlistable Reason = "source_unlistable"
	ReasonListing          Reason = "listing"
	ReasonDatabasesFailing Reason = "databases_failing"
	ReasonUpToDate         Reason = "up_to_date"

	ReasonSealed    Reason = "sealed"
	ReasonDocument  Reason = "document"
	ReasonDatabase  Reason = "database"
	ReasonMirror    Reason = "mirror"
	ReasonTurn      Reason = "turn"
	ReasonNoChanges Reason = "no_changes"
	ReasonBackoff   Reason = "backoff"
	ReasonSchedule  Reason = "schedule"
	ReasonDelayed   Reason = "delayed"
	ReasonNoNode    Reason = "no_node"
	ReasonCordoned  Reason = "cordoned"
	ReasonSlot      Reason = "slot"
)

// MarkType is a kind of [Mark].
type MarkType string

// The kinds of marks.
const (
	MarkFailing          MarkType = "failing"
	MarkStuck            MarkType = "stuck"
	MarkDocumentsRefused MarkType = "documents_refused"
	MarkBehind           MarkType = "behind"
	MarkDatabasesFailing MarkType = "databases_failing"
	MarkAcknowledged     MarkType = "acknowledged"
)

// Mark is what is true of a job beside the reason of its state. Since is zero if it is not known. Count is the number of
// crashes, documents or databases, and 0 for other kinds.
type Mark struct {
	Type  MarkType  `json:"type"`
	Since time.Time `json:"since,omitzero"`
	Count int64     `json:"count,omitempty"`
}

// Condition is what people are told about a job. It has no relative times, so it changes only if the job or the nodes do. Times
// are in UTC and whole seconds.
type Condition struct {
	State  ShownState `json:"state"`
	Reason Reason     `json:"reason"`
	// Message says State and Reason, and the fault if that is the reason, in one English clause whose subject is the job. It
	// has no times and no secrets.
	Message string `json:"message"`
	// Since is when the reason began, zero if that is not known. Until is the end of a wait that has one, and may be past.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	Marks []Mark    `json:"marks,omitempty"`
	// Fault is what fails now, or failed in the last run of a job that has the mark failing or stuck.
	Fault *ConditionFault `json:"fault,omitempty"`
	// Advice says what helps, nil if nothing is known to help, or is needed. Attention reports that the job needs a person.
	Advice    *Advice `json:"advice,omitempty"`
	Attention bool    `json:"attention,omitempty"`
	// Acknowledged is the acknowledgement of a job with the mark of that name.
	Acknowledged *Acknowledgement `json:"acknowledged,omitempty"`
	Queue        *Queue           `json:"queue,omitempty"`
	Watch        *Watch           `json:"watch,omitempty"`
}

// Explain decides what people are told about a job. The first of these rows that applies has the state, the reason, and
// since and until when:
//
//	finished, failed                          failed: collision, invalid_definition, ended_elsewhere without
//	                                          a run, else gave_up                           its end
//	finished, its database was deleted        completed: gone                               its end; the deletion at the target
//	finished                                  completed: copied_all                         its end
//	running, on a node that is not live       running: node_lost                            the last report
//	running, document or database paused      running: pausing                              the pause
//	running, defined anew meanwhile           running: new_definition                       the definition
//	running, a mirror                         running: see Facts.mirrors
//	running, no report yet                    running: starting                             the start
//	running                                   running: what it does, see Doing              that; the next attempt
//	pending, paused                           paused: mirror, document, else database       the pause
//	pending, waits for its turn in a mirror   pending: turn                                 when it was added
//	pending, parked                           parked: no_changes                            the end of the run
//	pending, later, the last run failed       crashing: collision, sealed, else backoff     the failure; Scheduled
//	pending, later, periodic                  scheduled: schedule                           –; Scheduled
//	pending, later                            pending: delayed                              –; Scheduled
//	pending, no live replication node         pending: no_node                              Scheduled
//	pending, all such nodes are cordoned      pending: cordoned                             Scheduled
//	pending                                   pending: slot                                 Scheduled
//
// So the state follows from what lists know of a job without reading it: whether it runs, or how it waits or has ended, and
// whether its database is paused.
func Explain(f *Facts) Condition {
	var c Condition
	switch f.Status {
	case JobFinished:
		c = f.ended()
	case JobRunning:
		c = f.runs()
	default:
		c = f.waits()
	}
	c.Since, c.Until, c.Marks = wholeSeconds(c.Since), wholeSeconds(c.Until), f.marks()
	if c.Fault == nil && (c.has(MarkFailing) || c.has(MarkStuck)) {
		c.Fault = lastFault(f.State)
	}
	c.Message = messageOf(&c, f.Cluster)
	c.Attention = f.needsAttention()
	c.Advice = f.advice(&c)
	c.Acknowledged, c.Queue, c.Watch = f.acknowledged(), f.Queue, f.Watch
	return c
}

// ended explains a job that has ended.
func (f *Facts) ended() Condition {
	s := f.State
	switch {
	case s.Mirrored != nil && !s.Mirrored.GoneAt.IsZero():
		return Condition{State: ShownCompleted, Reason: ReasonGone, Since: s.LastUpdated, Until: s.Mirrored.GoneAt}
	case s.State == StateCompleted:
		return Condition{State: ShownCompleted, Reason: ReasonCopiedAll, Since: s.LastUpdated}
	}
	c := Condition{State: ShownFailed, Reason: ReasonGaveUp, Since: s.LastUpdated, Fault: lastFault(s)}
	switch {
	case c.Fault.is(FaultCollision):
		c.Reason = ReasonCollision
	case c.Fault.is(FaultInvalid):
		c.Reason = ReasonInvalidDefinition
	case s.endedElsewhere():
		c.Reason = ReasonEndedElsewhere
	}
	return c
}

// runs explains a running job.
func (f *Facts) runs() Condition {
	s := f.State
	because := func(reason Reason, since time.Time) Condition {
		return Condition{State: ShownRunning, Reason: reason, Since: since}
	}
	switch {
	case f.nodeLost():
		return because(ReasonNodeLost, s.LastUpdated)
	case f.Args.Paused != nil:
		return because(ReasonPausing, f.Args.Paused.Since)
	case f.Pause != nil:
		return because(ReasonPausing, f.Pause.Since)
	case f.Redefined:
		return because(ReasonNewDefinition, f.Args.Added)
	case f.Args.Replication.Mirror != nil:
		return f.mirrors()
	case !f.started():
		return because(Reason(DoingStarting), time.Time{})
	case s.Activity == nil:
		return because(Reason(DoingStarting), s.StartTime)
	}
	return f.does(s.Activity)
}

// does explains a job by the activity of its run.
func (f *Facts) does(a *Activity) Condition {
	c := Condition{State: ShownRunning, Reason: Reason(a.Doing), Since: a.Since}
	limited := func(w Wait) bool { return w.RateLimited == (a.Doing == DoingRateLimited) }
	switch a.Doing {
	case DoingRateLimited, DoingRetrying:
		if i := slices.IndexFunc(a.Waiting, limited); i >= 0 {
			c.Until, c.Fault = a.Waiting[i].Until, waitFault(&a.Waiting[i])
		}
	case DoingRefused:
		c.Fault = refusalFault(a.Refusing, f.Args.Replication.Target)
	}
	return c
}

// mirrors explains a running mirror.
//
//	one of its own requests fails      source_unlistable    since it fails
//	it has no list of databases yet    listing              the start of the run
//	databases fail                     databases_failing    since the first of them fails
//	the target may lack changes        copying              since then
//	otherwise                          up_to_date           the latest comparison
func (f *Facts) mirrors() Condition {
	c := Condition{State: ShownRunning, Reason: ReasonListing}
	if f.started() {
		c.Since = f.State.StartTime
	}
	p := f.State.Mirror
	if p == nil {
		return c
	}
	c.Fault = p.fault(f.Args.Replication)
	failing := f.databasesFailing()
	switch {
	case p.Error != "":
		c.Reason, c.Since = ReasonSourceUnlistable, p.ErrorSince
	case p.LastLook.IsZero():
	case failing.Count > 0:
		c.Reason, c.Since = ReasonDatabasesFailing, failing.Since
	case f.Mirror != nil && !f.Mirror.Behind.IsZero():
		c.Reason, c.Since = Reason(DoingCopying), f.Mirror.Behind
	default:
		c.Reason, c.Since = ReasonUpToDate, p.LastLook
	}
	return c
}

// waits explains a job that is pending in the job layer.
func (f *Facts) waits() Condition {
	s, later := f.State, f.Queued || !f.Again && f.Scheduled.After(f.Now)
	switch {
	case f.Args.Paused != nil && f.Args.MirroredDatabase != "":
		return Condition{State: ShownPaused, Reason: ReasonMirror, Since: f.Args.Paused.Since}
	case f.Args.Paused != nil:
		return Condition{State: ShownPaused, Reason: ReasonDocument, Since: f.Args.Paused.Since}
	case f.Pause != nil:
		return Condition{State: ShownPaused, Reason: ReasonDatabase, Since: f.Pause.Since}
	case f.Turn:
		return Condition{State: ShownPending, Reason: ReasonTurn, Since: f.Args.Added}
	case f.Parked:
		return Condition{State: ShownParked, Reason: ReasonNoChanges, Since: s.Parked.Since}
	case later && s.State == StateCrashing:
		c := Condition{State: ShownCrashing, Reason: ReasonBackoff, Since: s.LastUpdated, Until: f.Scheduled, Fault: lastFault(s)}
		switch {
		case c.Fault.is(FaultCollision):
			c.Reason = ReasonCollision
		case c.Fault.is(FaultSealed):
			c.Reason = ReasonSealed
		}
		return c
	case later && f.Args.Replication.Periodic():
		return Condition{State: ShownScheduled, Reason: ReasonSchedule, Until: f.Scheduled}
	case later:
		return Condition{State: ShownPending, Reason: ReasonDelayed, Until: f.Scheduled}
	}
	return Condition{State: ShownPending, Reason: f.Cluster.waits(), Since: f.Scheduled}
}

// marks returns what else is true of the job.
func (f *Facts) marks() (marks []Mark) {
	s := f.State
	mark := func(is bool, kind MarkType, since time.Time, count int64) {
		if is {
			marks = append(marks, Mark{kind, wholeSeconds(since), count})
		}
	}
	mark(!s.CrashingSince.IsZero(), MarkFailing, s.CrashingSince, int64(s.ErrorCount))
	mark(!s.StuckSince.IsZero(), MarkStuck, s.StuckSince, 0)
	refused := s.Stats.DocWriteFailures
	if f.Mirror != nil {
		refused = f.Mirror.DocWriteFailures
	}
	mark(refused > 0, MarkDocumentsRefused, time.Time{}, refused)
	behind := s.BehindSince
	switch {
	case f.Status == JobFinished:
		behind = time.Time{}
	case f.Mirror != nil:
		behind = f.Mirror.Behind
	case behind.IsZero() && f.woken():
		behind = f.Scheduled
	}
	mark(!behind.IsZero(), MarkBehind, behind, 0)
	failing := f.databasesFailing()
	mark(failing.Count > 0, MarkDatabasesFailing, failing.Since, failing.Count)
	if a := f.acknowledged(); a != nil {
		mark(true, MarkAcknowledged, a.At, 0)
	}
	return marks
}

// databasesFailing returns the mark of a mirror whose databases fail. Its Count is 0 if none do.
func (f *Facts) databasesFailing() Mark {
	m := Mark{Type: MarkDatabasesFailing}
	if f.Mirror == nil {
		return m
	}
	m.Count = f.Mirror.NotCopied()
	if len(f.Mirror.Failures) > 0 {
		m.Since = f.Mirror.Failures[0].Since
	}
	return m
}

// has reports whether a condition has a mark.
func (c *Condition) has(kind MarkType) bool {
	return slices.ContainsFunc(c.Marks, func(m Mark) bool { return m.Type == kind })
}

// Viewer says what the user of a request may see.
type Viewer struct {
	// FeedErrors: why the server of a parked job has no feed.
	FeedErrors bool
}

// For returns the condition without what a viewer may not see.
func (c Condition) For(v Viewer) Condition {
	if c.Watch != nil && !v.FeedErrors {
		watch := *c.Watch
		watch.Reason = ""
		c.Watch = &watch
	}
	return c
}
