package load

import (
	"testing"

	"github.com/stretchr/testify/require"

	"settee/scripts/bench/lab"
)

func TestBound(t *testing.T) {
	l := load{rate: 100, jobs: 1, sources: 1, Databases: &lab.Databases{Readers: lab.One}}
	used := lab.Used{Seconds: 10}
	require.Empty(t, l.bound(used, 960, lab.Counts{Due: 90}))
	require.Contains(t, l.bound(used, 800, lab.Counts{}), "the sources")
	require.Contains(t, l.bound(used, 1000, lab.Counts{Due: 2000}), "other than processors")
}

func TestDocNumbers(t *testing.T) {
	docs, err := docNumbers([]byte(`{"docs":[{"id":"d00000007","rev":"1-d"},{"id":"d00000012"}]}`), `"id":"`)
	require.NoError(t, err)
	require.Equal(t, []int{7, 12}, docs)
	_, err = docNumbers([]byte(`{"id":"d7`), `"id":"`)
	require.Error(t, err)
}
