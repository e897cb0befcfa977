package docstore_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
)

// noise returns n random bytes.
func noise(n int) []byte {
	content := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(n)}).Read(content)
	return content
}

func digest(content []byte) string {
	sum := md5.Sum(content)
	return "md5-" + base64.StdEncoding.EncodeToString(sum[:])
}

// attach writes a document with attachments. The values are uploads, or nil for stubs.
func (b *bundle) attach(t *testing.T, id, rev string, attachments map[string]*docstore.Upload) string {
	t.Helper()
	edit := docstore.Edit{ID: id, Rev: parse(t, rev)}
	for _, name := range slices.Sorted(maps.Keys(attachments)) {
		edit.Attachments = append(edit.Attachments, docstore.EditAttachment{Name: name, Upload: attachments[name], Type: "text/" + name})
	}
	got, err := b.db.Put(t.Context(), edit)
	require.NoError(t, err)
	return got.String()
}

func TestAttachments(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		const window = docstore.ChunkSize * docstore.ChunksAtOnce
		rev := ""
		for _, size := range []int{
			0, 1, docstore.ChunkSize - 1, docstore.ChunkSize, docstore.ChunkSize + 1,
			docstore.ChunkSize + window - 1, docstore.ChunkSize + window, docstore.ChunkSize + window + 1, 3 * window,
		} {
			content := noise(size)
			upload, err := b.db.Upload(t.Context(), "d", iotest.HalfReader(bytes.NewReader(content)),
				docstore.UploadOptions{Digest: digest(content), MaxLength: int64(size)})
			require.NoError(t, err)
			assert.EqualValues(t, size, upload.Length())
			assert.Equal(t, digest(content), upload.Digest())
			b.check(t)
			rev = b.attach(t, "d", rev, map[string]*docstore.Upload{"a": upload})
			doc := b.get(t, "d", docstore.GetOptions{})
			a := doc.Attachments[0]
			assert.Equal(t, "a", a.Name)
			assert.Equal(t, "text/a", a.Type)
			assert.Equal(t, digest(content), a.Digest())
			assert.Equal(t, doc.Rev.Pos, a.RevPos)
			assert.EqualValues(t, size, a.Length)
			assert.EqualValues(t, size, a.StoredLength)
			require.NoError(t, iotest.TestReader(b.db.ReadAttachment(t.Context(), "d", a), content))
			assert.EqualValues(t, size, b.info(t).AttachmentBytes)
			b.check(t)
		}
	})
}

func TestEncodedAttachment(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		upload, err := b.db.Upload(t.Context(), "d", strings.NewReader("zipped"), docstore.UploadOptions{Encoding: "gzip", DecodedLength: new(int64(99))})
		require.NoError(t, err)
		results := b.write(t, []docstore.Edit{{
			ID: "d", Pos: 4, Path: []string{"x"},
			Attachments: []docstore.EditAttachment{{Name: "a", Upload: upload, RevPos: new(int64(2))}},
		}}, docstore.WriteOptions{Replicated: true})
		require.NoError(t, results[0].Err)
		a := b.get(t, "d", docstore.GetOptions{}).Attachments[0]
		assert.Equal(t, "gzip", a.Encoding)
		assert.EqualValues(t, 99, a.Length)
		assert.EqualValues(t, 6, a.StoredLength)
		assert.EqualValues(t, 2, a.RevPos)
	})
}

// TestLengthsOfEncoded: the length of an encoded content may be 0, or not known. Then it is the stored length, as in CouchDB.
func TestLengthsOfEncoded(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		for name, test := range map[string]struct {
			stored  int // bytes
			decoded *int64
			length  int64
			known   bool
		}{
			"known":                        {30, new(int64(99)), 99, true},
			"not said":                     {30, nil, 30, false},
			"the stored length":            {30, new(int64(30)), 30, false},
			"empty, with a header":         {30, new(int64(0)), 0, true},
			"empty":                        {20, new(int64(0)), 0, true},
			"empty, and not said":          {20, nil, 20, false},
			"empty, and the stored length": {20, new(int64(20)), 20, false},
		} {
			opts := docstore.UploadOptions{Encoding: "gzip", DecodedLength: test.decoded}
			upload, err := b.db.Upload(t.Context(), name, bytes.NewReader(noise(test.stored)), opts)
			require.NoError(t, err)
			b.attach(t, name, "", map[string]*docstore.Upload{"a": upload})
			a := b.get(t, name, docstore.GetOptions{}).Attachments[0]
			require.Equal(t, test.length, a.Length, name)
			require.Equal(t, test.known, a.HasLength(), name)
		}
	})
}

