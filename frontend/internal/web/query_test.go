package web

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// The parameters of a function are those that it asks for, in any way.
func TestParameters(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"a", "b", "c", "d", "e", "f"}, Parameters(func(q *Query) {
		_, _, _, _ = q.Has("c"), q.Text("a"), q.Count("d", 1), q.Flag("b", true)
		_, _ = q.Switch("f"), q.JSON("e", "a list", new([]string))
		q.Has("a")
	}))
	assert.Empty(t, Parameters(func(*Query) {}))
}
