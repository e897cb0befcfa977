package jobs_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/internal/testkit"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/replicator"
	"settee/replicator/jobs"
)

const repdb = "_replicator"

// onLossyEngines runs a test on each engine, with every commit reported unknown once.
func onLossyEngines(t *testing.T, test func(b *bundle)) {
	onEngines(t, func(b *bundle) {
		b.db.on.Store(true)
		b.create(repdb)
		test(b)
	})
}

func nothing(*replicator.JobState) {}

// The job of a document follows each write of the document.
func TestDocumentAndItsJob(t *testing.T) {
	onLossyEngines(t, func(b *bundle) {
		rev := b.put(repdb, "d", "", `"user_ctx": {"name": "bob"}, "mine": 1`)
		id := b.jobID(repdb, "d")
		job := b.get(id)
		want, err := b.definition("").ID(b.store.ServerUUID, "")
		require.NoError(b, err)
		assert.Equal(b, replicator.StatePending, job.Condition())
		assert.False(b, job.Transient())
		assert.Equal(b, repdb, *job.Args.Database)
		assert.Equal(b, "d", *job.Args.DocID)
		assert.Equal(b, "bob", *job.Args.User)
		assert.Equal(b, want.String(), job.ReplicationID())
		assert.Equal(b, []string{"added"}, eventTypes(job))
		assert.Equal(b, id, b.get(want.String()).ID)
		assert.Equal(b, 1, b.total())

		// Fields of the user's own and another spelling make no difference.
		run := b.accept()
		rev = b.put(repdb, "d", rev, `"mine": [2], "continuous": false, "user_ctx": {"roles": [], "name": "bob"}`)
		require.NoError(b, run.Update(b.Context(), nothing))

		// Another definition ends the run, and the next run has it, with a new state.
		require.NoError(b, run.Update(b.Context(), func(s *replicator.JobState) { s.Stats.DocsRead, s.ErrorCount = 7, 3 }))
		rev = b.put(repdb, "d", rev, `"continuous": true`)
		assert.Equal(b, want.String()+"+continuous", b.get(id).ReplicationID())
		require.ErrorIs(b, run.Complete(b.Context(), nil), fdbjobs.ErrHalt)
		assert.Nil(b, b.document(repdb, "d")["_replication_state"])
		run = b.accept()
		assert.True(b, run.Job().Args.Replication.Continuous)
		assert.Zero(b, run.Job().State.Stats)
		assert.Zero(b, run.Job().State.ErrorCount)
		assert.Equal(b, []string{"started", "added"}, eventTypes(b.get(id)))

		// So it is with a pending or a crashing job.
		require.NoError(b, run.Crash(b.Context(), time.Now().Add(time.Hour), 5, replicator.TextFault("db_not_found", "no")))
		rev = b.put(repdb, "d", rev, `"continuous": true, "mine": 3`)
		assert.Equal(b, replicator.StateCrashing, b.get(id).Condition(), "it goes on waiting")
		rev = b.put(repdb, "d", rev, `"continuous": true, "worker_processes": 2`)
		job = b.get(id)
		assert.Equal(b, replicator.StatePending, job.Condition())
		assert.Zero(b, job.State.ErrorCount)
		assert.Equal(b, []string{"added"}, eventTypes(job))
		rev = b.put(repdb, "d", rev, `"doc_ids": ["x"], "worker_processes": 2`)
		assert.Equal(b, map[string]string{b.get(id).ReplicationID(): id}, b.reservations(), "it need not run to have its new id")
		run = b.accept()
		assert.Equal(b, 2, *run.Job().Args.Replication.WorkerProcesses)

		b.remove(repdb, "d", rev)
		b.gone(id)
		b.gone(want.String() + "+continuous")
		require.ErrorIs(b, run.Update(b.Context(), nothing), fdbjobs.ErrHalt)
		require.ErrorIs(b, run.Stop(b.Context(), "", "", nil), fdbjobs.ErrHalt)
		assert.Zero(b, b.total())
		assert.Empty(b, b.reservations())

		// The document can be created again.
		b.put(repdb, "d", "", "")
		assert.Equal(b, replicator.StatePending, b.get(id).Condition())
	})
}

