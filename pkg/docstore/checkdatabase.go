package docstore

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"settee/pkg/docstore/internal/revtree"
	"settee/pkg/kv"
	"settee/pkg/kv/check"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// databaseChecker checks one database.
type databaseChecker struct {
	*storeChecker
	*Database
	sums      sums
	uncounted bool // sums do not count all documents
	content   contentSum
	sumsOnly  bool
}

// sums are what the counters count.
type sums struct{ docs, deleted, bodies, attachments int64 }

func (d *databaseChecker) check(ctx context.Context) error {
	keys := &d.keys
	watch := kv.KeyRange{Begin: keys.watch, End: kv.KeyAfter(keys.watch)}
	config, count := keys.all.Sub(tagConfig), keys.all.Sub(tagCount)
	err := d.to.Rest(ctx, rows.Range(keys.all),
		rows.Range(config), rows.Range(keys.docs), rows.Range(keys.leaves), rows.Range(keys.bodies), rows.Range(keys.changes),
		rows.Range(keys.index), rows.Range(keys.local), rows.Range(count), watch, rows.Range(keys.blobs), rows.Range(keys.chunks))
	if err != nil {
		return err
	}
	changed, err := d.changed(ctx)
	if err != nil {
		return err
	}
	// What follows from leaves is written before the rest is compared with it.
	for _, walk := range []struct {
		rows  kv.KeyRange
		visit check.Visit
	}{
		{rows.Range(keys.docs), d.document}, {rows.Range(config), d.configuration}, {rows.Range(keys.leaves), d.leafRow},
		{rows.Range(keys.bodies), d.bodyRow}, {rows.Range(keys.changes), d.changeRow}, {rows.Range(keys.index), d.indexRow},
		{rows.Range(keys.local), d.localRow}, {rows.Range(count), d.countRow}, {watch, d.watchRow}, {rows.Range(keys.blobs), d.blobRow},
		{rows.Range(keys.chunks), func(p *check.Page, pair kv.KeyValue) (func() error, error) { return d.chunkRow(ctx, p, pair) }},
	} {
		if err := d.to.Walk(ctx, walk.rows, walk.visit); err != nil {
			return err
		}
	}
	if err := d.endContent(ctx); err != nil {
		return err
	}
	return d.counters(ctx, changed)
}

// changed returns a value that changes with every change of a document.
func (d *databaseChecker) changed(ctx context.Context) ([]byte, error) {
	return kv.TransactValue(ctx, d.to.DB, func(tx kv.Transaction) ([]byte, error) {
		return tx.Snapshot().Get(d.keys.watch).Await()
	})
}

// elements returns the elements of a key of space, which are n.
func elements(space tuple.Subspace, key []byte, n int) (tuple.Tuple, bool) {
	e, err := space.Unpack(key)
	return e, err == nil && len(e) == n
}

// document checks a document: its leaves are a tree, and changes, all and blobs agree with it.
func (d *databaseChecker) document(p *check.Page, pair kv.KeyValue) (func() error, error) {
	keys := &d.keys
	id, err := rows.LastString(keys.docs, pair.Key)
	if err != nil || !bytes.Equal(pair.Key, keys.docs.Pack(id)) {
		return unknown(p, pair)
	}
	sequence, err := parseHeader(pair.Value)
	if err != nil {
		return unreadable(p, pair, "the header of a document")
	}
	changeKey, indexKey := keys.changes.Pack(sequence.stamp), keys.index.Pack(id)
	reading, change, index, blobs := d.readTree(p, id), p.Get(changeKey), p.Get(indexKey), readAll(p, keys.blobs.Sub(id))
	return func() error {
		tree, err := reading.await()
		switch {
		case errors.Is(err, errCorrupt):
			p.Fault(keys.leaves.Sub(id).Bytes(), nil, "the leaves of the document cannot be read")
		case err != nil:
			return err
		case len(tree) == 0:
			p.Fault(pair.Key, nil, "a document without leaves")
		}
		if err != nil || len(tree) == 0 {
			p.After(func() error { d.uncounted = true; return nil })
			return nil
		}
		d.add(p, tree)
		if d.sumsOnly {
			return nil
		}
		if !isTree(tree) {
			p.Fault(pair.Key, nil, "the leaves of the document are not a tree")
		}
		if err := d.changeOf(p, changeKey, change, id, sequence, tree); err != nil {
			return err
		}
		if err := d.indexOf(p, indexKey, index, id, tree); err != nil {
			return err
		}
		return d.blobsOf(p, id, tree, blobs)
	}, nil
}

