package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/cmd/settee/internal/lifecycle"
	"settee/pkg/config"
	"settee/pkg/couch/couchtest"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/faultkv"
	"settee/pkg/sealed"
	"settee/replicator"
	"settee/replicator/jobs"
)

// The databases that every server has exist from the start, and survive a restart.
func TestSystemDatabases(t *testing.T) {
	t.Parallel()
	store := aStore(t)
	for range 2 {
		assert.Zero(t, serveNode(t, store).end(syscall.SIGTERM))
	}
	db, err := kv.Open(t.Context(), store, kv.Options{})
	require.NoError(t, err)
	defer func() { assert.NoError(t, db.Close()) }()
	docs := docstore.Open(db, docsPrefix, docstore.Options{})
	defer docs.Close()
	var names []string
	for name, err := range docs.Databases(t.Context(), docstore.ListOptions{}) {
		require.NoError(t, err)
		names = append(names, name)
	}
	assert.Equal(t, []string{"_replicator", "_users"}, names)
}

// runParts starts parts of a node, and returns a function that stops them.
func runParts(t *testing.T, n *node, parts ...lifecycle.Part) (stop func()) {
	t.Helper()
	n.log, n.failed = zerolog.Nop(), make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	started, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- lifecycle.Run(ctx, append(parts, lifecycle.Part{Start: func(context.Context) error {
			close(started)
			return nil
		}}), lifecycle.Options{
			Failed: n.failed, Grace: n.gracePeriod, Ending: func() context.Context { return untilDrained(0) }, CutOff: func() {},
		})
	}()
	select {
	case <-started:
	case err := <-ended:
		require.NoError(t, err, "starting the node")
	}
	return func() {
		cancel()
		assert.NoError(t, <-ended)
	}
}

// documents is a node without a frontend, on a store with faults.
type documents struct {
	*testing.T
	*node
}

func serveDocuments(t *testing.T, sets ...string) *documents {
	db := enginetest.Memory(t)
	faulty := faultkv.Wrap(db, faultkv.Options{Seed: 1, Rates: faultkv.Rates{
		faultkv.Conflict: 0.05, faultkv.UnknownCommitted: 0.1, faultkv.UnknownNotCommitted: 0.05, faultkv.Delay: 0.05,
	}})
	cfg, _, err := config.Load(config.Options{Flags: sets})
	require.NoError(t, err)
	n := &node{cfg: cfg, db: faulty, keys: new(sealed.Keys)}
	stop := runParts(t, n,
		lifecycle.Part{Start: n.openConfiguration}, n.jobsPart(), n.documentsPart(), lifecycle.Worker(n.runUpkeep), n.replicationPart())
	t.Cleanup(func() {
		stop()
	})
	// As by nodes that start at the same time.
	var creating sync.WaitGroup
	for range 3 {
		creating.Go(func() { assert.NoError(t, n.createDatabases(context.Background())) })
	}
	creating.Wait()
	return &documents{t, n}
}

// put writes a new document. A commit of unknown result is repeated, and the result is a conflict if the document's job
// has changed it meanwhile.
func (p *documents) put(id, format string, args ...any) error {
	db, err := p.docs.Database(p.Context(), "_replicator")
	require.NoError(p, err)
	_, err = db.Put(p.Context(), docstore.Edit{ID: id, Body: docjson.Must(fmt.Appendf(nil, format, args...))})
	if errors.Is(err, docstore.ErrConflict) {
		doc, err := db.Get(p.Context(), id, docstore.GetOptions{})
		require.NoError(p, err)
		require.Greater(p, doc.Rev.Pos, int64(1), "the job has changed it")
		return nil
	}
	return err
}

// state waits until a document records how its replication ended.
func (p *documents) state(id string) (members map[string]any) {
	p.Helper()
	require.Eventually(p, func() bool {
		db, err := p.docs.Database(p.Context(), "_replicator")
		require.NoError(p, err)
		doc, err := db.Get(p.Context(), id, docstore.GetOptions{})
		require.NoError(p, err)
		members = nil
		require.NoError(p, json.Unmarshal(doc.Body, &members))
		return members["_replication_state"] != nil
	}, limit, 10*time.Millisecond, id)
	return members
}

func (p *documents) listed() (ids []string) {
	list, err := p.jobs.Lists.List(p.Context(), jobs.Filter{}, jobs.ListOptions{Limit: jobs.MaxLimit})
	require.NoError(p, err)
	for _, job := range list.Jobs {
		ids = append(ids, *job.Args.DocID)
	}
	slices.Sort(ids)
	return ids
}

// Documents start replications, and get the results.
func TestReplicatorDatabase(t *testing.T) {
	t.Parallel()
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		source, target := peer.DB(t, "docsource"), peer.DB(t, "doctarget")
		couchtest.Populate(t, source, couchtest.Population{Seed: 5, Docs: 60, Conflicted: 5, Deleted: 5})
		p := serveDocuments(t, "replicator/retries_per_request=0", "replicator/valid_proxy_protocols=http",
			"replicator/min_backoff_penalty_sec=1") // a run that still ends may write the checkpoint of the next one

		require.NoError(t, p.put("once", `{"source":%q,"target":%q,"mine":[1]}`, source, target))
		ended := p.state("once")
		assert.Equal(t, "completed", ended["_replication_state"])
		assert.Equal(t, []any{1.}, ended["mine"])
		assert.Positive(t, ended["_replication_stats"].(map[string]any)["docs_written"])
		couchtest.SameTrees(t, source, target)
		assert.Empty(t, p.listed())

		require.NoError(t, p.put("live", `{"source":%q,"target":%q,"continuous":true}`, source, target))
		require.NoError(t, p.put("twin", `{"source":%q,"target":%q,"continuous":true}`, source, target))
		assert.Equal(t, "failed", p.state("twin")["_replication_state"])
		require.NoError(t, p.put("crashing", `{"source":%q,"target":%q}`, source+"-nosuchdb", target))
		assert.Equal(t, []string{"crashing", "live"}, p.listed())
		couchtest.Populate(t, source, couchtest.Population{Seed: 6, Docs: 5})
		require.Eventually(t, func() bool {
			status, all := request(t, "GET", target, "")
			_, want := request(t, "GET", source, "")
			return status == 200 && docCount(t, all) == docCount(t, want)
		}, limit, 10*time.Millisecond)

		var refused *replicator.ParseError
		require.ErrorAs(t, p.put("bad", `{"source":%q,"target":%q,"proxy":"socks5://h/"}`, source, target), &refused)
		assert.Equal(t, "proxy", refused.Field)

		// When the database is deleted, its replications end.
		db, err := p.docs.Database(t.Context(), "_replicator")
		require.NoError(t, err)
		live := replicator.PersistentJobID(db.Instance(), "live")
		require.NoError(t, db.Delete(t.Context()))
		assert.Empty(t, p.listed())
		_, err = p.jobs.Lists.Get(t.Context(), live)
		require.ErrorIs(t, err, jobs.ErrNotFound)
		require.NoError(t, p.createDatabases(t.Context()))
		require.NoError(t, p.put("live", `{"source":%q,"target":%q}`, source, target))
		assert.Equal(t, "completed", p.state("live")["_replication_state"])
	})
}

func docCount(t *testing.T, info string) int {
	var database struct {
		DocCount int `json:"doc_count"`
	}
	require.NoError(t, json.Unmarshal([]byte(info), &database))
	return database.DocCount
}
