package jobs

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"settee/fdbjobs"
	"settee/replicator"
)

// inStates are the two states of a job: the one that people are told, and CouchDB's.
type inStates struct {
	shown replicator.ShownState
	couch replicator.State
}

// statesIn returns the states of the jobs of a part, whatever its label. paused reports that their database is paused.
// replicator.Explain tells people the same.
func statesIn(p fdbjobs.Part, paused bool) inStates {
	switch {
	case p.Status == fdbjobs.Running:
		return inStates{replicator.ShownRunning, replicator.StateRunning}
	case p.Status == fdbjobs.Finished && p.Tag == tagFailed:
		return inStates{replicator.ShownFailed, replicator.StateFailed}
	case p.Status == fdbjobs.Finished:
		return inStates{replicator.ShownCompleted, replicator.StateCompleted}
	case paused:
		return waitingIn[tagPaused]
	}
	return waitingIn[p.Tag]
}

// waitingIn are the states of jobs that wait, by tag. As in CouchDB a job whose run has failed is crashing until its next run.
var waitingIn = map[string]inStates{
	"":          {replicator.ShownPending, replicator.StatePending},
	tagWaiting:  {replicator.ShownScheduled, replicator.StatePending},
	tagParked:   {replicator.ShownParked, replicator.StatePending},
	tagPaused:   {replicator.ShownPaused, replicator.StatePending},
	tagTurn:     {replicator.ShownPending, replicator.StatePending},
	tagCrashing: {replicator.ShownCrashing, replicator.StateCrashing},
	tagAgain:    {replicator.ShownPending, replicator.StateCrashing},
}

// pendingStates returns the states that people are told of pending jobs, by tag, without the tags of ofMirror.
func pendingStates() map[string]replicator.ShownState {
	states := map[string]replicator.ShownState{}
	for tag, in := range waitingIn {
		if !ofMirror(fdbjobs.Part{Tag: tag}) {
			states[tag] = in.shown
		}
	}
	return states
}

// dueTags are the tags of due jobs, by the tags that they had while they waited for a time.
var dueTags = map[string]string{tagCrashing: tagAgain, tagWaiting: ""}

// States selects jobs by their states. The zero value selects all jobs.
type States struct {
	Shown []replicator.ShownState // that people are told; nil: any
	Couch []replicator.State      // CouchDB's; nil: any
}

// all reports whether all jobs are selected.
func (s States) all() bool { return s.Shown == nil && s.Couch == nil }

// have reports whether jobs in some states are selected.
func (s States) have(of inStates) bool {
	return (s.Shown == nil || slices.Contains(s.Shown, of.shown)) && (s.Couch == nil || slices.Contains(s.Couch, of.couch))
}

// partsOf returns the parts with the jobs in some states and with some labels, of databases that are paused or of others.
func partsOf(states States, paused bool, labels []string) (parts []fdbjobs.Part) {
	all := []fdbjobs.Part{
		{Status: fdbjobs.Running}, {Status: fdbjobs.Finished, Tag: tagCompleted}, {Status: fdbjobs.Finished, Tag: tagFailed},
		{Status: fdbjobs.Finished, Tag: tagGone},
	}
	for _, tag := range slices.Sorted(maps.Keys(waitingIn)) {
		all = append(all, fdbjobs.Part{Status: fdbjobs.Pending, Tag: tag})
	}
	for _, p := range all {
		if !states.have(statesIn(p, paused)) {
			continue
		}
		for _, p.Label = range labels {
			if !ofMirror(p) || isMirroredLabel(p.Label) {
				parts = append(parts, p)
			}
		}
	}
	return parts
}

// ofMirror reports whether a part has databases of mirrors that wait for their turn, or are gone. They are jobs that never run,
// so they are counted apart.
func ofMirror(p fdbjobs.Part) bool { return p.Tag == tagTurn || p.Tag == tagGone }

// endTag returns the tag of a job that has ended in a state.
func endTag(state replicator.State) string {
	if state == replicator.StateCompleted {
		return tagCompleted
	}
	return tagFailed
}

// waitingTag returns the tag of a pending job of a periodic replication that runs at a time.
func waitingTag(at, now time.Time) string {
	if at.After(now) {
		return tagWaiting
	}
	return ""
}

// liveStates selects jobs that have not ended.
var liveStates = States{Shown: slices.DeleteFunc(slices.Clone(replicator.ShownStates), replicator.ShownState.Ended)}

// labels are the labels of jobs, and postedLabels the labels of transient jobs.
var (
	labels       = []string{labelDocument, labelMirrored, labelTransient, labelMirroredByPost}
	postedLabels = labels[2:]
)

// isMirroredLabel reports whether jobs with a label were made by mirrors, of databases of their sources.
func isMirroredLabel(label string) bool {
	return label == labelMirrored || label == labelMirroredByPost
}

func (j *Job) label() string {
	switch {
	case j.Args.MirroredDatabase != "" && j.Transient():
		return labelMirroredByPost
	case j.Args.MirroredDatabase != "":
		return labelMirrored
	}
	if j.Transient() {
		return labelTransient
	}
	return labelDocument
}

// maxShownURL is the most bytes of an endpoint's URL in listings.
const maxShownURL = 2_000

// summary returns a job's args as listings show them: without credentials and without members
// that may be large.
func (j *Job) summary() (json.RawMessage, error) {
	args, r := *j.Args, *j.Args.Replication
	args.Replication = &replicator.Replication{
		Source: shownEndpoint(r.Source), Target: shownEndpoint(r.Target),
		Continuous: r.Continuous, CreateTarget: r.CreateTarget, CheckpointInterval: r.CheckpointInterval,
		HTTPConnections: r.HTTPConnections, RetriesPerRequest: r.RetriesPerRequest, // for Warnings
		WorkerBatchSize: r.WorkerBatchSize, WorkerProcesses: r.WorkerProcesses, Doubtful: r.Doubtful,
		Schedule: r.Schedule, Timezone: r.Timezone, Every: r.Every,
	}
	if r.Mirror != nil { // its patterns may be large
		args.Replication.Mirror = &replicator.Mirror{
			Security: r.Mirror.Security, Deleted: r.Mirror.Deleted, Prefix: r.Mirror.Prefix, Verify: r.Mirror.Verify,
		}
		args.MirrorServer = r.MirrorServer()
	}
	text, err := json.Marshal(args)
	if err != nil {
		return nil, fmt.Errorf("summarizing the replication job %q: %w", j.ID, err)
	}
	return text, nil
}

func shownEndpoint(e replicator.Endpoint) replicator.Endpoint {
	out := replicator.Endpoint{URL: shownURL(e)}
	if len(e.Proxy) <= maxShownURL {
		out.Proxy = e.RedactedProxy()
	}
	return out
}

func shownURL(e replicator.Endpoint) string { return e.URL[:min(len(e.URL), maxShownURL)] }