// A node that died is not mistaken for one that let go of a job with a new definition.
func TestHistoryTellsDeathFromChange(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := setup(t)
		b.create(repdb)
		rev := b.put(repdb, "d", "", "")
		b.accept() // its node dies
		requeued := make(chan struct{})
		watching := b.monitor(func([]string) { close(requeued) })
		<-requeued
		watching()
		b.accept()
		assert.Equal(t, []string{"started", "crashed", "started", "added"}, eventTypes(b.get(b.jobID(repdb, "d"))))
		b.put(repdb, "d", rev, `"continuous": true`)
		requeued = make(chan struct{})
		defer b.monitor(func([]string) { close(requeued) })()
		<-requeued
		b.accept()
		assert.Equal(t, []string{"started", "added"}, eventTypes(b.get(b.jobID(repdb, "d"))))
	})
}

// Documents without a valid job are refused, whether they are written or replicated.
func TestRefusedDocuments(t *testing.T) {
	onLossyEngines(t, func(b *bundle) {
		longest := strings.Repeat("x", jobs.MaxDocumentIDSize)
		for name, test := range map[string]struct {
			id   string
			body []byte
			err  error // nil: a ParseError of the field
			what string
		}{
			"no target":         {"d", []byte(`{"source": "http://a.example/db"}`), nil, "target"},
			"workers as text":   {"d", definitionText(`"worker_processes": "a few"`), nil, "worker_processes"},
			"two filters":       {"d", definitionText(`"filter": "a/b", "doc_ids": []`), nil, "filter"},
			"unknown state":     {"d", definitionText(`"_replication_state": "odd"`), nil, "_replication_state"},
			"completed nothing": {"d", []byte(`{"_replication_state": "completed"}`), nil, "source"},
			"too large":         {"d", atLimit(jobs.MaxDocumentSize + 1), docstore.ErrTooLarge, "replication document of 4000001 bytes"},
			// Such a letter is stored as six bytes.
			"too large as a job": {"d", definitionText(`"doc_ids": ["` + strings.Repeat("<", 1_000_000) + `"]`), docstore.ErrTooLarge, "in its stored form"},
			"too large, and over": {"d", definitionText(`"_replication_state": "completed", "doc_ids": ["` + strings.Repeat("<", 1_000_000) + `"]`),
				docstore.ErrTooLarge, "in its stored form"},
			"user too long": {"d", definitionText(`"user_ctx": {"name": "` + strings.Repeat("n", 20_000) + `"}`), docstore.ErrTooLarge, "user_ctx.name"},
			"id too long":   {longest + "x", definitionText(""), docstore.ErrDocumentID, "1968"},
		} {
			_, err := b.write(repdb, test.id, "", test.body)
			again := b.merge(repdb, test.id, "2-b a", test.body)
			for _, err := range []error{err, again} {
				if test.err != nil {
					require.ErrorIs(b, err, test.err, name)
					require.ErrorContains(b, err, test.what, name)
					continue
				}
				var refused *replicator.ParseError
				require.ErrorAs(b, err, &refused, name)
				require.Equal(b, test.what, refused.Field, name)
			}
		}
		assert.Zero(b, b.total())

		// A failed document may be invalid, and a deleted one may be anything.
		_, err := b.write(repdb, "failed", "", []byte(`{"_replication_state": "failed", "source": 5}`))
		require.NoError(b, err)
		require.NoError(b, b.merge(repdb, longest+"x", "2-b a", nil))
		assert.Zero(b, b.total())
	})
}

// atLimit returns a definition of that many bytes.
func atLimit(size int) []byte {
	text := definitionText(`"x": ""`)
	return bytes.Replace(text, []byte(`"x": "`), append([]byte(`"x": "`), letters(size-len(text))...), 1)
}

func letters(n int) []byte { return bytes.Repeat([]byte("a"), n) }

// The other documents of the batch are written and get jobs.
func TestBatchWithRefusedDocuments(t *testing.T) {
	onLossyEngines(t, func(b *bundle) {
		rev := b.put(repdb, "old", "", "")
		edits := []docstore.Edit{{ID: "old", Rev: b.rev(rev), Deleted: true}}
		for i := range 20 {
			body := definitionText(fmt.Sprintf(`"doc_ids": ["%d"]`, i/2)) // pairs with one replication id
			if i == 7 {
				body = []byte(`{}`)
			}
			edits = append(edits, docstore.Edit{ID: fmt.Sprintf("d%02d", i), Body: docjson.Must(body)})
		}
		results, err := b.database(repdb).Write(b.Context(), edits, docstore.WriteOptions{})
		require.NoError(b, err)
		for i, result := range results {
			assert.Equal(b, i == 8, result.Err != nil, "%d: %v", i, result.Err)
		}
		assert.Equal(b, 19, b.total())
		assert.Len(b, b.reservations(), 10)
		b.gone(b.jobID(repdb, "old"))
	})
}

