package mirror

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"settee/replicator"
	"settee/replicator/jobs"
)

func TestCompare(t *testing.T) {
	t.Parallel()
	known := func(name string, state replicator.MirroredState, current bool) jobs.MirroredDatabase {
		return jobs.MirroredDatabase{Database: name, State: state, Current: current}
	}
	names := []string{"a-new", "b-known", "c-returned", "d-failed", "e-earlier", "x-known", "x-new"}
	list := []jobs.MirroredDatabase{
		known("a-missing", replicator.MirroredCurrent, true), known("b-known", replicator.MirroredCurrent, true),
		known("c-returned", replicator.MirroredGone, true), known("d-failed", replicator.MirroredFailed, true),
		known("e-earlier", replicator.MirroredCopying, false), known("f-gone", replicator.MirroredGone, true),
		known("x-known", replicator.MirroredCurrent, true), known("x-missing", replicator.MirroredCurrent, true),
	}
	selects := func(name string) bool { return !strings.HasPrefix(name, "x-") }
	assert.Equal(t, plan{
		add: []string{"a-new", "c-returned"}, redefine: []string{"d-failed", "e-earlier"}, missing: []string{"a-missing"},
		end: []string{"x-known", "x-missing"},
	}, compare(names, list, selects))
	assert.Zero(t, compare(nil, nil, selects))
}

// Parts of two lists are compared up to the place that both reach.
func TestCut(t *testing.T) {
	t.Parallel()
	known := []jobs.MirroredDatabase{{Database: "b"}, {Database: "d"}}
	for _, c := range []struct {
		names                string
		lastNames, lastKnown bool
		n, k                 int
	}{
		{"a c", false, false, 2, 1}, {"a c", true, false, 2, 2}, {"a e", false, false, 1, 2}, {"a e", false, true, 2, 2}, {"a e", true, true, 2, 2},
	} {
		n, k := cut(strings.Fields(c.names), c.lastNames, known, c.lastKnown)
		assert.Equal(t, []int{c.n, c.k}, []int{n, k}, "%+v", c)
	}
}