// TestSharedAttachments: a content is kept as long as a leaf refers to it.
func TestSharedAttachments(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		content, second := noise(2*docstore.ChunkSize), noise(7)
		rev := b.attach(t, "d", "", map[string]*docstore.Upload{"a": b.upload(t, "d", content), "b": b.upload(t, "d", second)})
		b.attach(t, "d", rev, map[string]*docstore.Upload{"a": nil, "b": nil})
		doc := b.get(t, "d", docstore.GetOptions{})
		assert.EqualValues(t, 1, doc.Attachments[0].RevPos)
		assert.EqualValues(t, len(content)+len(second), b.info(t).AttachmentBytes)
		first := doc.Attachments[0]

		// Branches by other writers refer to the same content, by its digest.
		stub := []docstore.EditAttachment{{Name: "a", Digest: digest(content)}}
		parent := doc.Path[1]
		results := b.write(t, []docstore.Edit{
			{ID: "d", Pos: 2, Path: []string{"0", parent}, Attachments: stub},
			{ID: "d", Pos: 2, Path: []string{"1", parent}, Attachments: []docstore.EditAttachment{{Name: "a"}}},
			{ID: "d", Pos: 2, Path: []string{"2", parent}, Attachments: []docstore.EditAttachment{{Name: "a", Digest: digest(second)}}},
			{ID: "d", Pos: 3, Path: []string{"3", doc.Rev.ID}, Attachments: stub},
		}, docstore.WriteOptions{Replicated: true})
		require.NoError(t, results[0].Err)
		require.ErrorIs(t, results[1].Err, docstore.ErrMissingStub)
		require.ErrorIs(t, results[2].Err, docstore.ErrMissingStub)
		require.NoError(t, results[3].Err)
		b.check(t)
		assert.EqualValues(t, len(content), b.info(t).AttachmentBytes) // "b" was dropped

		b.remove(t, "d", "2-0")
		b.check(t)
		doc = b.get(t, "d", docstore.GetOptions{})
		assert.Equal(t, "3-3", doc.Rev.String())
		assert.Equal(t, content, b.content(t, doc, "a"))
		reader := b.db.ReadAttachment(t.Context(), "d", first)
		b.remove(t, "d", "3-3")
		assert.Zero(t, b.info(t).AttachmentBytes)
		_, err := reader.Read(make([]byte, 1))
		require.ErrorIs(t, err, docstore.ErrNotFound)

		// An edit that another edit of the same call replaces leaves the content that the latter keeps.
		one, two := b.upload(t, "batch", second), b.upload(t, "batch", content)
		results = b.write(t, []docstore.Edit{
			{ID: "batch", Pos: 1, Path: []string{"a"}, Attachments: []docstore.EditAttachment{{Name: "a", Upload: one}, {Name: "b", Upload: two}}},
			{ID: "batch", Pos: 2, Path: []string{"b", "a"}, Attachments: []docstore.EditAttachment{{Name: "a", Digest: digest(second)}}},
			{ID: "batch", Pos: 1, Path: []string{"c"}, Attachments: []docstore.EditAttachment{{Name: "a", Upload: one}}},
		}, docstore.WriteOptions{Replicated: true})
		require.NoError(t, results[0].Err)
		require.NoError(t, results[1].Err)
		require.ErrorIs(t, results[2].Err, docstore.ErrMissingStub)
		b.check(t)
		assert.EqualValues(t, len(second), b.info(t).AttachmentBytes)
		doc = b.get(t, "batch", docstore.GetOptions{})
		assert.Equal(t, second, b.content(t, doc, "a"))
		b.remove(t, "batch", doc.Rev.String())

		// Two names for one content are two references.
		upload := b.upload(t, "two", second)
		rev = b.attach(t, "two", "", map[string]*docstore.Upload{"a": upload, "b": upload})
		b.check(t)
		rev = b.attach(t, "two", rev, map[string]*docstore.Upload{"b": nil})
		assert.Equal(t, second, b.content(t, b.get(t, "two", docstore.GetOptions{}), "b"))
		_, err = b.db.Put(t.Context(), docstore.Edit{
			ID: "two", Rev: parse(t, rev), Attachments: []docstore.EditAttachment{{Name: "b", RevPos: new(int64(2))}},
		})
		var missing *docstore.MissingStubError
		require.ErrorAs(t, err, &missing)
		require.Equal(t, "b", missing.Name)
		require.ErrorIs(t, err, docstore.ErrMissingStub)
	})
}

