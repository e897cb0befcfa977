package jobs

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"settee/fdbjobs"
	"settee/replicator"
)

// part returns the part of the listings that has the jobs of a state, except those with tagWaiting, tagParked,
// tagPaused, tagTurn and tagGone.
func part(label string, state replicator.State) fdbjobs.Part {
	switch state {
	case replicator.StateRunning:
		return fdbjobs.Part{Status: fdbjobs.Running, Label: label}
	case replicator.StateCrashing:
		return fdbjobs.Part{Status: fdbjobs.Pending, Label: label, Tag: tagCrashing}
	case replicator.StateCompleted:
		return fdbjobs.Part{Status: fdbjobs.Finished, Label: label, Tag: tagCompleted}
	case replicator.StateFailed:
		return fdbjobs.Part{Status: fdbjobs.Finished, Label: label, Tag: tagFailed}
	}
	return fdbjobs.Part{Status: fdbjobs.Pending, Label: label}
}

// waitingTag returns the tag of a pending job of a periodic replication that runs at a time.
func waitingTag(at, now time.Time) string {
	if at.After(now) {
		return tagWaiting
	}
	return ""
}

// parts returns the parts for some states and labels.
func parts(states []replicator.State, labels ...string) (out []fdbjobs.Part) {
	add := func(p fdbjobs.Part) {
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	for _, label := range labels {
		made := label == labelMirrored || label == labelMirroredByPost
		for _, state := range states {
			add(part(label, state))
			switch state {
			case replicator.StatePending:
				for _, tag := range []string{tagWaiting, tagParked, tagPaused} {
					add(fdbjobs.Part{Status: fdbjobs.Pending, Label: label, Tag: tag})
				}
				if made {
					add(turnPart(label))
				}
			case replicator.StateCompleted:
				if made {
					add(gonePart(label))
				}
			}
		}
	}
	return out
}

// turnPart and gonePart return the parts with the databases of mirrors that wait for their turns, and that are gone.
func turnPart(label string) fdbjobs.Part {
	return fdbjobs.Part{Status: fdbjobs.Pending, Label: label, Tag: tagTurn}
}

func gonePart(label string) fdbjobs.Part {
	return fdbjobs.Part{Status: fdbjobs.Finished, Label: label, Tag: tagGone}
}

// parkedParts selects the parts with parked jobs, or the parts with other jobs. A nil parked selects all.
func parkedParts(all []fdbjobs.Part, parked *bool) []fdbjobs.Part {
	if parked == nil {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(p fdbjobs.Part) bool { return (p.Tag == tagParked) != *parked })
}

var (
	allStates = []replicator.State{
		replicator.StatePending, replicator.StateRunning, replicator.StateCrashing,
		replicator.StateCompleted, replicator.StateFailed,
	}
	liveStates = allStates[:3]
)

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