func TestDocumentsThatMakeNoJobs(t *testing.T) {
	onLossyEngines(t, func(b *bundle) {
		for _, name := range []string{"x/_replicator", "x_replicator", "_users", "x", "x/_replicator/y"} {
			b.create(name)
			assert.Equal(b, name == "x/_replicator", replicator.IsReplicatorDatabase(name))
			_, err := b.write(name, "d", "", []byte(`{"source": 1}`))
			assert.Equal(b, name == "x/_replicator", err != nil, name)
		}
		_, err := b.write(repdb, "_design/d", "", []byte(`{"views": {}}`))
		require.NoError(b, err)
		_, err = b.database(repdb).PutLocal(b.Context(), "_local/c", "", docjson.Must(`{"source": 1}`))
		require.NoError(b, err)
		b.put("x", "d", b.document("x", "d")["_rev"].(string), "")
		assert.Zero(b, b.total())
		b.put("x/_replicator", "d", "", "")
		assert.Equal(b, 1, b.total())
	})
}

// Documents with a terminal state, as another server writes them, are listed in that state and do
// not run.
func TestDocumentsThatEndedElsewhere(t *testing.T) {
	onLossyEngines(t, func(b *bundle) {
		done := b.put(repdb, "done", "", `"_replication_state": "completed",
			"_replication_state_time": "2024-05-06T07:08:09Z", "_replication_stats": {
				"docs_written": 7, "changes_pending": 3, "checkpointed_source_seq": "9-x", "start_time": "2024-05-06T07:00:00Z"}`)
		long := strings.Repeat("x", 90_000)
		b.put(repdb, "wide", "", `"_replication_state": "completed", "_replication_stats": {"docs_written": 1, "checkpointed_source_seq": "`+long+`"}`)
		b.put(repdb, "bad", "", `"_replication_state": "failed", "_replication_state_reason": "no luck"`)
		b.put(repdb, "went", "", "")
		went := b.put(repdb, "went", b.document(repdb, "went")["_rev"].(string), `"doc_ids": ["x"], "_replication_state": "completed"`)
		assert.Zero(b, b.total())
		list, err := b.store.Lists.List(b.Context(), jobs.Filter{Documents: true, Database: repdb}, jobs.ListOptions{Limit: 10})
		require.NoError(b, err)
		require.Len(b, list.Jobs, 4)
		assert.EqualValues(b, 4, list.Total)
		assert.EqualValues(b, 1, list.Jobs[3].State.Stats.DocsWritten)
		assert.Equal(b, "null", string(list.Jobs[3].State.CheckpointedSourceSeq))
		assert.Equal(b, replicator.StateFailed, list.Jobs[0].Condition())
		assert.Equal(b, "no luck", list.Jobs[0].State.Error)
		assert.Equal(b, replicator.StateCompleted, list.Jobs[1].Condition())
		info := list.Jobs[1].State.Info()
		require.NotNil(b, info)
		assert.EqualValues(b, 7, info.DocsWritten)
		assert.EqualValues(b, 3, *info.ChangesPending)
		assert.Equal(b, `"9-x"`, string(info.CheckpointedSourceSeq))
		assert.Equal(b, 7, list.Jobs[1].State.StartTime.Hour())
		assert.Equal(b, 2024, list.Jobs[1].State.LastUpdated.Year())
		assert.Equal(b, replicator.StateCompleted, list.Jobs[2].Condition())

		b.put(repdb, "done", done, "") // starts anew
		assert.Equal(b, 1, b.total())
		b.remove(repdb, "went", went)
		list, err = b.store.Lists.List(b.Context(), jobs.Filter{Documents: true, Database: repdb}, jobs.ListOptions{Limit: 10})
		require.NoError(b, err)
		assert.Len(b, list.Jobs, 3)
	})
}