// TestStubs: a stub stands for an attachment only if all that it says is true of it.
func TestStubs(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		content, zipped := []byte("content"), noise(30)
		number := func(n int64) *int64 { return &n }
		right, wrong := digest(content), digest([]byte("other"))
		tests := []struct {
			said docstore.EditAttachment
			ok   bool
		}{
			{docstore.EditAttachment{Name: "a"}, true},
			{docstore.EditAttachment{Name: "a", Digest: right}, true},
			{docstore.EditAttachment{Name: "a", Digest: wrong}, false},
			{docstore.EditAttachment{Name: "a", Digest: wrong, RevPos: number(1)}, false},
			{docstore.EditAttachment{Name: "a", Digest: wrong, RevPos: number(0)}, false},
			{docstore.EditAttachment{Name: "a", Digest: right, RevPos: number(1), Length: number(7)}, true},
			{docstore.EditAttachment{Name: "a", Digest: right, RevPos: number(2)}, false},
			{docstore.EditAttachment{Name: "a", Digest: right, RevPos: number(0)}, true},
			{docstore.EditAttachment{Name: "a", RevPos: number(0)}, false},
			{docstore.EditAttachment{Name: "a", RevPos: number(1)}, true},
			{docstore.EditAttachment{Name: "a", Length: number(7)}, true},
			{docstore.EditAttachment{Name: "a", Length: number(8)}, false},
			{docstore.EditAttachment{Name: "a", Length: number(0)}, false},
			{docstore.EditAttachment{Name: "a", Digest: right, Length: number(8)}, false},
			{docstore.EditAttachment{Name: "known", Length: number(99)}, true},
			{docstore.EditAttachment{Name: "known", Length: number(30)}, true}, // from a server that does not know it
			{docstore.EditAttachment{Name: "known", Length: number(98)}, false},
			{docstore.EditAttachment{Name: "unknown", Digest: digest(zipped), Length: number(99)}, true},
			{docstore.EditAttachment{Name: "unknown", Digest: right, Length: number(30)}, false},
		}
		for i, test := range tests {
			id := strconv.Itoa(i)
			store := func(name string, content []byte, opts docstore.UploadOptions) docstore.EditAttachment {
				upload, err := b.db.Upload(t.Context(), id, bytes.NewReader(content), opts)
				require.NoError(t, err)
				return docstore.EditAttachment{Name: name, Upload: upload}
			}
			rev, err := b.db.Put(t.Context(), docstore.Edit{ID: id, Attachments: []docstore.EditAttachment{
				store("a", content, docstore.UploadOptions{}),
				store("known", zipped, docstore.UploadOptions{Encoding: "gzip", DecodedLength: number(99)}),
				store("unknown", zipped, docstore.UploadOptions{Encoding: "gzip"}),
			}})
			require.NoError(t, err)
			stub := []docstore.EditAttachment{test.said}
			results := b.write(t, []docstore.Edit{{ID: id, Pos: 2, Path: []string{"b", rev.ID}, Attachments: stub}}, docstore.WriteOptions{Replicated: true})
			if test.ok {
				require.NoError(t, results[0].Err, "%d: %+v", i, test.said)
				continue
			}
			require.ErrorIs(t, results[0].Err, docstore.ErrMissingStub, "%d: %+v", i, test.said)
			_, err = b.db.Put(t.Context(), docstore.Edit{ID: id, Rev: rev, Attachments: stub})
			require.ErrorIs(t, err, docstore.ErrMissingStub, "%d: %+v", i, test.said)
		}
		b.check(t)
	})
}

