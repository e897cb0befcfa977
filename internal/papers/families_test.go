package papers

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	familyRow = regexp.MustCompile("(?m)^\\| `([\\w./-]+\\.go)` \\| ((?:`[^`|]+`,? ?)+)\\|$")
	keyLine   = regexp.MustCompile(`(?m)^\s*//\t\(([^)\n]*)\)`)
)

// familiesIn returns the families of keys that the comments of a file describe: the first elements of their keys, and the second
// ones of those that begin with meta.
func familiesIn(text string) (families []string) {
	for _, m := range keyLine.FindAllStringSubmatch(text, -1) {
		elements := strings.Split(m[1], ",")
		if elements[0] == "meta" {
			elements = elements[1:]
		}
		family := strings.Trim(elements[0], ` "`)
		if !slices.Contains(families, family) {
			families = append(families, family)
		}
	}
	return families
}

// TestFamilies compares the table of the families of keys with the comments of the packages that have them.
func TestFamilies(t *testing.T) {
	t.Parallel()
	_, section, found := strings.Cut(read(t, "docs/architecture.md"), "\n## What the store has\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	all := 0
	for _, row := range familyRow.FindAllStringSubmatch(section, -1) {
		var listed []string
		for name := range strings.SplitSeq(row[2], ",") {
			listed = append(listed, strings.Trim(name, " `"))
		}
		assert.Equal(t, familiesIn(read(t, row[1])), listed, row[1])
		all += len(listed)
	}
	assert.Contains(t, section, fmt.Sprintf("%d families", all))
}
