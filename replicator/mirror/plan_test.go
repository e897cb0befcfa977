package mirror

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/replicator"
	"settee/replicator/jobs"
)

// notX selects all databases except those that begin with x.
func notX(database string) bool { return !strings.HasPrefix(database, "x") }

// What a comparison decides of one database: for each state, listed by the source or not, and selected or not.
func TestCompareOne(t *testing.T) {
	t.Parallel()
	add, redefine, missing, end := plan{add: []string{"d"}}, plan{redefine: []string{"d"}}, plan{missing: []string{"d"}}, plan{end: []string{"d"}}
	for _, c := range []struct {
		state                replicator.MirroredState // empty if the mirror does not know it
		outdated             bool                     // its job follows an earlier definition
		listed, unlisted     plan
		deselected, vanished plan // the same if the mirror does not select it (any more)
	}{
		{listed: add},
		{state: replicator.MirroredWaiting, unlisted: missing, deselected: end, vanished: end},
		{state: replicator.MirroredStarting, unlisted: missing, deselected: end, vanished: end},
		{state: replicator.MirroredCopying, unlisted: missing, deselected: end, vanished: end},
		{state: replicator.MirroredCurrent, unlisted: missing, deselected: end, vanished: end},
		{state: replicator.MirroredFailing, unlisted: missing, deselected: end, vanished: end},
		{state: replicator.MirroredCurrent, outdated: true, listed: redefine, unlisted: missing, deselected: end, vanished: end},
		{state: replicator.MirroredFailed, listed: redefine, unlisted: missing, deselected: end, vanished: end},
		{state: replicator.MirroredElsewhere, listed: redefine, unlisted: missing, deselected: end, vanished: end},
		// It was deleted: it waits for its end at the target, which only a mirror that selects it may delete.
		{state: replicator.MirroredGone, listed: add, deselected: end, vanished: end},
	} {
		var known []jobs.MirroredDatabase
		if c.state != "" {
			known = []jobs.MirroredDatabase{{Database: "d", State: c.state, Current: !c.outdated}}
		}
		all, none := func(string) bool { return true }, func(string) bool { return false }
		what := fmt.Sprintf("%q, outdated %v", c.state, c.outdated)
		require.Equal(t, c.listed, compare([]string{"d"}, known, all), "listed: %s", what)
		require.Equal(t, c.unlisted, compare(nil, known, all), "unlisted: %s", what)
		require.Equal(t, c.deselected, compare([]string{"d"}, known, none), "listed, not selected: %s", what)
		require.Equal(t, c.vanished, compare(nil, known, none), "unlisted, not selected: %s", what)
	}
}

// The lists of a plan are in the order of names, and of two lists each name is compared with its own.
func TestCompareMerges(t *testing.T) {
	t.Parallel()
	known := []jobs.MirroredDatabase{
		{Database: "b", State: replicator.MirroredCurrent, Current: true},
		{Database: "d", State: replicator.MirroredGone, Current: true},
		{Database: "e", State: replicator.MirroredCurrent},
		{Database: "f", State: replicator.MirroredCurrent, Current: true},
		{Database: "x1", State: replicator.MirroredCurrent, Current: true},
		{Database: "y", State: replicator.MirroredCurrent, Current: true},
	}
	require.Equal(t, plan{
		add: []string{"a", "c", "d"}, redefine: []string{"e"}, missing: []string{"f", "y"}, end: []string{"x1"},
	}, compare([]string{"a", "b", "c", "d", "e", "x0", "x1"}, known, notX))
}

// A list that goes on after what was read is compared only up to its last name.
func TestCut(t *testing.T) {
	t.Parallel()
	of := func(names string) (list []jobs.MirroredDatabase) {
		for _, name := range strings.Fields(names) {
			list = append(list, jobs.MirroredDatabase{Database: name})
		}
		return list
	}
	for _, c := range []struct {
		names               string
		lastNames           bool
		known               string
		lastKnown           bool
		wantNames, wantKnow int
	}{
		{"", true, "", true, 0, 0},
		{"a b", true, "a c", true, 2, 2},
		{"a b", false, "a c", true, 2, 1},
		{"a c", true, "a b", false, 1, 2},
		{"a c", false, "a b", false, 1, 2},
		{"a b", false, "a b", false, 2, 2},
		{"c", false, "a b", false, 0, 2},
		{"a", false, "b c", false, 1, 0},
		{"", true, "a", false, 0, 1},
		{"a", false, "", true, 1, 0},
	} {
		n, k := knownPrefix(strings.Fields(c.names), c.lastNames, of(c.known), c.lastKnown)
		require.Equal(t, []int{c.wantNames, c.wantKnow}, []int{n, k}, "%+v", c)
	}
}

// Page by page the comparison finds what it finds with the whole lists, and each page brings it on.
func TestPagesAddUp(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 0))
	states := []replicator.MirroredState{replicator.MirroredCurrent, replicator.MirroredGone, replicator.MirroredFailed}
	for range 500 {
		var names []string
		var known []jobs.MirroredDatabase
		for i := range random.IntN(40) {
			name := fmt.Sprintf("d%02d", i)
			if random.IntN(3) == 0 {
				name = "x" + name // not selected
			}
			switch random.IntN(4) {
			case 0:
				names = append(names, name)
			case 1:
				known = append(known, jobs.MirroredDatabase{Database: name, State: states[random.IntN(3)], Current: random.IntN(2) == 0})
			case 2:
				names = append(names, name)
				known = append(known, jobs.MirroredDatabase{Database: name, State: states[random.IntN(3)], Current: random.IntN(2) == 0})
			}
		}
		slices.Sort(names)
		slices.SortFunc(known, func(a, b jobs.MirroredDatabase) int { return strings.Compare(a.Database, b.Database) })
		whole := compare(names, known, notX)
		var sum plan
		pageOfNames, pageOfKnown := 1+random.IntN(5), 1+random.IntN(5)
		var someNames []string
		var someKnown []jobs.MirroredDatabase
		for steps := 0; len(names)+len(known)+len(someNames)+len(someKnown) > 0; steps++ {
			require.Less(t, steps, 200, "it does not end")
			if len(someNames) == 0 {
				n := min(pageOfNames, len(names))
				someNames, names = names[:n], names[n:]
			}
			if len(someKnown) == 0 {
				n := min(pageOfKnown, len(known))
				someKnown, known = known[:n], known[n:]
			}
			n, k := knownPrefix(someNames, len(names) == 0, someKnown, len(known) == 0)
			part := compare(someNames[:n], someKnown[:k], notX)
			sum.add, sum.redefine = append(sum.add, part.add...), append(sum.redefine, part.redefine...)
			sum.missing, sum.end = append(sum.missing, part.missing...), append(sum.end, part.end...)
			someNames, someKnown = someNames[n:], someKnown[k:]
		}
		require.Equal(t, whole, sum)
	}
}