// TestStubsOfReplicated: a leaf that is an ancestor decides; without one the digest does.
func TestStubsOfReplicated(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		content := []byte("content")
		replicate := func(path []string, a docstore.EditAttachment) error {
			edits := []docstore.Edit{{ID: "d", Pos: int64(len(path)), Path: path, Attachments: []docstore.EditAttachment{a}}}
			return b.write(t, edits, docstore.WriteOptions{Replicated: true})[0].Err
		}
		stub := docstore.EditAttachment{Name: "a", Digest: digest(content)}
		require.ErrorIs(t, replicate([]string{"a"}, stub), docstore.ErrMissingStub)
		require.NoError(t, replicate([]string{"a"}, docstore.EditAttachment{Name: "a", Upload: b.upload(t, "d", content)}))
		wrong := stub
		wrong.RevPos = new(int64(2))
		require.ErrorIs(t, replicate([]string{"b", "a"}, wrong), docstore.ErrMissingStub)
		require.ErrorIs(t, replicate([]string{"b", "a"}, docstore.EditAttachment{Name: "b", Digest: digest(content)}), docstore.ErrMissingStub)
		require.NoError(t, replicate([]string{"b", "a"}, stub))
		require.NoError(t, replicate([]string{"c", "a"}, stub), "1-a is no leaf any longer")
		require.ErrorIs(t, replicate([]string{"d", "a"}, docstore.EditAttachment{Name: "a"}), docstore.ErrMissingStub)
	})
}

// TestAttachmentOrder: attachments keep the order of the edit.
func TestAttachmentOrder(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		names := []string{"z", "a", "é", "b"}
		edit := docstore.Edit{ID: "d"}
		for _, name := range names {
			edit.Attachments = append(edit.Attachments, docstore.EditAttachment{Name: name, Upload: b.upload(t, "d", []byte(name))})
		}
		rev, err := b.db.Put(t.Context(), edit)
		require.NoError(t, err)
		order := func() (found []string) {
			for _, a := range b.get(t, "d", docstore.GetOptions{}).Attachments {
				found = append(found, a.Name)
			}
			return found
		}
		require.Equal(t, names, order())
		slices.Reverse(names)
		edit = docstore.Edit{ID: "d", Rev: rev}
		for _, name := range names {
			edit.Attachments = append(edit.Attachments, docstore.EditAttachment{Name: name})
		}
		_, err = b.db.Put(t.Context(), edit)
		require.NoError(t, err)
		require.Equal(t, names, order())
	})
}