// The job follows the winning revision, whenever that changes.
func TestConflictingRevisions(t *testing.T) {
	onLossyEngines(t, func(b *bundle) {
		id := b.jobID(repdb, "d")
		workers := func() int { return *b.get(id).Args.Replication.WorkerProcesses }
		body := func(n int) []byte { return definitionText(fmt.Sprintf(`"worker_processes": %d`, n)) }
		require.NoError(b, b.merge(repdb, "d", "2-b a", body(1)))
		assert.Equal(b, 1, workers())
		run := b.accept()
		require.NoError(b, b.merge(repdb, "d", "2-a a", body(2)))
		require.NoError(b, run.Update(b.Context(), nothing), "a revision that does not win")
		require.NoError(b, b.merge(repdb, "d", "2-c a", body(3)))
		require.ErrorIs(b, run.Update(b.Context(), nothing), fdbjobs.ErrHalt)
		assert.Equal(b, 3, workers())
		b.remove(repdb, "d", "2-c")
		assert.Equal(b, 1, workers())
		require.NoError(b, b.merge(repdb, "d", "3-z y a", nil), "a deleted revision does not win")
		assert.Equal(b, 1, workers())
		b.remove(repdb, "d", "2-b")
		assert.Equal(b, 2, workers())

		// A completed revision ends the job of another one.
		require.NoError(b, b.merge(repdb, "d", "5-e", definitionText(`"_replication_state": "completed"`)))
		assert.Equal(b, replicator.StateCompleted, b.get(id).Condition())
		b.remove(repdb, "d", "5-e")
		assert.Equal(b, 2, workers())

		// The end is written into the winning revision and leaves the others unchanged.
		require.NoError(b, b.merge(repdb, "d", "9-f", body(4)))
		run = b.accept()
		require.NoError(b, run.Complete(b.Context(), nil))
		assert.Equal(b, "10-", b.document(repdb, "d")["_rev"].(string)[:3])
		b.remove(repdb, "d", b.document(repdb, "d")["_rev"].(string))
		assert.Equal(b, 2, workers(), "that one was not completed")
	})
}

// A definition was accepted under settings that allowed it.
func TestSettingsForbid(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create(repdb)
	strict := docstore.Open(b.db, docsPrefix, docstore.Options{
		Hooks: b.store.Documents.Hooks(func() replicator.ParseOptions { return replicator.ParseOptions{EndpointProtocols: []string{"https"}} }),
	})
	defer strict.Close()
	require.NoError(t, b.merge(repdb, "d", "1-a", definitionText("")))
	db, err := strict.Database(t.Context(), repdb)
	require.NoError(t, err)
	_, err = db.Put(t.Context(), docstore.Edit{ID: "other", Body: docjson.Must(definitionText(""))})
	var refused *replicator.ParseError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "source", refused.Field)

	secure := bytes.ReplaceAll(definitionText(""), []byte("http:"), []byte("https:"))
	require.NoError(t, b.merge(repdb, "d", "2-x", secure))
	_, err = db.Put(t.Context(), docstore.Edit{ID: "d", Rev: b.rev("2-x"), Deleted: true})
	require.NoError(t, err)
	require.Equal(t, "http://a.example/db/", b.get(b.jobID(repdb, "d")).Args.Replication.Source.String())
	// Its run finds that out and writes it into the document under any settings.
	require.NoError(t, b.accept().Fail(t.Context(), replicator.TextFault("bad_request", "no http")))
	require.Equal(t, "bad_request: no http", b.document(repdb, "d")["_replication_state_reason"])
}

