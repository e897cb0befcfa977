package couch

import (
	"context"
	"fmt"
	"hash/maphash"
	"io"
	"math/bits"
	"slices"
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
	list, err := d.MissingRevs(ctx, docs)
	if err != nil {
		return nil, err
	}
	missing := map[string]Missing{}
	for i, m := range list {
		if len(m.Revs) > 0 {
			missing[docs[i].ID] = m
		}
	}
	return missing, nil
}

// MissingRevs is RevsDiff with the answers in the order of docs, and one without Revs where nothing is missing.
// What is missing of an id that is named more than once stands at the first place.
func (d *Database) MissingRevs(ctx context.Context, docs []DocRevs) ([]Missing, error) {
	if len(docs) == 0 {
		return nil, nil
	}
	if nameTwice(docs) {
		return d.gatherMissing(ctx, docs)
	}
	return d.missingRevs(ctx, docs)
}

// missingRevs is MissingRevs for ids of which each is named once.
func (d *Database) missingRevs(ctx context.Context, docs []DocRevs) ([]Missing, error) {
	var missing []Missing
	err := d.post(ctx, "_revs_diff", bytesBody(revsDiffBody(docs)), func(p *response) (err error) {
		missing, err = readRevsDiff(p, docs)
		return err
	})
	return missing, err
}

// gatherMissing is MissingRevs for ids that are named more than once: a JSON object has each once.
func (d *Database) gatherMissing(ctx context.Context, docs []DocRevs) ([]Missing, error) {
	merged, places := gather(docs)
	missing, err := d.missingRevs(ctx, merged)
	if err != nil {
		return nil, err
	}
	all := make([]Missing, len(docs))
	for i, place := range places {
		all[place] = missing[i]
	}
	return all, nil
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

var idSeed = maphash.MakeSeed()

// nameTwice reports whether an id is named more than once.
func nameTwice(docs []DocRevs) bool {
	// A table of places in docs, from 1 on, by the hashes of their ids: half of it is free.
	table := make([]uint32, 1<<bits.Len(uint(2*len(docs))))
	mask := uint64(len(table) - 1)
	for i := range docs {
		at := maphash.String(idSeed, docs[i].ID) & mask
		for ; table[at] != 0; at = (at + 1) & mask {
			if docs[table[at]-1].ID == docs[i].ID {
				return true
			}
		}
		table[at] = uint32(i + 1)
	}
	return false
}

// gather merges the revisions that are named for an id, in the order of its first mention, and returns the
// places of these in docs. It leaves docs alone.
func gather(docs []DocRevs) (merged []DocRevs, places []int) {
	first := make(map[string]int, len(docs)) // in merged
	known := map[int]map[string]struct{}{}   // the revisions of those that are named again
	for i, doc := range docs {
		at, twice := first[doc.ID]
		if !twice {
			first[doc.ID] = len(merged)
			merged = append(merged, DocRevs{ID: doc.ID, Revs: slices.Clone(doc.Revs)})
			places = append(places, i)
			continue
		}
		if known[at] == nil {
			known[at] = setOf(merged[at].Revs)
		}
		for _, rev := range doc.Revs {
			if _, is := known[at][rev]; !is {
				known[at][rev] = struct{}{}
				merged[at].Revs = append(merged[at].Revs, rev)
			}
		}
	}
	return merged, places
}

// readRevsDiff reads {"id": {"missing": [...], "possible_ancestors": [...]}, ...}, and returns what it says of
// each document that was asked for. No id is asked for twice.
func readRevsDiff(r io.Reader, asked []DocRevs) ([]Missing, error) {
	j := newJSONReader(&bounded{r: r, left: maxRevsDiff}, bulkWindow)
	defer j.free()
	missing := make([]Missing, len(asked))
	if err := j.open('{'); err != nil {
		return nil, fmt.Errorf("reading the revisions' difference: %w", err)
	}
	ids := places{id: func(i int) string { return asked[i].ID }, n: len(asked)}
	for {
		more, err := j.more('}')
		if err == nil && !more {
			return missing, nil
		}
		if err == nil {
			err = readMissing(j, asked, &ids, missing)
		}
		if err != nil {
			return nil, fmt.Errorf("reading the revisions' difference: %w", err)
		}
	}
}

// readMissing reads what is missing of one document. Only what was asked for is answered: a server that adds
// to it is not followed.
func readMissing(j *jsonReader, asked []DocRevs, ids *places, missing []Missing) error {
	if at, ok := allMissing(j, asked, ids); ok {
		missing[at] = Missing{Revs: asked[at].Revs}
		return nil
	}
	id, err := j.name(ids.text)
	if err != nil {
		return err
	}
	raw, err := j.value(maxRow)
	if err != nil {
		return err
	}
	var revs []string
	at, is := ids.find([]byte(id))
	if is {
		revs = asked[at].Revs
	}
	m, err := parseMissing(raw, revs)
	if len(m.Revs) > 0 {
		missing[at] = m
	}
	return err
}

// allMissing reads what most servers say of a document with one leaf that they have nothing of, in the order
// of the question. If it is anything else it reads nothing.
func allMissing(j *jsonReader, asked []DocRevs, ids *places) (at int, ok bool) {
	const before, between, after = `"`, `":{"missing":["`, `"]}`
	ahead := j.ahead()
	id, end, ok := textAfter(ahead, 0, before)
	if !ok {
		return 0, false
	}
	rev, end, ok := textAfter(ahead, end, between)
	if !ok || !follows(ahead, end, after) {
		return 0, false
	}
	at, ok = ids.find(id)
	if !ok || len(asked[at].Revs) != 1 || asked[at].Revs[0] != string(rev) {
		return 0, false
	}
	return at, j.passed(end+len(after), len(ahead))
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

// parseAsked reads an array of strings and returns those that were asked for, each once.
func parseAsked(raw []byte, asked []string) ([]string, error) {
	if !isArray(raw) {
		return nil, fmt.Errorf("%w: not an array", ErrMalformed)
	}
	found := asked[:0:0]
	matches := 0                   // all so far were asked for in this order
	var others map[string]struct{} // what else was asked for, if they are not
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
		if matches >= 0 {
			found = slices.Clone(asked[:matches])
			others = setOf(asked[matches:])
			matches = -1
		}
		if _, is := others[rev]; is {
			delete(others, rev)
			found = append(found, rev)
		}
		return true
	})
	if matches > 0 {
		found = asked[:matches:matches]
	}
	return found, err
}

func setOf(list []string) map[string]struct{} {
	set := make(map[string]struct{}, len(list))
	for _, s := range list {
		set[s] = struct{}{}
	}
	return set
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
