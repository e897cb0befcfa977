package docstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/seeds"
	"settee/internal/testkit"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/faultkv"
)

// TestRandom lets processes write, merge, delete and attach at random, on a store with all faults, while others follow
// and run upkeep. After each step all invariants hold. At the end the leaves, with all their content, and the changes
// in the feed equal those of a model.
func TestRandom(t *testing.T) {
	testkit.SkipShort(t)
	t.Parallel()
	seeds.Each(t, 0, 2, func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) { newWorld(t, seed).run() })
	})
}

const (
	worldDocs    = 6
	worldWriters = 6
	worldSteps   = 30
)

type world struct {
	t         *testing.T
	store     *bundle              // without faults
	processes []*docstore.Database // with faults

	mu       sync.Mutex // guards the fields below
	random   *rand.Rand
	written  map[string]map[docstore.Rev]made
	replaced map[string]map[docstore.Rev]bool
	doubtful map[string]map[docstore.Rev]bool // conflicts that may be of a write that was made and then replaced
}

// made is a revision that was written.
type made struct {
	deleted     bool
	body        string
	attachments map[string][]byte
}

func newWorld(t *testing.T, seed uint64) *world {
	db := enginetest.Memory(t)
	w := &world{
		t: t, store: newBundle(t, db, docstore.Options{}), random: rand.New(rand.NewPCG(seed, 1)),
		written: map[string]map[docstore.Rev]made{}, replaced: map[string]map[docstore.Rev]bool{},
		doubtful: map[string]map[docstore.Rev]bool{},
	}
	for i := range worldDocs {
		w.written[fmt.Sprint("d", i)] = map[docstore.Rev]made{}
		w.replaced[fmt.Sprint("d", i)] = map[docstore.Rev]bool{}
		w.doubtful[fmt.Sprint("d", i)] = map[docstore.Rev]bool{}
	}
	for i := range uint64(3) {
		faulty := faultkv.Wrap(db, faultkv.Options{Seed: seed<<8 | i, Rates: faultkv.Rates{
			faultkv.Conflict: 0.05, faultkv.UnknownCommitted: 0.15, faultkv.UnknownNotCommitted: 0.05,
			faultkv.TooOld: 0.01, faultkv.Delay: 0.1,
			faultkv.LostWatch: 0.05, faultkv.LateWatch: 0.1, faultkv.SpuriousWatch: 0.1,
		}})
		store := docstore.Open(faulty, prefix, docstore.Options{})
		t.Cleanup(store.Close)
		process, err := store.Instance("db", w.store.db.Instance())
		require.NoError(t, err)
		w.processes = append(w.processes, process)
	}
	return w
}

func (w *world) intN(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.IntN(n)
}

func (w *world) run() {
	ctx, cancel := context.WithCancel(w.t.Context())
	var writing, others sync.WaitGroup
	for i := range worldWriters {
		writing.Go(func() { w.writer(i) })
	}
	told := map[string]docstore.ChangeRow{}
	others.Go(func() { w.follower(ctx, told) })
	others.Go(func() { w.upkeep(ctx) })
	writing.Wait()
	after(time.Minute) // late watches
	cancel()
	others.Wait()
	w.compare(told)
}

// writer makes edits of any kind.
func (w *world) writer(number int) {
	for step := range worldSteps {
		pause(time.Duration(w.intN(int(20 * time.Millisecond))))
		db, id := w.processes[w.intN(len(w.processes))], fmt.Sprint("d", w.intN(worldDocs))
		edit := docstore.Edit{ID: id, Deleted: w.intN(4) == 0, Body: docjson.Must(fmt.Appendf(nil, `{"by":%d,"step":%d}`, number, step))}
		m := made{deleted: edit.Deleted, body: string(edit.Body.Bytes()), attachments: map[string][]byte{}}
		if w.intN(3) == 0 {
			content := noise(w.intN(2 * docstore.ChunkSize))
			upload, err := db.Upload(w.t.Context(), id, bytes.NewReader(content), docstore.UploadOptions{})
			if err != nil {
				w.t.Error(err)
				return
			}
			edit.Attachments = []docstore.EditAttachment{{Name: "a", Upload: upload}}
			m.attachments["a"] = content
		}
		if w.intN(3) == 0 {
			w.merge(db, edit, m)
		} else {
			w.put(db, edit, m)
		}
		w.store.check(w.t)
	}
}

// pause lets time pass while several goroutines run.
func pause(d time.Duration) { <-time.After(d) }