// The end of a replication is written into its document, which is unchanged otherwise.
func TestEndIsWritten(t *testing.T) {
	onLossyEngines(t, func(b *bundle) {
		db := b.database(repdb)
		content := bytes.Repeat([]byte("content"), 30_000)
		upload, err := db.Upload(b.Context(), "d", bytes.NewReader(content), docstore.UploadOptions{})
		require.NoError(b, err)
		text := definitionText(`"mine": {"b":1e2,  "a":"é"}`)
		first, err := db.Put(b.Context(), docstore.Edit{
			ID: "d", Body: docjson.Must(text), Attachments: []docstore.EditAttachment{{Name: "a.txt", Type: "text/plain", Upload: upload}},
		})
		require.NoError(b, err)
		id := b.jobID(repdb, "d")
		run := b.accept()
		require.NoError(b, run.Complete(b.Context(), func(s *replicator.JobState) {
			s.Stats.DocsRead, s.Stats.DocsWritten, s.CheckpointedSourceSeq = 9, 8, json.RawMessage(`"11-g1AAAA"`)
		}))
		doc, err := db.Get(b.Context(), "d", docstore.GetOptions{Conflicts: true})
		require.NoError(b, err)
		assert.Equal(b, first.Pos+1, doc.Rev.Pos)
		assert.Equal(b, []string{doc.Rev.ID, first.ID}, doc.Path)
		assert.Empty(b, doc.Conflicts)
		kept, found := bytes.CutPrefix(doc.Body, text[:len(text)-1])
		require.True(b, found, "%s", doc.Body)
		var wrote struct {
			State  string         `json:"_replication_state"`
			At     time.Time      `json:"_replication_state_time"`
			Reason *string        `json:"_replication_state_reason"`
			Stats  map[string]any `json:"_replication_stats"`
		}
		require.NoError(b, json.Unmarshal(append([]byte("{"), bytes.TrimPrefix(kept, []byte(","))...), &wrote))
		assert.Equal(b, "completed", wrote.State)
		assert.Nil(b, wrote.Reason)
		assert.WithinDuration(b, time.Now(), wrote.At, time.Minute)
		for name, value := range map[string]any{
			"docs_read": 9., "docs_written": 8., "checkpointed_source_seq": "11-g1AAAA", "changes_pending": nil,
		} {
			assert.Equal(b, value, wrote.Stats[name], name)
		}
		assert.Contains(b, wrote.Stats, "start_time")
		attachment, found := doc.Attachment("a.txt")
		require.True(b, found)
		assert.Equal(b, first.Pos, attachment.RevPos)
		got, err := io.ReadAll(db.ReadAttachment(b.Context(), "d", attachment))
		require.NoError(b, err)
		assert.Equal(b, content, got)
		info, err := db.Info(b.Context())
		require.NoError(b, err)
		assert.EqualValues(b, len(content), info.AttachmentBytes)

		// That write is not a user's: the job stays ended.
		assert.Equal(b, replicator.StateCompleted, b.get(id).Condition())
		assert.Zero(b, b.total())
		rev, err := b.write(repdb, "d", doc.Rev.String(), append(doc.Body[:len(doc.Body)-1], `,"more":1}`...))
		require.NoError(b, err)
		assert.Equal(b, replicator.StateCompleted, b.get(id).Condition())

		// In a database that the document is replicated to, its job has ended as well.
		b.create("copy/_replicator")
		require.NoError(b, b.merge("copy/_replicator", "d", "2-"+doc.Rev.ID+" "+first.ID, doc.Body))
		assert.Equal(b, replicator.StateCompleted, b.get(b.jobID("copy/_replicator", "d")).Condition())

		// Without the state the document is replicated anew.
		rev = b.put(repdb, "d", rev, "")
		job := b.get(id)
		assert.Equal(b, replicator.StatePending, job.Condition())
		assert.Equal(b, []string{"added"}, eventTypes(job))
		assert.Zero(b, job.State.Stats)
		require.NoError(b, b.accept().Fail(b.Context(), replicator.TextFault("db_not_found", "could not open http://u:pw@h/")))
		failed := b.document(repdb, "d")
		assert.Equal(b, "failed", failed["_replication_state"])
		assert.Equal(b, "db_not_found: could not open http://u:*****@h/", failed["_replication_state_reason"])
		assert.NotContains(b, failed, "_replication_stats")
		assert.NotEqual(b, rev, failed["_rev"])
		assert.Equal(b, replicator.StateFailed, b.get(id).Condition())
	})
}

