package couchtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	// fetchDocs is the number of revisions read at a time.
	fetchDocs = 1000
	// shownDifferences is the number of differences that a failed comparison lists.
	shownDifferences = 10
)

// Tree is a document in a database.
type Tree struct {
	Winner  string // in _all_docs; empty if the winner is deleted
	Deleted bool   // from _changes
	// Leaves are the leaves by revision.
	Leaves map[string]string
}

// Trees reads all documents of the database at dbURL, which may contain credentials, except local ones. A leaf is its
// body as JSON with sorted members, with its history (_revisions), and with the digests, lengths and types of its
// attachments in place of the stubs.
func Trees(t testing.TB, dbURL string) map[string]Tree {
	t.Helper()
	rows := changedRows(t, dbURL)
	trees := make(map[string]Tree, len(rows))
	var refs []map[string]string
	for _, row := range rows {
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

// Leaves returns the revisions of the leaves of all documents of the database, by document id, sorted.
func Leaves(t testing.TB, dbURL string) map[string][]string {
	t.Helper()
	rows := changedRows(t, dbURL)
	leaves := make(map[string][]string, len(rows))
	for _, row := range rows {
		for _, change := range row.Changes {
			leaves[row.ID] = append(leaves[row.ID], change.Rev)
		}
		slices.Sort(leaves[row.ID])
	}
	return leaves
}

type changedRow struct {
	ID      string
	Deleted bool
	Changes []struct{ Rev string }
}

// changedRows reads the changes feed with all leaves.
func changedRows(t testing.TB, dbURL string) []changedRow {
	t.Helper()
	var changes struct{ Results []changedRow }
	exchange(t, http.MethodGet, dbURL+"/_changes?style=all_docs", nil, &changes)
	return changes.Results
}

// AwaitSameTrees waits until both databases have the same leaves, up to a time limit, and then calls SameTrees. The
// databases may change until then.
func AwaitSameTrees(t testing.TB, wantURL, gotURL string, limit time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(limit); !maps.EqualFunc(Leaves(t, wantURL), Leaves(t, gotURL), slices.Equal); {
		if time.Now().After(deadline) {
			break // SameTrees reports the differences
		}
		time.Sleep(50 * time.Millisecond)
	}
	SameTrees(t, wantURL, gotURL)
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

// normalised returns a leaf as text that does not depend on the server.
func normalised(doc map[string]any) string {
	if attachments, ok := doc["_attachments"].(map[string]any); ok {
		for name, value := range attachments {
			about, _ := value.(map[string]any)
			attachments[name] = []any{about["digest"], about["length"], about["content_type"]}
		}
	}
	text, err := json.Marshal(doc)
	if err != nil {
		panic(err) // it was decoded from JSON
	}
	return string(text)
}

// SameTrees fails t, with the first few differences, unless two databases have the same documents: the same winners,
// leaves, histories and bodies, and attachments with the same content.
func SameTrees(t testing.TB, wantURL, gotURL string) {
	t.Helper()
	if differences := compare(Trees(t, wantURL), Trees(t, gotURL)); len(differences) > 0 {
		shown := differences[:min(len(differences), shownDifferences)]
		t.Fatalf("%s and %s differ in %d documents:\n%s",
			redacted(wantURL), redacted(gotURL), len(differences), strings.Join(shown, "\n"))
	}
}

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