func TestInvalidUploads(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		content := noise(docstore.ChunkSize * 12)
		broken := errors.New("broken off")
		for name, test := range map[string]struct {
			content io.Reader
			opts    docstore.UploadOptions
			want    error
		}{
			"digest":     {bytes.NewReader(content), docstore.UploadOptions{Digest: digest(content[1:])}, docstore.ErrDigest},
			"no digest":  {bytes.NewReader(content), docstore.UploadOptions{Digest: "md5"}, docstore.ErrDigest},
			"too large":  {bytes.NewReader(content), docstore.UploadOptions{MaxLength: int64(len(content)) - 1}, docstore.ErrTooLarge},
			"broken off": {io.MultiReader(bytes.NewReader(content), iotest.ErrReader(broken)), docstore.UploadOptions{}, broken},
		} {
			_, err := b.db.Upload(t.Context(), "d", test.content, test.opts)
			require.ErrorIs(t, err, test.want, name)
			assert.Empty(t, b.rows(t), name)
		}
		ctx, cancel := context.WithCancel(t.Context())
		hangUp := readerFunc(func([]byte) (int, error) {
			cancel()
			return 0, broken
		})
		_, err := b.db.Upload(ctx, "d", io.MultiReader(bytes.NewReader(content), hangUp), docstore.UploadOptions{})
		require.ErrorIs(t, err, broken)
		assert.Empty(t, b.rows(t))
		_, err = b.db.Upload(t.Context(), "_d", bytes.NewReader(nil), docstore.UploadOptions{})
		require.ErrorIs(t, err, docstore.ErrDocumentID)

		// An upload belongs to one revision of its document.
		upload := b.upload(t, "d", content)
		attach := func(id string, a ...docstore.EditAttachment) error {
			_, err := b.db.Put(t.Context(), docstore.Edit{ID: id, Attachments: a})
			return err
		}
		require.ErrorIs(t, attach("other", docstore.EditAttachment{Name: "a", Upload: upload}), docstore.ErrInvalid)
		require.ErrorIs(t, attach("d", docstore.EditAttachment{Upload: upload}), docstore.ErrDocument)
		require.ErrorIs(t, attach("d", docstore.EditAttachment{Name: "_a", Upload: upload}), docstore.ErrDocument)
		require.ErrorIs(t, attach("d", docstore.EditAttachment{Name: "a\xff", Upload: upload}), docstore.ErrDocument)
		require.ErrorIs(t, attach("d", docstore.EditAttachment{Name: "a", Type: "\xff", Upload: upload}), docstore.ErrDocument)
		require.ErrorIs(t, attach("d", docstore.EditAttachment{Name: "a", RevPos: new(int64(-1)), Upload: upload}), docstore.ErrDocument)
		require.ErrorIs(t, attach("d", docstore.EditAttachment{Name: "a"}, docstore.EditAttachment{Name: "a"}), docstore.ErrDocument)
		rev := b.attach(t, "d", "", map[string]*docstore.Upload{"a": upload})
		results := b.write(t, []docstore.Edit{
			{ID: "d", Rev: parse(t, rev), Attachments: []docstore.EditAttachment{{Name: "b", Upload: upload}}},
		}, docstore.WriteOptions{})
		require.ErrorIs(t, results[0].Err, docstore.ErrMissingStub)
		require.NoError(t, b.db.Discard(t.Context(), upload)) // it is gone already
		assert.Equal(t, content, b.content(t, b.get(t, "d", docstore.GetOptions{}), "a"))

		// The description of attachments can be too large.
		var many []docstore.EditAttachment
		upload = b.upload(t, "many", nil)
		for i := range 60 {
			many = append(many, docstore.EditAttachment{Name: strings.Repeat("n", i+1), Type: strings.Repeat("x", 10_000), Upload: upload})
		}
		require.ErrorIs(t, attach("many", many...), docstore.ErrTooLarge)
		require.NoError(t, attach("many", many[:40]...))
		assert.Len(t, b.get(t, "many", docstore.GetOptions{}).Attachments, 40)
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// rows returns the keys of contents and uploads, which the checker does not interpret.
func (b *bundle) rows(t *testing.T) (keys []string) {
	t.Helper()
	b.check(t)
	found, err := kv.TransactValue(t.Context(), b.kv, func(tx kv.Transaction) ([]string, error) {
		return b.store.Contents(tx)
	})
	require.NoError(t, err)
	return found
}

// stream is n bytes that are generated as they are read.
type stream struct {
	left   int
	store  *enginetest.Controlled
	made   int64
	widest int64 // the most that was generated and not yet stored
}

func (s *stream) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), s.left, 10_000)
	for i := range n {
		p[i] = byte((s.left - i) >> 10)
	}
	s.left -= n
	s.made += int64(n)
	s.widest = max(s.widest, s.made-s.store.BytesWritten.Load())
	return n, nil
}

// TestStreamed: a stream of 20 MB is written and read through one megabyte of memory.
func TestStreamed(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		const size, most = 20_000_000, docstore.ChunkSize * docstore.ChunksAtOnce
		const rows = 1000 // more bytes than are read besides the content
		store := enginetest.Control(db)
		// A cluster may run a transaction again, and the reads and writes of all runs count.
		again := func() int64 { return store.Runs.Load() - store.Transactions.Load() }
		b := newBundle(t, store, docstore.Options{})
		store.BytesWritten.Store(0)
		content := &stream{left: size, store: store}
		upload, err := b.db.Upload(t.Context(), "d", content, docstore.UploadOptions{})
		require.NoError(t, err)
		assert.LessOrEqual(t, content.widest, int64(most))
		assert.GreaterOrEqual(t, store.BytesWritten.Load(), int64(size))
		assert.LessOrEqual(t, store.BytesWritten.Load(), size+again()*most)

		b.attach(t, "d", "", map[string]*docstore.Upload{"a": upload})
		a := b.get(t, "d", docstore.GetOptions{}).Attachments[0]
		reader := b.db.ReadAttachment(t.Context(), "d", a)
		store.BytesRead.Store(0)
		h, piece := md5.New(), make([]byte, 64<<10)
		n, widest := int64(0), int64(0)
		for err = nil; err == nil; {
			var read int
			read, err = reader.Read(piece)
			widest = max(widest, store.BytesRead.Load()-n)
			n += int64(read)
			h.Write(piece[:read])
		}
		require.ErrorIs(t, err, io.EOF)
		assert.EqualValues(t, size, n)
		assert.Equal(t, a.MD5[:], h.Sum(nil))
		assert.GreaterOrEqual(t, widest, int64(most-rows))
		assert.LessOrEqual(t, widest, (1+again())*(most+rows))

		// A range of it reads only what it needs.
		store.BytesRead.Store(0)
		_, err = reader.Seek(-5, io.SeekEnd)
		require.NoError(t, err)
		end, err := io.ReadAll(reader)
		require.NoError(t, err)
		assert.Len(t, end, 5)
		assert.LessOrEqual(t, store.BytesRead.Load(), (1+again())*(docstore.ChunkSize+rows))
		_, err = reader.Seek(-1, io.SeekStart)
		require.Error(t, err)
	})
}

