package couchtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

const (
	// fetchDocs is how many revisions are read at a time for a comparison.
	fetchDocs = 1000
	// shownDifferences is how many differences a failed comparison lists.
	shownDifferences = 10
)

// Tree is what a database has of a document.
type Tree struct {
	Winner  string // in _all_docs; empty if the winner is deleted
	Deleted bool   // as _changes says it
	// Leaves are all revisions at the ends of branches, by revision.
	Leaves map[string]string
}

// Trees reads all documents of the database at dbURL, which may have credentials in it. A leaf is given
// as its body in JSON with sorted members, with its history (_revisions) and, instead of the attachments'
// stubs, their digests, lengths and types. Local documents are not read.
func Trees(t testing.TB, dbURL string) map[string]Tree {
	t.Helper()
	var changes struct {
		Results []struct {
			ID      string
			Deleted bool
			Changes []struct{ Rev string }
		}
	}
	exchange(t, http.MethodGet, dbURL+"/_changes?style=all_docs", nil, &changes)
	trees := make(map[string]Tree, len(changes.Results))
	var refs []map[string]string
	for _, row := range changes.Results {
		trees[row.ID] = Tree{Deleted: row.Deleted, Leaves: make(map[string]string, len(row.Changes))}
		for _, change := range row.Changes {
			refs = append(refs, map[string]string{"id": row.ID, "rev": change.Rev})
		}
	}
	var all struct {
		Rows []struct {
			ID    string
			Value struct{ Rev string }
		}
	}
	exchange(t, http.MethodGet, dbURL+"/_all_docs", nil, &all)
	for _, row := range all.Rows {
		tree := trees[row.ID]
		tree.Winner = row.Value.Rev
		trees[row.ID] = tree
	}
	for portion := range slices.Chunk(refs, fetchDocs) {
		readLeaves(t, dbURL, portion, trees)
	}
	return trees
}

// readLeaves reads revisions into trees.
func readLeaves(t testing.TB, dbURL string, refs []map[string]string, trees map[string]Tree) {
	t.Helper()
	var answer struct {
		Results []struct {
			ID   string
			Docs []struct{ OK map[string]any }
		}
	}
	body, err := json.Marshal(map[string]any{"docs": refs})
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, http.MethodPost, dbURL+"/_bulk_get?revs=true", body, &answer)
	for _, result := range answer.Results {
		for _, doc := range result.Docs {
			rev, _ := doc.OK["_rev"].(string)
			if tree, ok := trees[result.ID]; ok && rev != "" {
				tree.Leaves[rev] = normalised(doc.OK)
			}
		}
	}
	for _, ref := range refs {
		if _, ok := trees[ref["id"]].Leaves[ref["rev"]]; !ok {
			t.Fatalf("reading %s: no answer for %q %s", redacted(dbURL), ref["id"], ref["rev"])
		}
	}
}

// normalised is a leaf as a text that is the same wherever the leaf is.
func normalised(doc map[string]any) string {
	if attachments, ok := doc["_attachments"].(map[string]any); ok {
		for name, value := range attachments {
			about, _ := value.(map[string]any)
			attachments[name] = []any{about["digest"], about["length"], about["content_type"]}
		}
	}
	text, err := json.Marshal(doc)
	if err != nil {
		panic(err) // it was JSON a moment ago
	}
	return string(text)
}

// SameTrees fails t, with the first few differences, unless two databases have the same documents: the
// same winners, the same leaves with the same histories and bodies, and attachments of the same content.
func SameTrees(t testing.TB, wantURL, gotURL string) {
	t.Helper()
	if differences := Differences(t, wantURL, gotURL); len(differences) > 0 {
		shown := differences[:min(len(differences), shownDifferences)]
		t.Fatalf("%s and %s differ in %d documents:\n%s",
			redacted(wantURL), redacted(gotURL), len(differences), strings.Join(shown, "\n"))
	}
}

// Differences says what SameTrees would fail with: a text for each document that differs, or nil.
func Differences(t testing.TB, wantURL, gotURL string) []string {
	t.Helper()
	return compare(Trees(t, wantURL), Trees(t, gotURL))
}

// compare lists the documents that differ.
func compare(want, got map[string]Tree) []string {
	ids := slices.Collect(maps.Keys(want))
	for id := range got {
		if _, ok := want[id]; !ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	var differences []string
	for _, id := range ids {
		w, inWant := want[id]
		g, inGot := got[id]
		switch {
		case !inGot:
			differences = append(differences, fmt.Sprintf("%q is missing", id))
		case !inWant:
			differences = append(differences, fmt.Sprintf("%q should not be there", id))
		case w.Winner != g.Winner || w.Deleted != g.Deleted:
			differences = append(differences, fmt.Sprintf("%q: winner %q (deleted: %t), want %q (deleted: %t)",
				id, g.Winner, g.Deleted, w.Winner, w.Deleted))
		case !maps.Equal(w.Leaves, g.Leaves):
			differences = append(differences, fmt.Sprintf("%q: leaves\n\t%v\nwant\n\t%v", id, g.Leaves, w.Leaves))
		}
	}
	return differences
}
