package couch

import (
	"context"
	"fmt"
	"hash/maphash"
	"io"
	"math/bits"
	"slices"

	"settee/pkg/jsontext"
)

// maxAncestors is the maximum number of possible ancestors kept for a document.
const maxAncestors = 100

// DocRevs names revisions of a document.
type DocRevs struct {
	ID   string
	Revs []string
}

// Missing has the revisions of a document that a database lacks.
type Missing struct {
	Revs []string // empty if nothing is missing
	// PossibleAncestors are revisions in the database with a lower generation than one of Revs, at most 100, for
	// [Database.OpenRevs]. Not every server sends them.
	PossibleAncestors []string
}

// RevsDiff returns, for each element of docs, which of its revisions the database lacks. An id may occur more than once.
// Then the first answer has all its missing revisions.
func (d *Database) RevsDiff(ctx context.Context, docs []DocRevs) ([]Missing, error) {
	if len(docs) == 0 {
		return nil, nil
	}
	if nameTwice(docs) {
		return d.gatherMissing(ctx, docs)
	}
	return d.revsDiff(ctx, docs)
}

// revsDiff is RevsDiff for distinct ids.
func (d *Database) revsDiff(ctx context.Context, docs []DocRevs) ([]Missing, error) {
	var missing []Missing
	err := d.post(ctx, "_revs_diff", bytesBody(revsDiffBody(docs)), func(p *response) (err error) {
		missing, err = readRevsDiff(p, docs)
		return err
	})
	return missing, err
}

// gatherMissing is RevsDiff for repeated ids. It merges them, because a JSON object has each name once.
func (d *Database) gatherMissing(ctx context.Context, docs []DocRevs) ([]Missing, error) {
	merged, places := gather(docs)
	missing, err := d.revsDiff(ctx, merged)
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

// nameTwice reports whether an id occurs more than once.
func nameTwice(docs []DocRevs) bool {
	// A hash table of indexes in docs plus 1, at most half full.
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

// gather merges the revisions of each id, in the order of first occurrence, and returns the indexes of the ids in docs.
// It does not change docs.
func gather(docs []DocRevs) (merged []DocRevs, places []int) {
	first := make(map[string]int, len(docs)) // index in merged
	known := map[int]map[string]struct{}{}   // revisions of repeated ids
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

// readRevsDiff reads {"id": {"missing": [...], "possible_ancestors": [...]}, ...}, and returns the answer for each
// document of the request, whose ids are distinct.
func readRevsDiff(r io.Reader, asked []DocRevs) ([]Missing, error) {
	j := newAnswerReader(&bounded{r: r, left: maxRevsDiff}, jsontext.Window)
	defer j.Free()
	missing := make([]Missing, len(asked))
	if err := j.Open('{'); err != nil {
		return nil, fmt.Errorf("reading the revisions' difference: %w", err)
	}
	ids := places{id: func(i int) string { return asked[i].ID }, n: len(asked)}
	for {
		more, err := j.More('}')
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

// readMissing reads the answer for one document. It ignores revisions that were not in the request.
func readMissing(j answerReader, asked []DocRevs, ids *places, missing []Missing) error {
	if at, ok := allMissing(j, asked, ids); ok {
		missing[at] = Missing{Revs: asked[at].Revs}
		return nil
	}
	id, err := j.name(maxRow, ids.text)
	if err != nil {
		return err
	}
	raw, err := j.Value(maxRow)
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

// allMissing reads the usual answer for a document with one leaf of which the server has nothing. For any other answer
// it reads nothing.
func allMissing(j answerReader, asked []DocRevs, ids *places) (at int, ok bool) {
	const before, between, after = `"`, `":{"missing":["`, `"]}`
	ahead := j.Ahead()
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
	return at, j.Passed(end+len(after), len(ahead))
}

// parseMissing parses the answer for the revisions in the request.
func parseMissing(raw []byte, asked []string) (Missing, error) {
	var m Missing
	if !isObject(raw) {
		return m, fmt.Errorf("%w: not an object", ErrMalformed)
	}
	for one := range jsontext.Members(raw) {
		var err error
		switch string(one.Key) {
		case "missing":
			m.Revs, err = parseAsked(raw[one.Value:one.End], asked)
		case "possible_ancestors":
			m.PossibleAncestors, err = parseStrings(raw[one.Value:one.End])
			// There may be many, and a URL has room for few.
			if len(m.PossibleAncestors) > maxAncestors {
				m.PossibleAncestors = slices.Clone(m.PossibleAncestors[:maxAncestors])
			}
		}
		if err != nil {
			return m, err
		}
	}
	return m, nil
}

// parseAsked reads an array of strings and returns those that are in the request, each once.
func parseAsked(raw []byte, asked []string) ([]string, error) {
	if !isArray(raw) {
		return nil, fmt.Errorf("%w: not an array", ErrMalformed)
	}
	found := asked[:0:0]
	matches := 0                   // number of strings so far in the order of the request
	var others map[string]struct{} // rest of the request, if the order differs
	for _, element := range jsontext.Elements(raw) {
		var want string
		if matches >= 0 && matches < len(asked) {
			want = asked[matches]
		}
		rev, err := unquoteAs(element, want)
		if err != nil {
			return nil, err
		}
		if matches >= 0 && want != "" && rev == want {
			matches++
			continue
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
	}
	if matches > 0 {
		found = asked[:matches:matches]
	}
	return found, nil
}

func setOf(list []string) map[string]struct{} {
	set := make(map[string]struct{}, len(list))
	for _, s := range list {
		set[s] = struct{}{}
	}
	return set
}

func parseStrings(raw []byte) ([]string, error) {
	list, ok := jsontext.Strings(raw)
	if !ok {
		return nil, fmt.Errorf("%w: %w where a list of strings should be", ErrMalformed, quoted(string(raw)))
	}
	return list, nil
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
