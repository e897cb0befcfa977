package couchtest

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"testing"
)

// Population selects the documents that Populate writes. The same Population gives the same documents, byte for byte.
type Population struct {
	Seed uint64
	// Docs is the number of documents. The first ones are Conflicted, the next Deleted, and the next have attachments,
	// one document for each element of Attachments. The rest are plain.
	Docs       int
	Conflicted int // documents with two or three leaves, one of which may be deleted
	Deleted    int // documents with a deleted winner
	// Attachments has the sizes in bytes of each document's attachments.
	Attachments [][]int
}

// Sizes returns the attachments of n documents, one to three for each, of 0 to most bytes. Most are small, and one has
// exactly most bytes.
func Sizes(seed uint64, n, most int) [][]int {
	random := rand.New(newSource(seed, 1))
	sizes := make([][]int, n)
	for i := range sizes {
		for range 1 + random.IntN(3) {
			size := most
			for range 2 + random.IntN(7) {
				size = random.IntN(size + 1)
			}
			sizes[i] = append(sizes[i], size)
		}
	}
	if n > 0 {
		sizes[0][0] = most
	}
	return sizes
}

// portionDocs and portionBytes bound one _bulk_docs of Populate.
const (
	portionDocs  = 1000
	portionBytes = 8 << 20
)

// Populate writes documents to the database at dbURL, which may contain credentials. It writes them like replication
// (new_edits=false), so that their revisions are p's.
func Populate(t testing.TB, dbURL string, p Population) {
	t.Helper()
	if p.Conflicted+p.Deleted+len(p.Attachments) > p.Docs {
		t.Fatalf("populating %s: %d documents are too few", redacted(dbURL), p.Docs)
	}
	source := newSource(p.Seed, 0)
	g := generator{random: rand.New(source), content: source}
	var portion [][]byte
	size := 0
	flush := func() {
		if len(portion) > 0 {
			bulkDocs(t, dbURL, portion)
			portion, size = nil, 0
		}
	}
	for n := range p.Docs {
		for _, body := range g.document(p, n) {
			if size+len(body) > portionBytes || len(portion) == portionDocs {
				flush()
			}
			portion = append(portion, body)
			size += len(body)
		}
	}
	flush()
}

// generator makes documents.
type generator struct {
	random  *rand.Rand
	content *rand.ChaCha8 // the source of random
}

// newSource returns one of several random sources for a seed.
func newSource(seed uint64, which byte) *rand.ChaCha8 {
	key := [32]byte{which}
	binary.BigEndian.PutUint64(key[1:], seed)
	return rand.NewChaCha8(key)
}

// document returns all leaves of document number n.
func (g generator) document(p Population, n int) [][]byte {
	id := fmt.Sprintf("doc-%06d", n)
	conflicted, deleted := p.Conflicted, p.Conflicted+p.Deleted
	switch attached := n - deleted; {
	case n < conflicted:
		return g.leaves(id)
	case n < deleted:
		return [][]byte{g.leaf(id, g.history(2), true, nil)}
	case attached < len(p.Attachments):
		return [][]byte{g.leaf(id, g.history(1), false, p.Attachments[attached])}
	}
	return [][]byte{g.leaf(id, g.history(1+g.random.IntN(3)), false, nil)}
}

// leaves returns a document with two or three leaves that share their first revision.
func (g generator) leaves(id string) [][]byte {
	root := g.history(1)
	leaves := make([][]byte, 2+g.random.IntN(2))
	for i := range leaves {
		history := slices.Concat(g.history(1+g.random.IntN(3)), root)
		leaves[i] = g.leaf(id, history, i > 0 && g.random.IntN(3) == 0, nil)
	}
	return leaves
}

// history returns the hashes of revisions, newest first.
func (g generator) history(n int) []string {
	hashes := make([]string, n)
	for i := range hashes {
		hashes[i] = hex.EncodeToString(g.bytes(16))
	}
	return hashes
}

func (g generator) leaf(id string, history []string, deleted bool, sizes []int) []byte {
	doc := map[string]any{
		"_id": id, "_rev": fmt.Sprintf("%d-%s", len(history), history[0]),
		"_revisions": map[string]any{"start": len(history), "ids": history},
		"number":     g.random.IntN(1 << 30), "text": hex.EncodeToString(g.bytes(g.random.IntN(100))),
		"nested": map[string]any{"list": []any{true, nil, "é😀", 1.5, g.random.IntN(10)}},
	}
	if deleted {
		doc["_deleted"] = true
	}
	if len(sizes) > 0 {
		attachments := map[string]any{}
		for i, size := range sizes {
			attachments[fmt.Sprintf("file %d.bin", i)] = map[string]any{
				"content_type": "application/octet-stream", "revpos": len(history),
				"data": base64.StdEncoding.EncodeToString(g.bytes(size)),
			}
		}
		doc["_attachments"] = attachments
	}
	body, err := json.Marshal(doc)
	if err != nil {
		panic(err) // all values can be encoded
	}
	return body
}

func (g generator) bytes(n int) []byte {
	b := make([]byte, n)
	_, _ = g.content.Read(b) // never fails
	return b
}

// bulkDocs writes revisions, all of which the server must accept.
func bulkDocs(t testing.TB, dbURL string, docs [][]byte) {
	t.Helper()
	var refused []struct{ ID, Error, Reason string }
	body := slices.Concat([]byte(`{"new_edits":false,"docs":[`), bytes.Join(docs, []byte(",")), []byte("]}"))
	exchange(t, http.MethodPost, dbURL+"/_bulk_docs", body, &refused)
	for _, r := range refused {
		if r.Error != "" {
			t.Fatalf("writing %q to %s: %s: %s", r.ID, redacted(dbURL), r.Error, r.Reason)
		}
	}
}

// exchange makes a request with a JSON body (nil for none) and decodes a successful answer into answer. Numbers in
// values of type any keep their spelling.
func exchange(t testing.TB, method, target string, body []byte, answer any) {
	t.Helper()
	status, said, err := roundTrip(t.Context(), method, target, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, redacted(target), err)
	}
	if status >= 300 {
		t.Fatalf("%s %s: %d: %.1000s", method, redacted(target), status, said)
	}
	decoder := json.NewDecoder(bytes.NewReader(said))
	decoder.UseNumber()
	if err := decoder.Decode(answer); err != nil {
		t.Fatalf("%s %s: %v", method, redacted(target), err)
	}
}

// redacted returns a URL without its password.
func redacted(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "(not a URL)"
	}
	return u.Redacted()
}
