package jobs

import (
	"encoding/json"
	"fmt"
	"slices"

	"settee/fdbjobs"
	"settee/replicator"
)

// The labels and tags by which jobs are listed: a job is transient or a document's, and its
// state is its status in the job layer, or that and a tag. They are stored.
const (
	labelTransient = "transient"
	labelDocument  = "document"

	tagCrashing  = "crashing"
	tagCompleted = "completed"
	tagFailed    = "failed"
)

// part returns where the jobs of a state are listed.
func part(label string, state replicator.State) fdbjobs.Part {
	switch state {
	case replicator.StateRunning:
		return fdbjobs.Running.In(label, "")
	case replicator.StateCrashing:
		return fdbjobs.Pending.In(label, tagCrashing)
	case replicator.StateCompleted:
		return fdbjobs.Finished.In(label, tagCompleted)
	case replicator.StateFailed:
		return fdbjobs.Finished.In(label, tagFailed)
	}
	return fdbjobs.Pending.In(label, "")
}

// parts are those of some states, of jobs of all the labels.
func parts(states []replicator.State, labels ...string) []fdbjobs.Part {
	var out []fdbjobs.Part
	for _, label := range labels {
		for _, state := range states {
			if p := part(label, state); !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	return out
}

var (
	allStates = []replicator.State{
		replicator.StatePending, replicator.StateRunning, replicator.StateCrashing,
		replicator.StateCompleted, replicator.StateFailed,
	}
	liveStates = allStates[:3]
)

func (j *Job) label() string {
	if j.Transient() {
		return labelTransient
	}
	return labelDocument
}

// maxShownURL is how much lists show of an endpoint's URL, in bytes.
const maxShownURL = 2_000

// summary returns what lists show of a job's args: without what may be large, and without
// credentials.
func (j *Job) summary() (json.RawMessage, error) {
	args, r := *j.Args, *j.Args.Replication
	args.Replication = &replicator.Replication{
		Source: shownEndpoint(r.Source), Target: shownEndpoint(r.Target),
		Continuous: r.Continuous, CreateTarget: r.CreateTarget, CheckpointInterval: r.CheckpointInterval,
	}
	text, err := json.Marshal(args)
	if err != nil {
		return nil, fmt.Errorf("summarizing the replication job %q: %w", j.ID, err)
	}
	return text, nil
}

func shownEndpoint(e replicator.Endpoint) replicator.Endpoint {
	out := replicator.Endpoint{URL: e.URL[:min(len(e.URL), maxShownURL)]}
	if len(e.Proxy) <= maxShownURL {
		out.Proxy = e.RedactedProxy()
	}
	return out
}