// TestUnusedUploads: upkeep removes uploads without a revision after UploadLife, and nothing else.
func TestUnusedUploads(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, enginetest.UnknownOnce(db), docstore.Options{})
		remove := func() {
			for {
				more, err := b.store.RemoveUploads(t.Context())
				require.NoError(t, err)
				if !more {
					return
				}
			}
		}
		used := b.attach(t, "used", "", map[string]*docstore.Upload{"a": b.upload(t, "used", noise(100))})
		unused := b.upload(t, "d", noise(300_000))
		discarded := b.upload(t, "d", noise(200_000))
		for range 250 {
			b.upload(t, "many", noise(10))
		}
		remove()
		assert.NotEmpty(t, b.rows(t))
		require.NoError(t, b.db.Discard(t.Context(), discarded))

		after(docstore.UploadLife - time.Second)
		remove()
		late := b.attach(t, "late", "", map[string]*docstore.Upload{"a": b.upload(t, "late", noise(100))})
		young := b.upload(t, "young", noise(100))
		after(2 * time.Second)
		remove()
		_, err := b.db.Put(t.Context(), docstore.Edit{ID: "d", Attachments: []docstore.EditAttachment{{Name: "a", Upload: unused}}})
		require.ErrorIs(t, err, docstore.ErrMissingStub)
		b.attach(t, "young", "", map[string]*docstore.Upload{"a": young})
		for id, rev := range map[string]string{"used": used, "late": late} {
			assert.Equal(t, noise(100), b.content(t, b.get(t, id, docstore.GetOptions{Rev: parse(t, rev)}), "a"))
		}
		assert.Len(t, b.rows(t), 2*3) // a row and a chunk of each
	})
}

// pausing is a reader that waits between pieces.
type pausing struct {
	io.Reader
	pause time.Duration
	then  func()
}

func (p pausing) Read(b []byte) (int, error) {
	after(p.pause)
	p.then()
	return p.Reader.Read(b[:min(len(b), docstore.ChunkSize)])
}

// TestSlowUploads: an upload that makes progress is not removed however long it takes. One that stalls for too long is
// removed, and leaves nothing.
func TestSlowUploads(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, enginetest.UnknownOnce(db), docstore.Options{})
		content := noise(40 * docstore.ChunkSize)
		upkeep := func() {
			_, err := b.store.RemoveUploads(t.Context())
			require.NoError(t, err)
		}
		upload, err := b.db.Upload(t.Context(), "d", pausing{bytes.NewReader(content), 5 * time.Minute, upkeep}, docstore.UploadOptions{})
		require.NoError(t, err)
		b.attach(t, "d", "", map[string]*docstore.Upload{"a": upload})
		assert.Equal(t, content, b.content(t, b.get(t, "d", docstore.GetOptions{}), "a"))
		_, err = b.db.Upload(t.Context(), "e", pausing{bytes.NewReader(content), 7 * time.Minute, upkeep}, docstore.UploadOptions{})
		require.ErrorIs(t, err, docstore.ErrMissingStub)
	})
}

// A content type becomes a header.
func TestContentTypesWithControlCharacters(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		upload, err := b.db.Upload(t.Context(), "d", strings.NewReader("content"), docstore.UploadOptions{})
		require.NoError(t, err)
		for _, bad := range []string{"\x00", "text/plain\r\nX: y", "a\x7f", "\u0085"} {
			_, err := b.db.Put(t.Context(), docstore.Edit{ID: "d", Attachments: []docstore.EditAttachment{{Name: "a", Upload: upload, Type: bad}}})
			require.ErrorIs(t, err, docstore.ErrDocument)
			require.ErrorContains(t, err, `the content_type of the attachment "a" has a control character`)
		}
		_, err = b.db.Put(t.Context(), docstore.Edit{ID: "d", Attachments: []docstore.EditAttachment{{Name: "a", Upload: upload, Type: "text/plain; charset=ü"}}})
		require.NoError(t, err)
	})
}
