package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/fdbjobs"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/check"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/faultkv"
	"settee/pkg/kv/kvtest"
	"settee/pkg/sealed"
	"settee/pkg/tuple"
	"settee/replicator"
	"settee/replicator/jobs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, kvtest.NetworkThread) }

// store can lose the result of each commit once, so that the transaction runs again, and can be
// broken.
type store struct {
	*faultkv.DB
	on     atomic.Bool
	broken atomic.Bool  // every transaction fails
	mute   atomic.Bool  // the results of transactions are lost
	takes  atomic.Int64 // how long each run takes before its commit, in nanoseconds
}

func newStore(db kv.Database) *store {
	s := &store{}
	s.DB = faultkv.Wrap(db, faultkv.Options{Script: func(call faultkv.Call) faultkv.Fault {
		if s.on.Load() {
			return faultkv.UnknownOnce(call)
		}
		return faultkv.None
	}})
	return s
}

var errBroken = errors.New("the store is broken")

func (s *store) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	if s.broken.Load() {
		return errBroken
	}
	err := s.DB.Transact(ctx, func(tx kv.Transaction) error {
		err := fn(tx)
		if takes := s.takes.Load(); takes > 0 {
			time.Sleep(time.Duration(takes))
		}
		return err
	})
	if err != nil || !s.mute.Load() {
		return err
	}
	return kv.ErrCommitUnknown
}

// bundle is the replication jobs of a store of their own.
type bundle struct {
	testing.TB
	db    *store
	layer *fdbjobs.Layer
	store *jobs.Store
	docs  *docstore.Store
}

var docsPrefix = []byte("docs/")

func setup(t testing.TB, opts ...jobs.Options) *bundle {
	t.Helper()
	return setupOn(t, enginetest.Memory(t), opts...)
}

func setupOn(t testing.TB, db kv.Database, opts ...jobs.Options) *bundle {
	t.Helper()
	return setupWith(t, db, fdbjobs.Options{}, append(opts, jobs.Options{})[0])
}

// setupWith opens a store with a layer that has some options.
func setupWith(t testing.TB, db kv.Database, layer fdbjobs.Options, opts jobs.Options) *bundle {
	t.Helper()
	b := &bundle{TB: t, db: newStore(db)}
	layer.Derive = jobs.Derivations()
	b.layer = fdbjobs.Open(b.db, []byte("jobs"), layer)
	t.Cleanup(func() {
		b.layer.Close()
		b.check()
	})
	b.reopen(opts)
	return b
}

// check checks all rows of the store. It has no keys for what is sealed.
func (b *bundle) check() {
	b.Helper()
	layer := fdbjobs.Open(b.db, []byte("jobs"), fdbjobs.Options{Sealer: new(sealed.Keys), Derive: jobs.Derivations()})
	defer layer.Close()
	docs := docstore.Open(b.db, docsPrefix, docstore.Options{Sealer: new(sealed.Keys)})
	defer docs.Close()
	require.NoError(b, check.Sound(context.Background(), b.db, func(ctx context.Context, c *check.Checker) error {
		return errors.Join(layer.Check(ctx, c), jobs.Check(ctx, c, layer), docs.Check(ctx, c))
	}))
}

const serverUUID = "0123456789abcdef0123456789abcdef"

// reopen opens the jobs and their databases with these options.
func (b *bundle) reopen(opts jobs.Options) {
	b.Helper()
	opts.Documents = docsPrefix
	if opts.UUID == "" {
		opts.UUID = serverUUID
	}
	var err error
	b.store, err = jobs.Open(b.Context(), b.db, b.layer, opts)
	require.NoError(b, err)
	b.docs = docstore.Open(b.db, docsPrefix, docstore.Options{Hooks: b.store.Documents.Hooks(nil)})
	b.Cleanup(b.docs.Close)
}

// onEngines runs a parallel test on each engine.
func onEngines(t *testing.T, test func(b *bundle)) {
	t.Helper()
	enginetest.Each(t, func(t *testing.T, db kv.Database) { test(setupOn(t, db)) })
}

