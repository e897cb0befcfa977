package couch

import (
	"context"
	"fmt"
	"io"
	"slices"
)

// bulkWindow is the size in bytes of the read buffer of an answer with many documents.
const bulkWindow = 32 << 10

// maxAncestors is how many possible ancestors of a document are kept.
const maxAncestors = 100

// DocRevs names revisions of a document.
type DocRevs struct {
	ID   string
	Revs []string
}

// Missing is what a database does not have of a document.
type Missing struct {
	Revs []string
	// PossibleAncestors are revisions that it does have, of a lower generation than one of Revs: for
	// [OpenRevsOptions.AttsSince], at most 100. Not every server says them.
	PossibleAncestors []string
}

// RevsDiff asks which of these revisions the database does not have. An id of which it has all is not
// in the result. An id may be named more than once.
func (d *Database) RevsDiff(ctx context.Context, docs []DocRevs) (map[string]Missing, error) {
	if len(docs) == 0 {
		return nil, nil
	}
	ids, revs := gather(docs)
	body := []byte{'{'}
	for i, id := range ids {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(append(body, quote(id)...), ':')
		body = appendStrings(body, revs[id])
	}
	body = append(body, '}')

	var missing map[string]Missing
	err := d.post(ctx, "_revs_diff", bytesBody(body), func(p *response) (err error) {
		missing, err = readRevsDiff(p, revs)
		return err
	})
	return missing, err
}

// gather merges the revisions named for an id, and returns the ids in the order of their first mention.
func gather(docs []DocRevs) ([]string, map[string][]string) {
	ids := make([]string, 0, len(docs))
	revs := make(map[string][]string, len(docs))
	for _, doc := range docs {
		have, seen := revs[doc.ID]
		if !seen {
			ids = append(ids, doc.ID)
			revs[doc.ID] = doc.Revs
			continue
		}
		merged := slices.Clone(have)
		for _, rev := range doc.Revs {
			if !slices.Contains(merged, rev) {
				merged = append(merged, rev)
			}
		}
		revs[doc.ID] = merged
	}
	return ids, revs
}

// readRevsDiff reads {"id": {"missing": [...], "possible_ancestors": [...]}, ...}.
func readRevsDiff(r io.Reader, asked map[string][]string) (map[string]Missing, error) {
	j := newJSONReader(&bounded{r: r, left: maxRevsDiff}, bulkWindow)
	missing := map[string]Missing{}
	if err := j.open('{'); err != nil {
		return nil, fmt.Errorf("reading the revisions' difference: %w", err)
	}
	for {
		id, ok, err := j.member()
		if err == nil && !ok {
			return missing, nil
		}
		var raw []byte
		if err == nil {
			raw, err = j.value(maxRow)
		}
		var m Missing
		if err == nil {
			m, err = parseMissing(raw)
		}
		if err != nil {
			return nil, fmt.Errorf("reading the revisions' difference: %w", err)
		}
		// Only what was asked for is answered: a server that adds to it is not followed.
		m.Revs = slices.DeleteFunc(m.Revs, func(rev string) bool { return !slices.Contains(asked[id], rev) })
		if len(m.Revs) > 0 {
			missing[id] = m
		}
	}
}

func parseMissing(raw []byte) (Missing, error) {
	var m Missing
	if !isObject(raw) {
		return m, fmt.Errorf("%w: not an object", ErrMalformed)
	}
	var err error
	members(raw, func(one member) bool {
		switch string(one.key) {
		case "missing":
			m.Revs, err = parseStrings(raw[one.value:one.end])
		case "possible_ancestors":
			m.PossibleAncestors, err = parseStrings(raw[one.value:one.end])
			// More of them than were asked for may come, and a URL has room for no more.
			if len(m.PossibleAncestors) > maxAncestors {
				m.PossibleAncestors = slices.Clone(m.PossibleAncestors[:maxAncestors])
			}
		}
		return err == nil
	})
	return m, err
}

func parseStrings(raw []byte) ([]string, error) {
	if !isArray(raw) {
		return nil, fmt.Errorf("%w: not an array", ErrMalformed)
	}
	var list []string
	var err error
	elements(raw, func(element []byte) bool {
		var s string
		if s, err = unquote(element); err == nil {
			list = append(list, s)
		}
		return err == nil
	})
	return list, err
}

// bounded is a reader that fails with ErrLimit after a number of bytes.
type bounded struct {
	r    io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("%w: an endless answer", ErrLimit)
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