// put replaces a leaf, and may keep its attachment.
func (w *world) put(db *docstore.Database, edit docstore.Edit, m made) {
	leaves, err := kv.TransactValue(w.t.Context(), w.store.kv, func(tx kv.Transaction) ([]docstore.Leaf, error) {
		return w.store.db.Leaves(tx, edit.ID)
	})
	if err != nil {
		w.t.Error(err)
		return
	}
	if len(leaves) > 0 {
		edit.Rev = leaves[w.intN(len(leaves))].Rev
		if len(edit.Attachments) == 0 {
			w.mu.Lock()
			content, has := w.written[edit.ID][edit.Rev].attachments["a"]
			w.mu.Unlock()
			if has {
				edit.Attachments = []docstore.EditAttachment{{Name: "a", Digest: digest(content)}}
				m.attachments["a"] = content
			}
		}
	}
	rev, err := db.Put(w.t.Context(), edit)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		if !errors.Is(err, docstore.ErrConflict) {
			assert.ErrorIs(w.t, err, docstore.ErrMissingStub)
		}
		w.doubtful[edit.ID][edit.Rev] = true
		return
	}
	w.written[edit.ID][rev] = m
	w.replaced[edit.ID][edit.Rev] = true
	if edit.Rev == (docstore.Rev{}) {
		w.doubtful[edit.ID][edit.Rev] = true
	}
}

// merge adds a revision whose path branches off at a random place.
func (w *world) merge(db *docstore.Database, edit docstore.Edit, m made) {
	leaves, err := kv.TransactValue(w.t.Context(), w.store.kv, func(tx kv.Transaction) ([]docstore.Leaf, error) {
		return w.store.db.Leaves(tx, edit.ID)
	})
	if err != nil {
		w.t.Error(err)
		return
	}
	edit.Pos, edit.Path = 1, []string{fmt.Sprintf("%032x", w.intN(1<<30))}
	if len(leaves) > 0 && w.intN(5) > 0 {
		l := leaves[w.intN(len(leaves))]
		i := w.intN(len(l.Path))
		edit.Pos, edit.Path = l.Rev.Pos-int64(i)+1, append(edit.Path, l.Path[i:]...)
	}
	results, err := db.Write(w.t.Context(), []docstore.Edit{edit}, docstore.WriteOptions{Replicated: true})
	if err = errors.Join(err, results[0].Err); err != nil {
		w.t.Error(err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.written[edit.ID][results[0].Rev] = m
	for i, id := range edit.Path[1:] {
		w.replaced[edit.ID][docstore.Rev{Pos: edit.Pos - 1 - int64(i), ID: id}] = true
	}
}

func (w *world) follower(ctx context.Context, told map[string]docstore.ChangeRow) {
	var last docstore.Sequence
	for ctx.Err() == nil {
		db := w.processes[w.intN(len(w.processes))]
		if err := db.WaitChange(ctx, last); err != nil {
			assert.ErrorIs(w.t, err, context.Canceled)
			return
		}
		feed := db.Changes(docstore.ChangesOptions{Since: last})
		for row, err := range feed.All(w.t.Context()) {
			if err != nil {
				w.t.Error(err)
				return
			}
			assert.Positive(w.t, row.Sequence.Compare(last))
			told[row.ID] = row
		}
		last = feed.Last()
	}
}

func (w *world) upkeep(ctx context.Context) {
	for ctx.Err() == nil {
		_, err := w.store.store.RemoveUploads(w.t.Context())
		if err != nil {
			w.t.Error(err)
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// compare checks that the store has what was written and not replaced.
func (w *world) compare(told map[string]docstore.ChangeRow) {
	for id, written := range w.written {
		var got []string
		ancestors := map[docstore.Rev]bool{}
		for open, err := range w.store.db.OpenRevs(w.t.Context(), id, docstore.OpenRevsOptions{}) {
			require.NoError(w.t, err)
			got = append(got, open.Rev.String())
			for i, ancestor := range open.Document.Path[1:] {
				ancestors[docstore.Rev{Pos: open.Rev.Pos - 1 - int64(i), ID: ancestor}] = true
			}
			m, doc := written[open.Rev], open.Document
			assert.Equal(w.t, m.body, string(doc.Body))
			assert.Equal(w.t, m.deleted, doc.Deleted)
			assert.Len(w.t, doc.Attachments, len(m.attachments))
			for name, content := range m.attachments {
				assert.Equal(w.t, content, w.store.content(w.t, doc, name))
			}
		}
		if len(got) > 0 {
			assert.Equal(w.t, got, revs(told[id].Revs), "what the feed has told of %s", id)
		}
		var want []string
		for rev := range written {
			// An edit without a revision extends a deleted leaf, and its result does not say which.
			doubtful := w.doubtful[id][rev] || w.doubtful[id][docstore.Rev{}] && written[rev].deleted
			if !w.replaced[id][rev] && !(doubtful && ancestors[rev]) {
				want = append(want, rev.String())
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		assert.Equal(w.t, want, got, id)
	}
}
