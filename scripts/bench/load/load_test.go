package load

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDocNumbers(t *testing.T) {
	docs, err := docNumbers([]byte(`{"docs":[{"id":"d00000007","rev":"1-d"},{"id":"d00000012"}]}`), `"id":"`)
	require.NoError(t, err)
	require.Equal(t, []int{7, 12}, docs)
	_, err = docNumbers([]byte(`{"id":"d7`), `"id":"`)
	require.Error(t, err)
}
