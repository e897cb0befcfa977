package docstore

import (
	"context"

	"settee/pkg/docstore/internal/revtree"
	"settee/pkg/kv"
)

// RevsQuery asks which revisions of a document are missing.
type RevsQuery struct {
	ID   string
	Revs []Rev
}

// RevsDiff lists the missing revisions of a document.
type RevsDiff struct {
	ID string
	// Missing are revisions that are neither leaves nor known ancestors of one.
	Missing []Rev
	// PossibleAncestors are the leaves whose position is below the position of a missing revision.
	PossibleAncestors []Rev
}

const (
	// treesAtOnce is the maximum number of documents whose leaves one transaction reads.
	treesAtOnce = 50
	// pathsAtOnce is the number of revisions in paths after which a transaction reads no further document.
	pathsAtOnce = 200_000
)

// RevsDiff returns the missing revisions of documents, without the documents that miss none. If an id is not valid for
// a document, all its revisions are missing.
func (db *Database) RevsDiff(ctx context.Context, queries []RevsQuery) ([]RevsDiff, error) {
	var diffs []RevsDiff
	for len(queries) > 0 {
		found, err := kv.TransactValue(ctx, db.store.kv, func(tx kv.Transaction) (diffed, error) {
			return db.revsDiff(tx.Snapshot(), queries[:min(len(queries), treesAtOnce)])
		})
		if err != nil {
			return nil, err
		}
		diffs = append(diffs, found.diffs...)
		queries = queries[found.queries:]
	}
	return diffs, nil
}

// diffed is what one transaction has found, and for how many queries.
type diffed struct {
	diffs   []RevsDiff
	queries int
}

func (db *Database) revsDiff(tx kv.ReadTransaction, queries []RevsQuery) (out diffed, err error) {
	exists := db.exists(tx)
	trees := make([]*treeRead, len(queries))
	for i, q := range queries {
		if checkID(q.ID) == nil {
			tree := db.readTree(tx, q.ID)
			trees[i] = &tree
		}
	}
	if err := exists.await(); err != nil {
		return out, err
	}
	paths := 0
	for i, q := range queries {
		var tree leafTree
		if trees[i] != nil {
			if tree, err = trees[i].await(); err != nil {
				return out, inDocument(q.ID, err)
			}
		}
		if diff := missing(tree, q); len(diff.Missing) > 0 {
			out.diffs = append(out.diffs, diff)
		}
		out.queries++
		for _, l := range tree {
			paths += len(l.IDs)
		}
		if paths > pathsAtOnce {
			break
		}
	}
	return out, nil
}

func missing(t leafTree, q RevsQuery) RevsDiff {
	diff := RevsDiff{ID: q.ID}
	var newest int64
	for _, rev := range q.Revs {
		if !t.Knows(revtree.Rev(rev)) {
			diff.Missing = append(diff.Missing, rev)
			newest = max(newest, rev.Pos)
		}
	}
	for _, l := range t {
		if l.Pos < newest {
			diff.PossibleAncestors = append(diff.PossibleAncestors, Rev(l.Rev()))
		}
	}
	return diff
}
