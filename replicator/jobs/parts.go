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

// shownIn returns the state in which people are told the jobs of a part are, whatever its label. paused reports that their
// database is paused. replicator.Explain tells the same.
func shownIn(p fdbjobs.Part, paused bool) replicator.ShownState {
	switch {
	case p.Status == fdbjobs.Running:
		return replicator.ShownRunning
	case p.Status == fdbjobs.Finished && p.Tag == tagFailed:
		return replicator.ShownFailed
	case p.Status == fdbjobs.Finished:
		return replicator.ShownCompleted
	case paused:
		return replicator.ShownPaused
	}
	return waitingIn[p.Tag]
}

// waitingIn are the states of jobs that wait, by tag.
var waitingIn = map[string]replicator.ShownState{
	"": replicator.ShownPending, tagWaiting: replicator.ShownScheduled, tagParked: replicator.ShownParked,
	tagPaused: replicator.ShownPaused, tagCrashing: replicator.ShownCrashing, tagTurn: replicator.ShownPending,
}

// partsOf returns the parts with the jobs in some states and with some labels, of databases that are paused or of others.
func partsOf(states []replicator.ShownState, paused bool, labels []string) (parts []fdbjobs.Part) {
	all := []fdbjobs.Part{
		{Status: fdbjobs.Running}, {Status: fdbjobs.Finished, Tag: tagCompleted}, {Status: fdbjobs.Finished, Tag: tagFailed},
		{Status: fdbjobs.Finished, Tag: tagGone},
	}
	for _, tag := range slices.Sorted(maps.Keys(waitingIn)) {
		all = append(all, fdbjobs.Part{Status: fdbjobs.Pending, Tag: tag})
	}
	for _, p := range all {
		if !slices.Contains(states, shownIn(p, paused)) {
			continue
		}
		for _, p.Label = range labels {
			if !ofMirror(p) || p.Label == labelMirrored || p.Label == labelMirroredByPost {
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

// liveStates are the states of jobs that have not ended.
var liveStates = slices.DeleteFunc(slices.Clone(replicator.ShownStates), replicator.ShownState.Ended)

// labels are the labels of jobs, and postedLabels the labels of transient jobs.
var (
	labels       = []string{labelDocument, labelMirrored, labelTransient, labelMirroredByPost}
	postedLabels = labels[2:]
)

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
		WorkerBatchSize: r.WorkerBatchSize, WorkerProcesses: r.WorkerProcesses,
		Schedule: r.Schedule, Timezone: r.Timezone, Every: r.Every,
	}
	if r.Mirror != nil { // its patterns may be large
		args.Replication.Mirror = &replicator.Mirror{
			Security: r.Mirror.Security, Deleted: r.Mirror.Deleted, Prefix: r.Mirror.Prefix,
		}
		args.MirrorServer = MirrorServer(&r)
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
