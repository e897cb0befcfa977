package couch

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
)

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
	docs = gather(docs)
	var missing map[string]Missing
	err := d.post(ctx, "_revs_diff", bytesBody(revsDiffBody(docs)), func(p *response) (err error) {
		missing, err = readRevsDiff(p, docs)
		return err
	})
	return missing, err
}

func revsDiffBody(docs []DocRevs) []byte {
	size := 2
	for _, doc := range docs {
		size += len(doc.ID) + len(`"":[],`)
		for _, rev := range doc.Revs {
			size += len(rev) + len(`"",`)
		}
	}
	body := append(make([]byte, 0, size), '{')
	for i, doc := range docs {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(appendQuoted(body, doc.ID), ':')
		body = appendStrings(body, doc.Revs)
	}
	return append(body, '}')
}

// gather merges the revisions that are named for an id, in the order of its first mention. It leaves docs
// alone.
func gather(docs []DocRevs) []DocRevs {
	first := make(map[string]int, len(docs))
	for i, doc := range docs {
		if _, twice := first[doc.ID]; !twice {
			first[doc.ID] = i
		}
	}
	if len(first) == len(docs) {
		return docs
	}
	merged := make([]DocRevs, 0, len(first))
	for i, doc := range docs {
		at := first[doc.ID]
		if at == i {
			first[doc.ID] = len(merged)
			merged = append(merged, DocRevs{ID: doc.ID, Revs: slices.Clone(doc.Revs)})
			continue
		}
		for _, rev := range doc.Revs {
			if !slices.Contains(merged[at].Revs, rev) {
				merged[at].Revs = append(merged[at].Revs, rev)
			}
		}
	}
	return merged
}

// readRevsDiff reads {"id": {"missing": [...], "possible_ancestors": [...]}, ...}. No id is asked for twice.
func readRevsDiff(r io.Reader, asked []DocRevs) (map[string]Missing, error) {
	j := newJSONReader(&bounded{r: r, left: maxRevsDiff}, bulkWindow)
	defer j.free()
	missing := map[string]Missing{}
	if err := j.open('{'); err != nil {
		return nil, fmt.Errorf("reading the revisions' difference: %w", err)
	}
	ids := places{id: func(i int) string { return asked[i].ID }, n: len(asked)}
	for {
		more, err := j.more('}')
		if err == nil && !more {
			return missing, nil
		}
		var id string
		var m Missing
		if err == nil {
			id, m, err = readMissing(j, asked, &ids)
		}
		if err != nil {
			return nil, fmt.Errorf("reading the revisions' difference: %w", err)
		}
		if len(m.Revs) > 0 {
			if len(missing) == 0 {
				missing = make(map[string]Missing, len(asked)) // one that lacks something lacks most
			}
			missing[id] = m
		}
	}
}

// readMissing reads what is missing of one document. Only what was asked for is answered: a server that adds
// to it is not followed.
func readMissing(j *jsonReader, asked []DocRevs, ids *places) (id string, m Missing, err error) {
	if at, ok := allMissing(j, asked, ids); ok {
		return asked[at].ID, Missing{Revs: asked[at].Revs}, nil
	}
	if id, err = j.name(ids.text); err != nil {
		return id, m, err
	}
	raw, err := j.value(maxRow)
	if err != nil {
		return id, m, err
	}
	var revs []string
	if at, is := ids.find([]byte(id)); is {
		revs = asked[at].Revs
	}
	m, err = parseMissing(raw, revs)
	return id, m, err
}

// allMissing reads what most servers say of a document with one leaf that they have nothing of, in the order
// of the question. If it is anything else it reads nothing.
func allMissing(j *jsonReader, asked []DocRevs, ids *places) (at int, ok bool) {
	for at = ids.at; at < len(asked) && at <= ids.at+1; at++ {
		doc := asked[at]
		if len(doc.Revs) != 1 || !spelledAsItIs(doc.ID) || !spelledAsItIs(doc.Revs[0]) {
			continue
		}
		ahead := j.ahead()
		rest := ahead
		end := 0
		for _, piece := range [...]string{`"`, doc.ID, `":{"missing":["`, doc.Revs[0], `"]}`} {
			if rest, end = cutPrefix(rest, piece); end < 0 {
				break
			}
		}
		if end == 0 {
			ids.at = at
			return at, j.passed(len(ahead)-len(rest), len(ahead))
		}
	}
	return 0, false
}

// spelledAsItIs reports whether a string has nothing in it that ends a JSON string, or means something else
// there.
func spelledAsItIs(s string) bool {
	return strings.IndexByte(s, '"') < 0 && strings.IndexByte(s, '\\') < 0
}

// parseMissing reads what is missing of the revisions that were asked for.
func parseMissing(raw []byte, asked []string) (Missing, error) {
	var m Missing
	if !isObject(raw) {
		return m, fmt.Errorf("%w: not an object", ErrMalformed)
	}
	var err error
	members(raw, func(one member) bool {
		switch string(one.key) {
		case "missing":
			m.Revs, err = parseAsked(raw[one.value:one.end], asked)
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

// parseAsked reads an array of strings and returns those that were asked for.
func parseAsked(raw []byte, asked []string) ([]string, error) {
	if !isArray(raw) {
		return nil, fmt.Errorf("%w: not an array", ErrMalformed)
	}
	found := asked[:0:0]
	matches := 0 // all so far were asked for in this order
	var err error
	elements(raw, func(element []byte) bool {
		var want, rev string
		if matches >= 0 && matches < len(asked) {
			want = asked[matches]
		}
		if rev, err = unquoteAs(element, want); err != nil {
			return false
		}
		if matches >= 0 && want != "" && rev == want {
			matches++
			return true
		}
		if matches > 0 {
			found = slices.Clone(asked[:matches])
		}
		matches = -1
		if slices.Contains(asked, rev) {
			found = append(found, rev)
		}
		return true
	})
	if matches > 0 {
		found = asked[:matches:matches]
	}
	return found, err
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
