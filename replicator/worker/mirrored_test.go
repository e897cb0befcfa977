package worker

import (
	"testing"

	"github.com/stretchr/testify/require"

	"settee/replicator"
)

// A mirror writes only to what a mirror has made of the same database, in either direction, and to what it may adopt.
func TestClaim(t *testing.T) {
	t.Parallel()
	source, target, other := place{"a", "films"}, place{"b", "films"}, place{"c", "films"}
	meet := func(change func(*meeting)) *meeting {
		m := &meeting{source: source, target: target, exists: true}
		change(m)
		return m
	}
	known := func(claim replicator.TargetClaim, same bool) func(*meeting) {
		return func(m *meeting) {
			m.known, m.same = replicator.MirrorTarget{Claim: claim, Instance: "1"}, same
		}
	}
	for what, c := range map[string]struct {
		meeting   *meeting
		is, adopt replicator.TargetClaim // adopt: with "adopt": true
		says      string                 // the error without it
	}{
		"there is none": {meet(func(m *meeting) { m.exists = false }), replicator.TargetMaking, replicator.TargetMaking, ""},
		"a stranger": {
			meet(func(*meeting) {}), "", replicator.TargetAdopted, "no mirror has made of the source",
		},
		"an empty stranger": {
			meet(func(m *meeting) { m.empty = true }), "", replicator.TargetAdopted, "no mirror has made of the source",
		},
		"made of it": {
			meet(func(m *meeting) { m.targetMark.MadeFrom = &source }), replicator.TargetMade, replicator.TargetMade, "",
		},
		"the way back": {
			meet(func(m *meeting) {
				m.sourceMark.MadeFrom, m.copied = &target, true
			}), replicator.TargetMade, replicator.TargetMade, "",
		},
		"made of another one": {
			meet(func(m *meeting) { m.targetMark.MadeFrom = &other }), "", replicator.TargetAdopted, "would be mirrored twice",
		},
		"the run died before the mark": {
			meet(func(m *meeting) { known(replicator.TargetMaking, false)(m); m.empty = true }), replicator.TargetMade, replicator.TargetMade, "",
		},
		"somebody has made and filled it meanwhile": {
			meet(known(replicator.TargetMaking, false)), "", replicator.TargetAdopted, "no mirror has made of the source",
		},
		"its mark is lost":       {meet(known(replicator.TargetMade, true)), replicator.TargetMade, replicator.TargetMade, ""},
		"somebody has made anew": {meet(known(replicator.TargetMade, false)), "", replicator.TargetAdopted, "no mirror has made of the source"},
		"no longer adopted":      {meet(known(replicator.TargetAdopted, true)), "", replicator.TargetAdopted, "no mirror has made of the source"},
		"itself":                 {meet(func(m *meeting) { m.target = source }), "", "", "the source is the target"},
		"a copy": {
			meet(func(m *meeting) { m.sourceMark.MadeFrom = &other }), "", "", "needs \"chain\": true",
		},
	} {
		is, err := c.meeting.claim(&replicator.Mirrored{})
		require.Equal(t, c.is, is, what)
		if c.is == "" {
			require.ErrorContains(t, err, c.says, what)
		} else {
			require.NoError(t, err, what)
		}
		is, _ = c.meeting.claim(&replicator.Mirrored{Adopt: true})
		require.Equal(t, c.adopt, is, "%s, with adopt", what)
	}
	is, err := meet(func(m *meeting) {
		m.sourceMark.MadeFrom, m.exists = &other, false
	}).claim(&replicator.Mirrored{Chain: true})
	require.NoError(t, err)
	require.Equal(t, replicator.TargetMaking, is)
}

// A run that cannot even begin leaves what the job knows as it is.
func TestRunThatCannotBegin(t *testing.T) {
	t.Parallel()
	job := Job{
		Replication: &replicator.Replication{Source: replicator.Endpoint{URL: ":"}, Target: replicator.Endpoint{URL: ":"}},
		Security:    "digest", Target: replicator.MirrorTarget{Claim: replicator.TargetMade, Instance: "5"},
	}
	result, err := Run(t.Context(), job, DefaultConfig(), nil)
	require.Error(t, err)
	state := replicator.JobState{Security: job.Security, Target: job.Target}
	result.CopyTo(&state)
	require.Equal(t, replicator.JobState{Security: job.Security, Target: job.Target}, state)
}