// isTree reports whether leaves can belong to one document.
func isTree(t leafTree) bool {
	for i, l := range t {
		for j, m := range t {
			if i != j && m.Contains(l.Rev()) {
				return false
			}
		}
	}
	return slices.IsSortedFunc(t, leaf.Compare)
}

// add adds a document to the sums.
func (d *databaseChecker) add(p *check.Page, tree leafTree) {
	var s sums
	if tree.Winner().Deleted {
		s.deleted++
	} else {
		s.docs++
	}
	for _, l := range tree {
		s.bodies += l.Value.size
	}
	for _, blob := range references(tree) {
		s.attachments += blob.StoredLength
	}
	p.After(func() error {
		d.sums.docs += s.docs
		d.sums.deleted += s.deleted
		d.sums.bodies += s.bodies
		d.sums.attachments += s.attachments
		return nil
	})
}

// changeOf checks a document's row in changes.
func (d *databaseChecker) changeOf(p *check.Page, key []byte, read kv.Future[[]byte], id string, sequence Sequence, tree leafTree) error {
	value, err := read.Await()
	if err != nil {
		return err
	}
	row, bad := d.parseChange(kv.KeyValue{Key: key, Value: value})
	winner := tree.Winner()
	same := bad == nil && row.Sequence == sequence && row.ID == id && row.Deleted == winner.Deleted && row.size == winner.Value.size && len(row.Revs) == len(tree)
	for i := 0; same && i < len(tree); i++ {
		same = row.Revs[i] == Rev(tree[len(tree)-1-i].Rev())
	}
	if !same {
		p.Wrong(key, packChange(id, sequence.number, row.time, tree), "the change of the document %s is missing, or does not have its leaves", quote(id))
	}
	return nil
}

// indexOf checks a document's row in all.
func (d *databaseChecker) indexOf(p *check.Page, key []byte, read kv.Future[[]byte], id string, tree leafTree) error {
	value, err := read.Await()
	if err != nil {
		return err
	}
	winner := tree.Winner()
	if winner.Deleted {
		if value != nil {
			p.Stray(key, "the deleted document %s is in the index", quote(id))
		}
		return nil
	}
	row, size, bad := d.parseIndex(kv.KeyValue{Key: key, Value: value})
	if bad != nil || row.Rev != Rev(winner.Rev()) || size != winner.Value.size {
		p.Wrong(key, packIndex(winner), "the document %s is missing in the index, or has another winner there", quote(id))
	}
	return nil
}

// referred is a content, and how many attachments of a document's leaves refer to it.
type referred struct {
	Attachment
	references int64
}

func references(tree leafTree) map[[16]byte]*referred {
	all := map[[16]byte]*referred{}
	for _, l := range tree {
		for _, a := range l.Value.attachments {
			if all[a.key] == nil {
				all[a.key] = &referred{Attachment: a}
			}
			all[a.key].references++
		}
	}
	return all
}

func (d *databaseChecker) configuration(p *check.Page, pair kv.KeyValue) (func() error, error) {
	switch {
	case bytes.Equal(pair.Key, d.keys.security):
		if !check.Object(pair.Value) {
			return unreadable(p, pair, "the security object")
		}
	case bytes.Equal(pair.Key, d.keys.revsLimit):
		if _, err := rows.ParseInt(pair.Value); err != nil {
			return unreadable(p, pair, "the revs_limit")
		}
	default:
		return unknown(p, pair)
	}
	return nil, nil
}

