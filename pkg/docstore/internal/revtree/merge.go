package revtree

import "slices"

// Merge adds a revision with its path to a tree. The revision extends a leaf, branches off, or
// stands alone if none of its path is known. Paths keep at most limit revisions, and at least
// one.
//
// added is false if the revision was known. Even then the tree may change: paths grow by older
// revisions that only the edit knows, and a leaf that turns out to be an ancestor of another one
// is removed.
func (t Tree[T]) Merge(edit Leaf[T], limit int) (merged Tree[T], added bool) {
	limit = max(limit, 1)
	edit.IDs = t.complete(edit)
	merged = make(Tree[T], 0, len(t)+1)
	for _, l := range t {
		if edit.Contains(l.Rev()) && edit.Rev() != l.Rev() {
			continue // it is no longer a leaf
		}
		// Paths agree, so the edit can extend this one only if it contains its oldest revision.
		if older := edit.Pos - l.oldest().Pos + 1; edit.Contains(l.oldest()) && older < int64(len(edit.IDs)) {
			l.IDs = slices.Concat(l.IDs, edit.IDs[older:])
		}
		l.IDs = stem(l.IDs, limit)
		merged = append(merged, l)
	}
	if added = !t.Knows(edit.Rev()); added {
		edit.IDs = stem(edit.IDs, limit)
		at, _ := slices.BinarySearchFunc(merged, edit, Leaf[T].Compare)
		merged = slices.Insert(merged, at, edit)
	}
	return merged, added
}

func stem(ids []string, limit int) []string { return ids[:min(len(ids), limit):min(len(ids), limit)] }

// oldest returns the oldest known revision in a leaf's path.
func (l Leaf[T]) oldest() Rev {
	last := len(l.IDs) - 1
	return Rev{l.Pos - int64(last), l.IDs[last]}
}

// complete returns the path of an edit with all that the leaves know of it. If they contradict
// it, they win.
func (t Tree[T]) complete(edit Leaf[T]) []string {
	path := slices.Clone(edit.IDs)
	for i := 0; i < len(path); i++ {
		older := t.ancestors(Rev{edit.Pos - int64(i), path[i]})
		n := min(len(older), len(path)-i-1)
		if len(older) > n || !slices.Equal(older[:n], path[i+1:i+1+n]) {
			path = append(path[:i+1], older...)
		}
		i += max(len(older)-1, 0) // another leaf may know ancestors of the oldest
	}
	return path
}

// ancestors returns the longest list of known ancestors of a revision, its parent's id first.
func (t Tree[T]) ancestors(rev Rev) (older []string) {
	for _, l := range t {
		if l.Contains(rev) {
			if ids := l.IDs[l.Pos-rev.Pos+1:]; len(ids) > len(older) {
				older = ids
			}
		}
	}
	return older
}