// With update_docs documents record more states of their jobs, each in the transaction that
// changes the state. These writes do not count as a user's.
func TestUpdateDocs(t *testing.T) {
	onEngines(t, func(b *bundle) {
		b.reopen(jobs.Options{UpdateDocs: true})
		b.db.on.Store(true)
		b.create(repdb)
		first := b.put(repdb, "d", "", `"continuous": true, "mine": 1`)
		jobID := b.jobID(repdb, "d")
		name := parsedID(b.get(jobID).ReplicationID())
		rev := first
		says := func(changed bool, state, reason any) map[string]any {
			b.Helper()
			doc := b.document(repdb, "d")
			assert.Equal(b, changed, doc["_rev"] != rev, "written: %v", doc)
			rev = doc["_rev"].(string)
			assert.Equal(b, state, doc["_replication_state"])
			assert.Equal(b, reason, doc["_replication_state_reason"])
			assert.EqualValues(b, 1, doc["mine"])
			return doc
		}

		run := b.accept()
		says(false, nil, nil)
		require.NoError(b, run.Identify(b.Context(), name))
		doc := says(true, "triggered", nil)
		assert.Equal(b, name.String(), doc["_replication_id"])
		at, err := time.Parse(time.RFC3339, doc["_replication_state_time"].(string))
		require.NoError(b, err)
		assert.WithinDuration(b, time.Now(), at, time.Minute)
		require.NoError(b, run.Identify(b.Context(), name))
		require.NoError(b, run.Update(b.Context(), func(s *replicator.JobState) { s.Stats.DocsRead = 5 }))
		require.NoError(b, run.Stop(b.Context(), "", "", nil))
		run = b.accept()
		require.NoError(b, run.Identify(b.Context(), name))
		says(false, "triggered", nil)
		assert.EqualValues(b, 5, b.get(jobID).State.Stats.DocsRead, "it is the same job")

		crash := func(reason string) {
			require.NoError(b, run.Crash(b.Context(), time.Now().Add(-time.Second), 1, replicator.TextFault("db_not_found", reason)))
			assert.Equal(b, replicator.StateCrashing, b.get(jobID).Condition())
			run = b.accept()
		}
		crash("could not open http://u:pw@h/")
		assert.Equal(b, name.String(), says(true, "error", "db_not_found: could not open http://u:*****@h/")["_replication_id"])
		crash("could not open http://u:pw@h/")
		says(false, "error", "db_not_found: could not open http://u:*****@h/")
		crash("gone")
		says(true, "error", "db_not_found: gone")
		require.NoError(b, run.Identify(b.Context(), name))
		says(true, "triggered", nil)
		require.NoError(b, run.Restart(b.Context(), "another filter"))
		run = b.accept()
		require.NoError(b, run.Identify(b.Context(), id('a')))
		assert.Equal(b, id('a').String(), says(true, "triggered", nil)["_replication_id"])
		require.NoError(b, run.Complete(b.Context(), nil))
		says(true, "completed", nil)

		// A job whose id another job holds is not triggered. A transient job has no document.
		b.replicate(`"doc_ids": ["y"]`)
		other := b.accept()
		require.NoError(b, other.Identify(b.Context(), id('c')))
		rev = b.put(repdb, "twin", "", `"continuous": true, "mine": 2`)
		run = b.accept()
		var collision *jobs.Collision
		require.ErrorAs(b, run.Identify(b.Context(), id('c')), &collision)
		assert.Equal(b, rev, b.document(repdb, "twin")["_rev"])
		// A document whose definition has changed is not written.
		rev = b.put(repdb, "twin", rev, "")
		require.ErrorIs(b, run.Crash(b.Context(), time.Now(), 1, replicator.TextFault("", "late")), fdbjobs.ErrHalt)
		assert.Equal(b, rev, b.document(repdb, "twin")["_rev"])
		run = b.accept()
		b.remove(repdb, "twin", rev)
		require.ErrorIs(b, run.Identify(b.Context(), id('d')), fdbjobs.ErrHalt)
		require.ErrorIs(b, run.Stop(b.Context(), "", "", nil), fdbjobs.ErrHalt)
		assert.NotContains(b, b.reservations(), id('d').String())
	})
}

