package testkit

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	firstCell = regexp.MustCompile(`(?m)^\| ([^|]*) \|`)
	aWord     = regexp.MustCompile("`([a-z_]+)`")
)

// Words returns the words of the first column of a table of docs/http.md, whose path is given: of the table whose first column is
// called so.
func Words(t *testing.T, path, column string) (words []string) {
	t.Helper()
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	for table := range strings.SplitSeq(string(page), "\n\n") {
		if !strings.HasPrefix(strings.ReplaceAll(table, "`", ""), "| "+column+" |") {
			continue
		}
		for _, row := range firstCell.FindAllStringSubmatch(table, -1)[1:] {
			for _, word := range aWord.FindAllStringSubmatch(row[1], -1) {
				words = append(words, word[1])
			}
		}
	}
	require.NotEmpty(t, words, column)
	return words
}