// definition parses a body of POST /_replicate with the given members.
func (b *bundle) definition(members string) *replicator.Replication {
	b.Helper()
	request, err := replicator.ParseRequest(definitionText(members), replicator.ParseOptions{})
	require.NoError(b, err)
	return request.Replication
}

func definitionText(members string) []byte {
	text := `{"source": "http://adm:secret@a.example/db", "target": "http://b.example/db"`
	if members != "" {
		text += ", " + members
	}
	return []byte(text + "}")
}

// replicate adds a replication with the given members.
func (b *bundle) replicate(members string) *jobs.Job {
	b.Helper()
	job, err := b.store.Requests.Replicate(b.Context(), b.definition(members), nil)
	require.NoError(b, err)
	return job
}

// cancel cancels a job.
func (b *bundle) cancel(id string) {
	b.Helper()
	_, err := b.store.Requests.Cancel(b.Context(), id, nil)
	require.NoError(b, err)
}

// accept accepts a job and starts it.
func (b *bundle) accept() *jobs.Run {
	b.Helper()
	run, err := accept(b.Context(), b.store)
	require.NoError(b, err)
	require.NoError(b, run.Start(b.Context(), "node1", "pid1"))
	return run
}

func (b *bundle) get(id string) *jobs.Job {
	b.Helper()
	job, err := b.store.Lists.Get(b.Context(), id)
	require.NoError(b, err)
	return job
}

func (b *bundle) gone(id string) {
	b.Helper()
	_, err := b.store.Lists.Get(b.Context(), id)
	require.ErrorIs(b, err, jobs.ErrNotFound)
}

// create creates a database.
func (b *bundle) create(name string) *docstore.Database {
	b.Helper()
	db, err := b.docs.Create(b.Context(), name)
	require.NoError(b, err)
	return db
}

func (b *bundle) database(name string) *docstore.Database {
	b.Helper()
	db, err := b.docs.Database(b.Context(), name)
	require.NoError(b, err)
	return db
}

// put writes a document with the given members of a replication, replacing revision rev, "" for
// none. It returns the new revision.
func (b *bundle) put(database, id, rev, members string) string {
	b.Helper()
	written, err := b.write(database, id, rev, definitionText(members))
	require.NoError(b, err)
	return written
}

func (b *bundle) write(database, id, rev string, body []byte) (string, error) {
	b.Helper()
	written, err := b.database(database).Put(b.Context(), docstore.Edit{ID: id, Rev: b.rev(rev), Body: docjson.Must(body)})
	return written.String(), err
}

func (b *bundle) remove(database, id, rev string) string {
	b.Helper()
	written, err := b.database(database).Put(b.Context(), docstore.Edit{ID: id, Rev: b.rev(rev), Deleted: true})
	require.NoError(b, err)
	return written.String()
}

// merge writes a replicated revision path, such as "2-b a", of a document.
func (b *bundle) merge(database, id, path string, body []byte) error {
	b.Helper()
	ids := strings.Fields(path)
	rev := b.rev(ids[0])
	ids[0] = rev.ID
	edit := docstore.Edit{ID: id, Pos: rev.Pos, Path: ids, Deleted: body == nil}
	if body != nil {
		edit.Body = docjson.Must(body)
	}
	results, err := b.database(database).Write(b.Context(), []docstore.Edit{edit}, docstore.WriteOptions{Replicated: true})
	require.NoError(b, err)
	return results[0].Err
}

func (b *bundle) rev(text string) docstore.Rev {
	b.Helper()
	if text == "" {
		return docstore.Rev{}
	}
	rev, err := docstore.ParseRev(text)
	require.NoError(b, err)
	return rev
}

// document returns the members of a document, with _rev.
func (b *bundle) document(database, id string) map[string]any {
	b.Helper()
	doc, err := b.database(database).Get(b.Context(), id, docstore.GetOptions{})
	require.NoError(b, err)
	var members map[string]any
	require.NoError(b, json.Unmarshal(doc.Body, &members))
	members["_rev"] = doc.Rev.String()
	return members
}