// A state that has not ended, written by a user or another server, does not keep the job from
// running.
func TestDocumentsTriggeredElsewhere(t *testing.T) {
	onLossyEngines(t, func(b *bundle) {
		for _, state := range []string{"triggered", "error", "none"} {
			members := fmt.Sprintf(`"doc_ids": [%q], "_replication_state": %q, "_replication_state_time": "2020-01-01T00:00:00Z", `+
				`"_replication_state_reason": "x", "_replication_id": "abc"`, state, state)
			members = strings.Replace(members, `"_replication_state": "none", `, "", 1)
			for doc, write := range map[string]func(string){
				state:                 func(doc string) { b.put(repdb, doc, "", members) },
				"replicated " + state: func(doc string) { require.NoError(b, b.merge(repdb, doc, "3-c b a", definitionText(members))) },
			} {
				write(doc)
				jobID := b.jobID(repdb, doc)
				require.Equal(b, replicator.StatePending, b.get(jobID).Condition())
				run := b.accept()
				require.Equal(b, jobID, run.Job().ID)
				// The state that was written elsewhere is removed.
				said := b.document(repdb, doc)
				rev := said["_rev"].(string)
				for _, member := range []string{"_replication_state", "_replication_state_time", "_replication_state_reason", "_replication_id"} {
					require.NotContains(b, said, member)
				}
				require.Equal(b, []any{state}, said["doc_ids"])
				b.put(repdb, doc, rev, members+`, "mine": 1`)
				require.NoError(b, run.Update(b.Context(), nothing), "a user's own field")
				// So is one that is written while the job waits.
				require.NoError(b, run.Stop(b.Context(), "", "", nil))
				run = b.accept()
				require.Equal(b, jobID, run.Job().ID)
				require.NotContains(b, b.document(repdb, doc), "_replication_state")
				require.EqualValues(b, 1, b.document(repdb, doc)["mine"])
				require.NoError(b, run.Complete(b.Context(), nil))
				require.Equal(b, "completed", b.document(repdb, doc)["_replication_state"])
				// A document without a state is not changed.
				b.put(repdb, doc, b.document(repdb, doc)["_rev"].(string), fmt.Sprintf(`"doc_ids": [%q]`, state))
				rev = b.document(repdb, doc)["_rev"].(string)
				run = b.accept()
				require.Equal(b, rev, b.document(repdb, doc)["_rev"])
				require.NoError(b, run.Complete(b.Context(), nil))
				// The job restarts with the same definition.
				b.put(repdb, doc, b.document(repdb, doc)["_rev"].(string), members)
				require.Equal(b, replicator.StatePending, b.get(jobID).Condition())
				require.NoError(b, b.accept().Fail(b.Context(), replicator.TextFault("", "no")))
			}
		}
	})
}

// The document changes between the last update of a run and its end.
func TestEndOfAChangedDocument(t *testing.T) {
	onLossyEngines(t, func(b *bundle) {
		begin := func(id string) (run *jobs.Run, rev string) {
			rev = b.put(repdb, id, "", fmt.Sprintf(`"doc_ids": [%q]`, id))
			return b.accept(), rev
		}
		// A field of the user's own changes: the end is written beside it.
		run, rev := begin("own")
		b.put(repdb, "own", rev, `"doc_ids": ["own"], "mine": 1`)
		require.NoError(b, run.Complete(b.Context(), nil))
		doc := b.document(repdb, "own")
		assert.Equal(b, "completed", doc["_replication_state"])
		assert.EqualValues(b, 1, doc["mine"])

		// The definition changes or the document is deleted: the run is halted and writes
		// nothing.
		run, rev = begin("changed")
		b.put(repdb, "changed", rev, `"doc_ids": ["other"]`)
		require.ErrorIs(b, run.Fail(b.Context(), replicator.TextFault("", "late")), fdbjobs.ErrHalt)
		assert.NotContains(b, b.document(repdb, "changed"), "_replication_state")
		next := b.accept()
		assert.Equal(b, []string{"other"}, next.Job().Args.Replication.DocIDs)
		require.NoError(b, next.Complete(b.Context(), nil))

		run, rev = begin("deleted")
		rev = b.remove(repdb, "deleted", rev)
		require.ErrorIs(b, run.Complete(b.Context(), nil), fdbjobs.ErrHalt)
		_, err := b.database(repdb).Get(b.Context(), "deleted", docstore.GetOptions{})
		require.ErrorIs(b, err, docstore.ErrDeleted)
		again := b.put(repdb, "deleted", rev, `"doc_ids": ["deleted"]`)
		require.ErrorIs(b, run.Complete(b.Context(), nil), fdbjobs.ErrHalt, "the job is another one")
		assert.Equal(b, again, b.document(repdb, "deleted")["_rev"])
		require.NoError(b, b.accept().Complete(b.Context(), nil))

		// A user may write that the document is completed. The job goes on and has its own end.
		run, rev = begin("said")
		b.put(repdb, "said", rev, `"doc_ids": ["said"], "_replication_state": "completed"`)
		require.NoError(b, run.Update(b.Context(), nothing))
		require.NoError(b, run.Fail(b.Context(), replicator.TextFault("", "but no")))
		assert.Equal(b, "failed", b.document(repdb, "said")["_replication_state"])

		// A conflicting revision with the same definition arrives and wins: the end is written
		// into it.
		run, rev = begin("conflict")
		require.NoError(b, b.merge(repdb, "conflict", "7-x", definitionText(`"doc_ids": ["conflict"]`)))
		require.NoError(b, run.Complete(b.Context(), nil))
		doc = b.document(repdb, "conflict")
		assert.Equal(b, "completed", doc["_replication_state"])
		assert.Equal(b, "8-", doc["_rev"].(string)[:2])
		other, err := b.database(repdb).Get(b.Context(), "conflict", docstore.GetOptions{Rev: b.rev(rev)})
		require.NoError(b, err)
		assert.NotContains(b, string(other.Body), "_replication_state")
	})
}

