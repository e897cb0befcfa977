package mirror

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"settee/pkg/couch"
)

// Databases whose `_security` objects differ are compared again once for each pair of digests: a job that could not copy the object has
// said why.
func TestDifferingSecurity(t *testing.T) {
	t.Parallel()
	m := &mirror{secured: map[string][2]string{}}
	has := map[string]string{"equal": "1", "other": "1", "untold": "1"}
	sources := func(other string) []couch.DatabaseInfo {
		return []couch.DatabaseInfo{{Name: "equal", SecurityDigest: "1"}, {Name: "other", SecurityDigest: other}, {Name: "untold"}}
	}
	assert.Equal(t, []string{"other"}, m.differing(sources("2"), has))
	assert.Empty(t, m.differing(sources("2"), has), "it was told before")
	assert.Equal(t, []string{"other"}, m.differing(sources("3"), has))
	assert.Empty(t, m.differing(sources("1"), has))
	assert.Equal(t, []string{"other"}, m.differing(sources("3"), has), "it differs again")
}
