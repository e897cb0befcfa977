package replicator_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/replicator"
)

// The tables of docs/http.md have the states, reasons and marks that there are, and each reason has a message.
func TestConditionDocument(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/http.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "### What is told about a job\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n### ")
	documented := map[string][]string{}
	for table := range strings.SplitSeq(section, "\n\n") {
		head, _, _ := strings.Cut(strings.TrimPrefix(table, "| "), " ")
		for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(table, -1) {
			documented[head] = append(documented[head], row[1])
		}
	}
	declared := map[string]int{}
	for _, name := range []string{"condition.go", "activity.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(node ast.Node) bool {
			if c, ok := node.(*ast.GenDecl); ok && c.Tok == token.CONST {
				for _, spec := range c.Specs {
					name := spec.(*ast.ValueSpec).Names[0].Name
					for prefix, table := range map[string]string{"Shown": "state", "Reason": "reason", "Doing": "reason", "Mark": "mark"} {
						if strings.HasPrefix(name, prefix) {
							declared[table]++
						}
					}
				}
			}
			return true
		})
	}
	var reasons []string
	for reason := range replicator.Reasons {
		reasons = append(reasons, string(reason))
	}
	assert.ElementsMatch(t, reasons, documented["reason"])
	assert.Len(t, reasons, declared["reason"])
	assert.ElementsMatch(t, []string{
		string(replicator.ShownPending), string(replicator.ShownScheduled), string(replicator.ShownCrashing), string(replicator.ShownParked),
		string(replicator.ShownPaused), string(replicator.ShownRunning), string(replicator.ShownCompleted), string(replicator.ShownFailed),
	}, documented["state"])
	assert.Len(t, documented["state"], declared["state"])
	marks := []replicator.MarkType{
		replicator.MarkFailing, replicator.MarkStuck, replicator.MarkDocumentsRefused, replicator.MarkBehind, replicator.MarkDatabasesFailing,
		replicator.MarkAcknowledged,
	}
	assert.Len(t, documented["mark"], declared["mark"])
	for _, mark := range marks {
		assert.Contains(t, documented["mark"], string(mark))
	}
}