// revision is a key of a leaf's or a body's chunk.
type revision struct {
	id  string
	rev Rev
	n   int64
}

// parseRevision parses the elements of a key without alive.
func parseRevision(e tuple.Tuple) (r revision, ok bool) {
	var raw []byte
	var isHex bool
	ok = rows.As(e[0], &r.id) && rows.As(e[1], &r.rev.Pos) && rows.As(e[2], &raw) && rows.As(e[3], &isHex) && rows.As(e[4], &r.n) && r.n >= 0
	r.rev.ID = revtree.FromRaw(raw, isHex)
	return r, ok
}

// leafRow checks that a leaf belongs to a document, and has a body.
func (d *databaseChecker) leafRow(p *check.Page, pair kv.KeyValue) (func() error, error) {
	e, ok := elements(d.keys.leaves, pair.Key, 6)
	var alive bool
	if !ok || !rows.As(e[1], &alive) {
		return unknown(p, pair)
	}
	r, ok := parseRevision(append(tuple.Tuple{e[0]}, e[2:]...))
	if !ok {
		return unknown(p, pair)
	}
	if r.n > 0 {
		return p.Chunk(d.keys.leaf(r.id, r.rev, !alive), r.n, "a leaf"), nil
	}
	header, body := p.Get(d.keys.docs.Pack(r.id)), p.Get(d.keys.body(r.id, r.rev).Pack(0))
	return func() error {
		value, err := header.Await()
		if err != nil {
			return err
		}
		if value == nil {
			p.Fault(d.keys.docs.Pack(r.id), nil, "the document %s has leaves and no header", quote(r.id))
		}
		value, err = body.Await()
		if err == nil && value == nil {
			p.Fault(d.keys.body(r.id, r.rev).Pack(0), nil, "the leaf %s of the document %s has no body", r.rev, quote(r.id))
		}
		return err
	}, nil
}

// bodyRow checks a body, at its first chunk.
func (d *databaseChecker) bodyRow(p *check.Page, pair kv.KeyValue) (func() error, error) {
	e, ok := elements(d.keys.bodies, pair.Key, 5)
	if !ok {
		return unknown(p, pair)
	}
	r, ok := parseRevision(e)
	if !ok {
		return unknown(p, pair)
	}
	chunks := d.keys.body(r.id, r.rev)
	if r.n > 0 {
		return p.Chunk(chunks, r.n, "a body"), nil
	}
	var leaves [2]kv.Future[[]byte]
	for i, deleted := range []bool{false, true} {
		leaves[i] = p.Get(d.keys.leaf(r.id, r.rev, deleted).Pack(0))
	}
	return func() error {
		for i, deleted := range []bool{false, true} {
			value, err := leaves[i].Await()
			if err != nil {
				return err
			}
			if value != nil {
				return d.body(p, pair, r, deleted, chunks)
			}
		}
		p.Fault(pair.Key, nil, "a body of %s of the document %s, which is not a leaf", r.rev, quote(r.id))
		return nil
	}, nil
}

func (d *databaseChecker) body(p *check.Page, pair kv.KeyValue, r revision, deleted bool, chunks tuple.Subspace) error {
	space := d.keys.leaf(r.id, r.rev, deleted)
	value, err := rows.JoinChunks(readAll(p, space))
	if err != nil {
		return err
	}
	key, err := d.keys.leaves.Sub(r.id).Unpack(space.Pack(0))
	if err != nil {
		return err
	}
	l, err := parseLeaf(key, value)
	if err != nil {
		return nil // reported with the document
	}
	stored, err := rows.JoinChunks(readAll(p, chunks))
	if err != nil {
		return err
	}
	body, err := d.openBody(stored, place{r.id, r.rev})
	switch {
	case kv.UnknownKey(err):
		p.Sealed()
	case err != nil:
		p.Fault(pair.Key, nil, "the body of %s of the document %s cannot be decrypted", r.rev, quote(r.id))
	case int64(len(body)) != l.Value.size:
		p.Fault(pair.Key, nil, "the body of %s of the document %s has %d bytes, and its leaf says %d", r.rev, quote(r.id), len(body), l.Value.size)
	case !check.Object(body):
		p.Fault(pair.Key, nil, "the body of %s of the document %s is not a JSON object", r.rev, quote(r.id))
	}
	return nil
}

