package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/scripts/bench/lab"
)

// TestStillness: a job stands still from the first look that finds it in the queue until one that does not.
func TestStillness(t *testing.T) {
	s := stillness{since: map[string]time.Time{}, inAll: map[string]time.Duration{}}
	at := func(second int, ids ...string) { s.note(ids, time.Unix(int64(second), 0)) }
	at(0, "a")
	at(1, "a", "b")
	at(3, "b", "c")
	at(4)
	at(5, "a")
	at(6)
	require.ElementsMatch(t, lab.Delays{3 * time.Second, 3 * time.Second, time.Second, time.Second}, s.spans)
	require.Equal(t, 4*time.Second, s.inAll["a"])
}
