package replicator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"settee/replicator"
)

// The servers of a mirror are compared as often as it says. The first comparison may come as late as the second one.
func TestVerifyDue(t *testing.T) {
	t.Parallel()
	added := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	daily, never := &replicator.Mirror{Verify: "24h"}, &replicator.Mirror{}
	var none *replicator.MirrorProgress
	assert.Zero(t, none.VerifyDue(never, added))
	assert.Zero(t, none.VerifyLate(never, added, added.Add(time.Hour)))
	assert.Equal(t, added, none.VerifyDue(daily, added))
	assert.Zero(t, none.VerifyLate(daily, added, added.Add(24*time.Hour)))
	assert.Equal(t, time.Hour, none.VerifyLate(daily, added, added.Add(25*time.Hour)))

	once := &replicator.MirrorProgress{Verified: &replicator.MirrorVerified{Began: added.Add(time.Hour), Ended: added.Add(3 * time.Hour)}}
	assert.Equal(t, added.Add(25*time.Hour), once.VerifyDue(daily, added))
	assert.Zero(t, once.VerifyLate(daily, added, added.Add(25*time.Hour)))
	assert.Equal(t, time.Hour, once.VerifyLate(daily, added, added.Add(26*time.Hour)))
	for _, wrong := range []string{"1s", "1", "1d", "-24h", "0.5h"} {
		assert.Zero(t, (&replicator.Mirror{Verify: wrong}).VerifyEvery(), wrong)
	}
}

// Of the databases that a mirror leaves out it names the replicator databases that its patterns select.
func TestLeavesReplications(t *testing.T) {
	t.Parallel()
	m := &replicator.Mirror{Include: []string{"*"}, Exclude: []string{"old/*"}}
	assert.True(t, m.LeavesReplications("team/_replicator"))
	for _, name := range []string{"team", "_replicator", "old/_replicator"} {
		assert.False(t, m.LeavesReplications(name), name)
	}
	m.Replicators = true
	assert.False(t, m.LeavesReplications("team/_replicator"))
	assert.True(t, m.Selects("team/_replicator"))
}

// Without a feed a change may be unknown since the list of databases was read, or since the last question to a database.
func TestUnseenChanges(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	p := &replicator.MirrorProgress{LastLook: now.Add(-30 * time.Second)}
	assert.Equal(t, now.Add(-time.Minute), p.Unseen(time.Minute, now))
	assert.Equal(t, now.Add(-30*time.Second), p.Unseen(time.Second, now))
}