// changeRow checks that a change is the one in the header of its document.
func (d *databaseChecker) changeRow(p *check.Page, pair kv.KeyValue) (func() error, error) {
	e, ok := elements(d.keys.changes, pair.Key, 1)
	var stamp tuple.Versionstamp
	if !ok || !rows.As(e[0], &stamp) {
		return unknown(p, pair)
	}
	row, err := d.parseChange(pair)
	if err != nil {
		p.Stray(pair.Key, "a change: the value is not one that settee writes")
		return nil, nil
	}
	header := p.Get(d.keys.docs.Pack(row.ID))
	return func() error {
		value, err := header.Await()
		if err != nil {
			return err
		}
		at, bad := parseHeader(value)
		if value == nil || bad == nil && at.stamp != stamp {
			p.Stray(pair.Key, "a change of the document %s that is not its latest one", quote(row.ID))
		}
		return nil
	}, nil
}

// indexRow checks that a row of all belongs to a document.
func (d *databaseChecker) indexRow(p *check.Page, pair kv.KeyValue) (func() error, error) {
	e, ok := elements(d.keys.index, pair.Key, 1)
	var id string
	if !ok || !rows.As(e[0], &id) {
		return unknown(p, pair)
	}
	header := p.Get(d.keys.docs.Pack(id))
	return func() error {
		value, err := header.Await()
		if err == nil && value == nil {
			p.Stray(pair.Key, "the index has the document %s, which does not exist", quote(id))
		}
		return err
	}, nil
}

// localRow checks a local document, at its first chunk.
func (d *databaseChecker) localRow(p *check.Page, pair kv.KeyValue) (func() error, error) {
	e, ok := elements(d.keys.local, pair.Key, 2)
	var id string
	var n int64
	if !ok || !rows.As(e[0], &id) || !rows.As(e[1], &n) || n < 0 {
		return unknown(p, pair)
	}
	chunks := d.keys.local.Sub(id)
	if n > 0 {
		return p.Chunk(chunks, n, "a local document"), nil
	}
	return func() error {
		value, err := rows.JoinChunks(readAll(p, chunks))
		if err != nil {
			return err
		}
		_, stored, err := splitLocal(id, value)
		var body []byte
		if err == nil {
			body, err = d.openBody(stored, place{id: id})
		}
		switch {
		case kv.UnknownKey(err):
			p.Sealed()
		case err != nil:
			p.Fault(pair.Key, nil, "the local document %s cannot be read", quote(id))
		case !check.Object(body):
			p.Fault(pair.Key, nil, "the local document %s is not a JSON object", quote(id))
		}
		return nil
	}, nil
}

// countRow checks the form of a counter. Its value is compared at the end.
func (d *databaseChecker) countRow(p *check.Page, pair kv.KeyValue) (func() error, error) {
	for _, key := range [][]byte{d.keys.docCount, d.keys.delCount, d.keys.bodyBytes, d.keys.attachmentBytes, d.keys.numbered} {
		if bytes.Equal(pair.Key, key) {
			return nil, nil
		}
	}
	return unknown(p, pair)
}

