package docstore

import (
	"context"
	"crypto/md5"
	"hash"

	"settee/pkg/kv"
	"settee/pkg/kv/check"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// blobsOf checks the contents of a document.
func (d *databaseChecker) blobsOf(p *check.Page, id string, tree leafTree, blobs kv.RangeResult) error {
	want := references(tree)
	for pair, err := range blobs.All() {
		if err != nil {
			return err
		}
		e, ok := elements(d.keys.blobs, pair.Key, 2)
		var key []byte
		if !ok || !rows.As(e[1], &key) || len(key) != 16 {
			continue // reported with blobs
		}
		r := want[[16]byte(key)]
		if r == nil {
			p.Fault(pair.Key, nil, "a content to which no attachment refers")
			continue
		}
		delete(want, [16]byte(key))
		length, digest, n, ok := parseBlob(pair.Value)
		if !ok || length != r.StoredLength || digest != r.MD5 || n != r.references {
			p.Wrong(pair.Key, r.pack(), "a content does not agree with the attachments that refer to it")
		}
	}
	for key, r := range want {
		p.Wrong(d.keys.blobs.Pack(id, key[:]), r.pack(), "the content of an attachment is missing")
	}
	return nil
}

func (r *referred) pack() []byte { return tuple.Tuple{r.StoredLength, r.MD5[:], r.references}.Pack() }

func parseBlob(value []byte) (length int64, digest [16]byte, references int64, ok bool) {
	t, err := tuple.Unpack(value)
	var raw []byte
	if err != nil || len(t) != 3 || !rows.As(t[0], &length) || !rows.As(t[1], &raw) || !rows.As(t[2], &references) || len(raw) != len(digest) {
		return 0, digest, 0, false
	}
	return length, [16]byte(raw), references, true
}

// contentSum is the sum of the chunks of one content.
type contentSum struct {
	place  string // the prefix of the chunks; "" before the first
	blob   kv.KeyValue
	next   int64 // the number of the next chunk
	length int64
	digest hash.Hash
	holes  bool
}

// chunkRow adds a chunk to the sum of its content, which is compared with its digest after its last one.
func (d *databaseChecker) chunkRow(ctx context.Context, p *check.Page, pair kv.KeyValue) (func() error, error) {
	e, ok := elements(d.keys.chunks, pair.Key, 3)
	var id string
	var key []byte
	var n int64
	if !ok || !rows.As(e[0], &id) || !rows.As(e[1], &key) || !rows.As(e[2], &n) || len(key) != 16 {
		return unknown(p, pair)
	}
	place, blob := string(d.keys.chunks.Sub(id, key).Bytes()), d.keys.blobs.Pack(id, key)
	content := p.Get(blob)
	return func() error {
		value, err := content.Await()
		if err != nil {
			return err
		}
		if value == nil {
			there, err := d.pending(p, place)
			if err == nil && !there {
				p.Fault(pair.Key, nil, "a chunk of a content of the document %s to which nothing refers", quote(id))
			}
			return err
		}
		p.After(func() error { return d.addChunk(ctx, place, kv.KeyValue{Key: blob, Value: value}, n, pair.Value) })
		return nil
	}, nil
}

// pending reports whether an upload has the chunks in place. It may have begun since the uploads were read.
func (d *databaseChecker) pending(p *check.Page, place string) (bool, error) {
	if d.uploads[place] {
		return true, nil
	}
	for pair, err := range readAll(p, d.Database.store.keys.uploads).All() {
		if err != nil {
			return false, err
		}
		if other, _ := d.uploadOf(pair.Key); other == place {
			return true, nil
		}
	}
	return false, nil
}

func (d *databaseChecker) addChunk(ctx context.Context, place string, blob kv.KeyValue, n int64, chunk []byte) error {
	c := &d.content
	if c.place != place {
		if err := d.endContent(ctx); err != nil {
			return err
		}
		*c = contentSum{place: place, blob: blob, digest: md5.New()}
	}
	c.holes = c.holes || n != c.next || c.length != n*rows.ChunkSize
	c.next++
	c.length += int64(len(chunk))
	_, _ = c.digest.Write(chunk) // never fails (hash.Hash)
	return nil
}

// endContent compares a content of which all chunks were read.
func (d *databaseChecker) endContent(ctx context.Context) error {
	c := d.content
	d.content = contentSum{}
	length, digest, _, ok := parseBlob(c.blob.Value)
	if c.place == "" || !ok || !c.holes && c.length == length && [16]byte(c.digest.Sum(nil)) == digest {
		return nil
	}
	return d.to.Do(ctx, func(p *check.Page) error {
		value, err := p.Get(c.blob.Key).Await()
		if err == nil && value != nil { // it was not removed meanwhile
			p.Fault(c.blob.Key, nil, "a content is not what its digest says: a chunk is missing, truncated or changed")
		}
		return err
	})
}
