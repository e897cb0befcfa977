package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/pkg/config"
	"settee/pkg/couch/couchtest"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/faultkv"
	"settee/pkg/kv/memkv"
	"settee/pkg/tuple"
	"settee/replicator"
	"settee/replicator/jobs"
	"settee/replicator/scheduler"
)

// The databases that every server has are there from the start, and stay over a restart.
func TestSystemDatabases(t *testing.T) {
	store := aStore(t)
	for range 2 {
		assert.Zero(t, serveNode(t, store).end(syscall.SIGTERM))
	}
	db, err := kv.Open(t.Context(), store)
	require.NoError(t, err)
	defer func() { assert.NoError(t, db.Close()) }()
	docs := docstore.Open(db, tuple.NewSubspace("docs").Bytes(), docstore.Options{})
	defer docs.Close()
	var names []string
	for name, err := range docs.Databases(t.Context(), docstore.ListOptions{}) {
		require.NoError(t, err)
		names = append(names, name)
	}
	assert.Equal(t, []string{"_replicator", "_users"}, names)
}

// parts are what serve puts together, on a store with faults.
type parts struct {
	*testing.T
	jobs *jobs.Store
	docs *docstore.Store
}

func assemble(t *testing.T, sets ...string) *parts {
	db, err := memkv.Open(memkv.Options{})
	require.NoError(t, err)
	faulty := faultkv.Wrap(db, faultkv.Options{Seed: 1, Rates: faultkv.Rates{
		faultkv.Conflict: 0.05, faultkv.UnknownCommitted: 0.1, faultkv.UnknownNotCommitted: 0.05, faultkv.Delay: 0.05,
	}})
	cfg, _, err := config.Load(config.Options{Flags: sets})
	require.NoError(t, err)
	layer, prefix := fdbjobs.Open(faulty, []byte("jobs")), []byte("docs")
	p := &parts{T: t}
	p.jobs, err = jobs.Open(t.Context(), faulty, layer, jobs.Options{Documents: prefix})
	require.NoError(t, err)
	live, err := config.OpenLive(t.Context(), cfg, config.LiveOptions{Store: faulty, Prefix: []byte("config/")})
	require.NoError(t, err)
	p.docs = openDocuments(faulty, prefix, p.jobs, live.Current)
	n := node{live: live, log: zerolog.Nop(), jobs: p.jobs, docs: p.docs}
	n.scheduler = scheduler.New(scheduler.Options{Jobs: p.jobs, Config: live.Current, Node: "n"})
	var running sync.WaitGroup
	running.Go(func() { _ = n.scheduler.Run(context.Background()) })
	n.keepUp(layer)
	t.Cleanup(func() {
		assert.NoError(t, n.shutdown())
		running.Wait()
		p.docs.Close()
		layer.Close()
		assert.NoError(t, db.Close())
	})
	// As nodes do that start together.
	var creating sync.WaitGroup
	for range 3 {
		creating.Go(func() { assert.NoError(t, createDatabases(context.Background(), p.docs)) })
	}
	creating.Wait()
	return p
}

func (p *parts) put(id, format string, args ...any) error {
	db, err := p.docs.Database(p.Context(), "_replicator")
	require.NoError(p, err)
	_, err = db.Put(p.Context(), docstore.Edit{ID: id, Body: fmt.Appendf(nil, format, args...)})
	return err
}

// state waits for a document to say how its replication ended.
func (p *parts) state(id string) (members map[string]any) {
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

func (p *parts) listed() (ids []string) {
	list, err := p.jobs.List(p.Context(), jobs.ListOptions{Limit: jobs.MaxLimit})
	require.NoError(p, err)
	for _, job := range list.Jobs {
		ids = append(ids, *job.Args.DocID)
	}
	slices.Sort(ids)
	return ids
}

// Documents make replications, which are run and written to their ends.
func TestReplicatorDatabase(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		source, target := peer.DB(t, "docsource"), peer.DB(t, "doctarget")
		couchtest.Populate(t, source, couchtest.Population{Seed: 5, Docs: 60, Conflicted: 5, Deleted: 5})
		p := assemble(t, "replicator/retries_per_request=0", "replicator/valid_proxy_protocols=http")

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

		// With the database everything ends that it has begun.
		db, err := p.docs.Database(t.Context(), "_replicator")
		require.NoError(t, err)
		live := replicator.PersistentJobID(db.Instance(), "live")
		require.NoError(t, db.Delete(t.Context()))
		assert.Empty(t, p.listed())
		_, err = p.jobs.Get(t.Context(), live)
		require.ErrorIs(t, err, jobs.ErrNotFound)
		require.NoError(t, createDatabases(t.Context(), p.docs))
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