// blobRow checks that a content belongs to a document, and has its last chunk.
func (d *databaseChecker) blobRow(p *check.Page, pair kv.KeyValue) (func() error, error) {
	e, ok := elements(d.keys.blobs, pair.Key, 2)
	var id string
	var key []byte
	if !ok || !rows.As(e[0], &id) || !rows.As(e[1], &key) || len(key) != 16 {
		return unknown(p, pair)
	}
	length, _, _, ok := parseBlob(pair.Value)
	if !ok {
		return unreadable(p, pair, "a content")
	}
	header := p.Get(d.keys.docs.Pack(id))
	last := d.keys.chunks.Pack(id, key, max(length-1, 0)/rows.ChunkSize)
	chunk := p.Get(last)
	return func() error {
		value, err := header.Await()
		if err != nil {
			return err
		}
		if value == nil {
			p.Fault(pair.Key, nil, "a content of the document %s, which does not exist", quote(id))
		}
		value, err = chunk.Await()
		if err == nil && length > 0 && int64(len(value)) != (length-1)%rows.ChunkSize+1 {
			p.Fault(last, nil, "the last chunk of a content of the document %s is missing or truncated", quote(id))
		}
		return err
	}, nil
}

func (d *databaseChecker) watchRow(p *check.Page, pair kv.KeyValue) (func() error, error) {
	if _, err := rows.ParseInt(pair.Value); err != nil {
		p.Wrong(pair.Key, rows.Int(0), "the key that feeds watch: the value is not one that settee writes")
	}
	return nil, nil
}

// countTries is the number of times that the documents of a database are counted until none changes meanwhile.
const countTries = 3

// counters compares the counters with the documents, which were counted since changed was read.
func (d *databaseChecker) counters(ctx context.Context, changed []byte) error {
	for try := 1; ; try++ {
		settled := false
		if err := d.to.Do(ctx, func(p *check.Page) (err error) {
			settled, err = d.compare(p, changed, try == countTries)
			return err
		}); err != nil || settled {
			return err
		}
		var err error
		if changed, err = d.changed(ctx); err != nil {
			return err
		}
		again := databaseChecker{storeChecker: d.storeChecker, Database: d.Database, sumsOnly: true}
		quiet := check.Checker{DB: d.to.DB}
		if err := quiet.Walk(ctx, rows.Range(d.keys.docs), again.document); err != nil {
			return err
		}
		d.sums, d.uncounted = again.sums, again.uncounted
	}
}

// compare compares the counters, and reports whether that has settled the matter. If it is the last try, it has.
func (d *databaseChecker) compare(p *check.Page, changed []byte, last bool) (bool, error) {
	watch, row := p.Get(d.keys.watch), p.Get(d.keys.row)
	counters := []struct {
		name string
		key  []byte
		want int64
		read kv.Future[[]byte]
	}{
		{"documents", d.keys.docCount, d.sums.docs, nil},
		{"deleted documents", d.keys.delCount, d.sums.deleted, nil},
		{"bytes of bodies", d.keys.bodyBytes, d.sums.bodies, nil},
		{"bytes of attachments", d.keys.attachmentBytes, d.sums.attachments, nil},
	}
	for i := range counters {
		counters[i].read = p.Get(counters[i].key)
	}
	value, err := row.Await()
	if err != nil {
		return false, err
	}
	if now, bad := awaitDatabaseRow(kv.Known(value)); bad != nil || now.instance != d.Database.instance {
		return true, nil // it was deleted
	}
	value, err = watch.Await()
	switch {
	case err != nil:
		return false, err
	case d.uncounted || last && !bytes.Equal(value, changed):
		p.Unsettled()
		return true, nil
	case !bytes.Equal(value, changed):
		return false, nil
	}
	for _, c := range counters {
		value, err := c.read.Await()
		if err != nil {
			return false, err
		}
		n, bad := int64(0), error(nil)
		if value != nil {
			n, bad = rows.ParseInt(value)
		}
		if bad != nil || n != c.want {
			p.Wrong(c.key, rows.Int(c.want), "%d %s are counted, and there are %d", n, c.name, c.want)
		}
	}
	return true, nil
}
