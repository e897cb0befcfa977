package jobs

import (
	"context"
	"slices"
	"strings"

	"settee/fdbjobs"
	"settee/replicator"
)

// stateOrder is the order of a list by state. The states in which a job may need somebody come first.
var stateOrder = []replicator.ShownState{
	replicator.ShownFailed, replicator.ShownCrashing, replicator.ShownPending, replicator.ShownRunning, replicator.ShownPaused,
	replicator.ShownScheduled, replicator.ShownParked, replicator.ShownCompleted,
}

// stateLetters stand for the states in positions: a position in a list by state has the letter of its state before the owner.
const stateLetters = "abcdefgh"

// statePosition returns the position in a list by state of a position in the list of the nth state.
func statePosition(n int, p fdbjobs.Position) fdbjobs.Position {
	return fdbjobs.Position{Owner: stateLetters[n:n+1] + p.Owner, ID: p.ID}
}

// stateAt returns what statePosition was called with. A position of another list is the beginning of this one.
func stateAt(p fdbjobs.Position) (n int, in fdbjobs.Position) {
	if p.Owner == "" {
		return 0, in
	}
	if n = strings.IndexByte(stateLetters, p.Owner[0]); n < 0 {
		return 0, in
	}
	return n, fdbjobs.Position{Owner: p.Owner[1:], ID: p.ID}
}

// byState returns a page of a list by state. It has the jobs of each state by owner.
func (s *Lists) byState(ctx context.Context, l listing, opts ListOptions) (List, error) {
	var out List
	var err error
	if out.Total, _, err = s.begin(ctx, l, ListOptions{}); err != nil {
		return List{}, err
	}
	n, after := stateAt(opts.After)
	for skip := opts.Skip; n < len(stateOrder) && len(out.Jobs) < opts.Limit; n++ {
		if l.states.Shown != nil && !slices.Contains(l.states.Shown, stateOrder[n]) {
			continue
		}
		in := l
		in.states.Shown = stateOrder[n : n+1]
		in.counted = in.states
		list, err := s.byOwner(ctx, in, ListOptions{After: after, Skip: skip, Limit: opts.Limit - len(out.Jobs)})
		if err != nil {
			return List{}, err
		}
		out.Jobs = append(out.Jobs, list.Jobs...)
		if list.Next != nil {
			next := statePosition(n, *list.Next)
			out.Next = &next
			return out, nil
		}
		skip, after = max(0, skip-int(list.Total)), fdbjobs.Position{}
	}
	return out, nil
}