// jobID returns the job id of a document.
func (b *bundle) jobID(database, id string) string {
	b.Helper()
	return replicator.PersistentJobID(b.database(database).Instance(), id)
}

// total returns the number of jobs that have not ended.
func (b *bundle) total() int {
	b.Helper()
	found, total, err := b.store.ListFrom(b.Context(), 0, jobs.MaxLimit)
	require.NoError(b, err)
	require.Len(b, found, int(total))
	return int(total)
}

func id(base byte) replicator.ID {
	text := make([]byte, 32)
	for i := range text {
		text[i] = base
	}
	return replicator.ID{Base: string(text)}
}

func eventTypes(job *jobs.Job) []string {
	var types []string
	for _, event := range job.State.History {
		types = append(types, event.Type)
	}
	return types
}

// reservations returns the reserved replication ids and their jobs.
func (b *bundle) reservations() map[string]string {
	b.Helper()
	return b.rows("replication_ids")
}

// deletions returns the deleted databases that may still have jobs.
func (b *bundle) deletions() map[string]string {
	b.Helper()
	return b.rows("deleted")
}

func (b *bundle) rows(name string) map[string]string {
	b.Helper()
	rows := map[string]string{}
	b.each(name, func(key tuple.Tuple, value []byte) { rows[key[0].(string)] += string(value) })
	return rows
}

// each calls visit with the keys and values of a subspace, and returns their number.
func (b *bundle) each(name string, visit func(key tuple.Tuple, value []byte)) int {
	b.Helper()
	space := tuple.NewSubspace("replicator", name)
	begin, end := space.Range()
	pairs, err := kv.TransactValue(b.Context(), b.db, func(tx kv.Transaction) ([]kv.KeyValue, error) {
		return tx.Snapshot().GetRange(kv.KeyRange{Begin: begin, End: end}, kv.RangeOptions{}).Slice()
	})
	require.NoError(b, err)
	for _, pair := range pairs {
		key, err := space.Unpack(pair.Key)
		require.NoError(b, err)
		visit(key, pair.Value)
	}
	return len(pairs)
}

// entries returns the entries of an index.
func (b *bundle) entries(index string) []fdbjobs.Entry {
	b.Helper()
	found, err := kv.TransactValue(b.Context(), b.db, func(tx kv.Transaction) ([]fdbjobs.Entry, error) {
		return b.layer.Queue(jobs.QueueName).Entries(tx.Snapshot(), index, fdbjobs.EntryRange{}).Await()
	})
	require.NoError(b, err)
	return found
}

// times returns the times of a mark by job id.
func (b *bundle) times(mark replicator.MarkType) map[string]int64 {
	b.Helper()
	times := map[string]int64{}
	all := b.entries("marks")
	for _, e := range all {
		if e.Key[0] == string(mark) {
			require.NotContains(b, times, e.ID)
			times[e.ID] = e.Key[1].(int64)
		}
	}
	return times
}

// monitor runs an activity monitor until stop is called.
func (b *bundle) monitor(requeued func([]string)) (stop func()) {
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	running.Go(func() {
		_ = b.store.Jobs.RunMonitor(ctx, func(ids []string, _ time.Duration, _ error) {
			if len(ids) > 0 && requeued != nil {
				requeued(ids)
			}
		})
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// accept accepts a job.
func accept(ctx context.Context, store *jobs.Store) (*jobs.Run, error) {
	runs, err := store.Runs.Accept(ctx, 1, nil)
	if err != nil {
		return nil, err
	}
	return runs[0], nil
}

// parsedID returns the id whose text this is.
func parsedID(text string) replicator.ID {
	base, suffixes, _ := strings.Cut(text, "+")
	return replicator.ID{
		Base: base, Continuous: strings.Contains(suffixes, "continuous"), CreateTarget: strings.Contains(suffixes, "create_target"),
	}
}

// asMirror returns the run of a mirror.
func asMirror(run *jobs.Run) jobs.MirrorRun { return jobs.MirrorRun{Run: run} }