// A document without room for the end stays as it is, and its job ends.
func TestEndThatDoesNotFit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	db := b.create(repdb)
	written := false
	for size := docstore.MaxLeafSize - 50; !written; size -= 5 {
		upload, err := db.Upload(t.Context(), "d", strings.NewReader("x"), docstore.UploadOptions{})
		require.NoError(t, err)
		_, err = db.Put(t.Context(), docstore.Edit{
			ID: "d", Body: docjson.Must(definitionText("")),
			Attachments: []docstore.EditAttachment{{Name: "a", Type: strings.Repeat("t", size), Upload: upload}},
		})
		if written = err == nil; !written {
			require.ErrorIs(t, err, docstore.ErrTooLarge)
		}
	}
	require.NoError(t, b.accept().Complete(t.Context(), nil))
	require.NotContains(t, b.document(repdb, "d"), "_replication_state")
	require.Equal(t, replicator.StateCompleted, b.get(b.jobID(repdb, "d")).Condition())
}

// If two documents describe the same replication, the run of the second job gets the document of
// the first one, and whether that is transient (RFC 016, "Replication ID Collisions").
func TestCollisionsOfDocuments(t *testing.T) {
	onLossyEngines(t, func(b *bundle) {
		name, err := b.definition("").ID(b.store.ServerUUID, "")
		require.NoError(b, err)
		rev := b.put(repdb, "first", "", "")
		b.put(repdb, "second", "", "")
		b.put(repdb, "third", "", "")
		first, second := b.jobID(repdb, "first"), b.jobID(repdb, "second")
		assert.Equal(b, first, b.get(name.String()).ID)
		runs := map[string]*jobs.Run{}
		for range 3 {
			run := b.accept()
			runs[run.Job().ID] = run
		}
		var collision *jobs.Collision
		require.ErrorAs(b, runs[second].Identify(b.Context(), name), &collision)
		assert.Equal(b, &jobs.Collision{ReplicationID: name.String(), JobID: first, Database: repdb, DocID: "first"}, collision)
		require.NoError(b, runs[first].Identify(b.Context(), name))

		// Another definition releases the id, and so do the end and a deletion.
		b.put(repdb, "first", rev, `"doc_ids": ["x"]`)
		require.NoError(b, runs[first].Release(b.Context()), "another run would wait for its end")
		require.NoError(b, runs[second].Identify(b.Context(), name))
		assert.Equal(b, second, b.get(name.String()).ID)
		third := b.jobID(repdb, "third")
		require.ErrorAs(b, runs[third].Identify(b.Context(), name), &collision)
		require.NoError(b, runs[second].Complete(b.Context(), nil))
		require.NoError(b, runs[third].Identify(b.Context(), name))
		_, err = b.store.Requests.Replicate(b.Context(), b.definition(""), nil)
		require.ErrorAs(b, err, &collision)
		b.remove(repdb, "third", b.document(repdb, "third")["_rev"].(string))
		transient := b.replicate("")

		// A transient owner is reported as such.
		b.put(repdb, "fourth", "", "")
		require.ErrorIs(b, runs[first].Update(b.Context(), nothing), fdbjobs.ErrHalt)
		for {
			run := b.accept()
			if run.Job().ID == b.jobID(repdb, "fourth") {
				require.ErrorAs(b, run.Identify(b.Context(), name), &collision)
				break
			}
		}
		assert.Equal(b, &jobs.Collision{ReplicationID: name.String(), JobID: transient.ID, Transient: true}, collision)
	})
}

// Two documents exchange their definitions while their jobs are pending, without a collision.
func TestExchangedDefinitions(t *testing.T) {
	onLossyEngines(t, func(b *bundle) {
		x, y := `"doc_ids": ["x"]`, `"doc_ids": ["y"]`
		one, other := b.put(repdb, "one", "", x), b.put(repdb, "other", "", y)
		b.put(repdb, "one", one, y)
		b.put(repdb, "other", other, x)
		for range 2 {
			run := b.accept()
			name := parsedID(run.Job().Args.ReplicationID)
			require.NoError(b, run.Identify(b.Context(), name))
		}
		assert.Len(b, b.reservations(), 2)
	})
}
