package worker_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/couch/couchtest"
	"settee/replicator"
	"settee/replicator/worker"
)

// sized is a target that refuses requests of more than limit bytes, and records their sizes.
type sized struct {
	*couchtest.Hostile

	mu      sync.Mutex
	limit   int64 // 0: none
	hangsUp bool
	relents int // number of requests after which the limit is removed

	sizes   []int64 // of the accepted requests
	refused int
}

func (s *sized) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || r.ContentLength < 1000 {
		s.Hostile.ServeHTTP(w, r)
		return
	}
	s.mu.Lock()
	if s.relents > 0 && len(s.sizes) >= s.relents {
		s.limit = 0
	}
	over := s.limit > 0 && r.ContentLength > s.limit
	if over {
		s.refused++
	} else {
		s.sizes = append(s.sizes, r.ContentLength)
	}
	s.mu.Unlock()
	switch {
	case over && s.hangsUp:
		panic(http.ErrAbortHandler)
	case over:
		w.Header().Set("Connection", "close")
		refuse(w, http.StatusRequestEntityTooLarge, `{"error":"too_large","reason":"the request entity is too large"}`)
	default:
		s.Hostile.ServeHTTP(w, r)
	}
}

// many prepares documents of about a kilobyte.
func (p *hostilePair) many(n int) {
	for i := range n {
		p.source.Add(fmt.Sprintf("many%d", i), 900)
	}
}

func (p *hostilePair) to(t *testing.T, target http.Handler) {
	p.transport = couchtest.Pipe(t, map[string]http.Handler{"a.example": p.source, "b.example": target})
}

func TestPortionsStayBelowTheTargetsLimit(t *testing.T) {
	testkit.SkipRace(t)
	testkit.Bubble(t, func(t *testing.T) {
		p := newHostilePair(t)
		p.many(10_000)
		target := &sized{Hostile: p.target, limit: 20_000}
		p.to(t, target)
		var listed []replicator.Failure
		result, err := p.run(t, func(cfg *worker.Config, _ *worker.Job) {
			cfg.NoCompression = true
			cfg.ListRefused = func(_ context.Context, refused []replicator.Failure, _ int64) error {
				listed = append(listed, refused...)
				return nil
			}
		})
		require.NoError(t, err)
		// One document is too large in itself.
		require.Len(t, listed, 1)
		listed[0].Time = listed[0].Time.UTC()
		require.Equal(t, "large", listed[0].ID)
		require.Equal(t, http.StatusRequestEntityTooLarge, listed[0].Status)
		require.EqualValues(t, 1, result.Stats.DocWriteFailures)
		lacking, err := p.target.Lacks(p.source, nil)
		require.NoError(t, err)
		require.Equal(t, []string{"large"}, lacking)
		// Requests that are too large are rare, although all portions under way may be refused when a larger size is tried.
		require.Less(t, target.refused, len(target.sizes)/5)
		var total int64
		for _, size := range target.sizes {
			total += size
		}
		require.Greater(t, total/int64(len(target.sizes)), int64(12_000))
	})
}

func TestPortionsGrowBack(t *testing.T) {
	testkit.SkipRace(t)
	testkit.Bubble(t, func(t *testing.T) {
		p := newHostilePair(t)
		p.many(16_000)
		target := &sized{Hostile: p.target, limit: 50_000, relents: 50}
		p.to(t, target)
		_, err := p.run(t, func(cfg *worker.Config, _ *worker.Job) { cfg.NoCompression = true })
		require.NoError(t, err)
		lacking, err := p.target.Lacks(p.source, nil)
		require.NoError(t, err)
		require.Subset(t, []string{"large"}, lacking, "it may come before the target relents")
		var before, after int64
		for i, size := range target.sizes {
			if i < target.relents {
				before = max(before, size)
			} else {
				after = max(after, size)
			}
		}
		require.LessOrEqual(t, before, int64(50_000))
		require.Greater(t, after, int64(100_000))
	})
}

func TestTargetsThatHangUpOnLargeRequests(t *testing.T) {
	t.Parallel()
	// On real connections, whose reset may come before or after the answer.
	source, target := couchtest.NewHostile(1), couchtest.NewHostile(2)
	for i := range 500 {
		source.Add(fmt.Sprintf("d%d", i), 2_000)
	}
	limited := &sized{Hostile: target, limit: 200_000, hangsUp: true}
	servers := [2]*httptest.Server{httptest.NewServer(source), httptest.NewServer(limited)}
	for _, server := range servers {
		t.Cleanup(server.Close)
	}
	rep := replication(t, servers[0].URL+"/db", servers[1].URL+"/db")
	_, err := worker.Run(t.Context(), worker.Job{Replication: rep}, testConfig(), &recorder{})
	require.NoError(t, err)
	lacking, err := target.Lacks(source, nil)
	require.NoError(t, err)
	require.Empty(t, lacking)
	require.NotZero(t, limited.refused)

	// One that closes every connection with a longer POST gets each document alone.
	target2 := &sized{Hostile: couchtest.NewHostile(3), limit: 1, hangsUp: true}
	server := httptest.NewServer(target2)
	t.Cleanup(server.Close)
	run(t, replication(t, servers[0].URL+"/db", server.URL+"/db"), func(cfg *worker.Config) { cfg.RetriesPerRequest = 0 })
	lacking, err = target2.Lacks(source, nil)
	require.NoError(t, err)
	require.Empty(t, lacking)
}

// TestServersOwnLimits has targets that refuse documents of more than 200 kB.
func TestServersOwnLimits(t *testing.T) {
	t.Parallel()
	t.Run("PouchDB Server", func(t *testing.T) {
		t.Parallel()
		server := couchtest.Start(t)
		setting := server.URL + "/_config/couchdb/max_document_size"
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, setting, strings.NewReader(`"200kb"`))
		require.NoError(t, err)
		request.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		answer.Body.Close()
		require.Equal(t, http.StatusOK, answer.StatusCode)
		refusesLargeDocuments(t, server)
	})
	t.Run("CouchDB", func(t *testing.T) {
		t.Parallel()
		// The tests run one after the other, because the last one changes a setting.
		server := couchtest.StartCouchDB(t, map[string]map[string]string{
			"couchdb": {"max_document_size": "200000"}, "chttpd": {"max_http_request_size": "6000000"},
		})
		t.Run("documents", func(t *testing.T) { refusesLargeDocuments(t, server) })
		t.Run("attachments", func(t *testing.T) { refusesLargeAttachments(t, server) })
		t.Run("verify", func(t *testing.T) { verifyComparesDecodedAttachments(t, server) })
	})
}

func refusesLargeDocuments(t *testing.T, peer couchtest.Peer) {
	target := peer.DB(t, "target")
	source := couchtest.NewHostile(1)
	for i := range 400 {
		source.Add(fmt.Sprintf("d%03d", i), 2_000)
	}
	source.Add("large", 500_000)
	source.Add("huge", 5_000_000)
	served := httptest.NewServer(source)
	t.Cleanup(served.Close)
	var r refusals
	result := run(t, replication(t, served.URL+"/db", target), r.collect)
	require.EqualValues(t, 400, result.Stats.DocsWritten)
	require.ElementsMatch(t, []string{"large", "huge"}, tooLarge(t, &r))
}

// CouchDB refuses a request by its length before it reads the body, and closes the connection. The document is listed
// although the answer comes while the attachment is sent.
func refusesLargeAttachments(t *testing.T, peer couchtest.Peer) {
	testkit.SkipRace(t)
	target := peer.DB(t, "target")
	source := couchtest.NewHostile(1)
	for i := range 40 {
		source.Add(fmt.Sprintf("d%03d", i), 100, 10_000)
	}
	var large []string
	for i := range 20 {
		large = append(large, fmt.Sprintf("large%03d", i))
		source.Add(large[i], 100, 8<<20)
	}
	served := httptest.NewServer(source)
	t.Cleanup(served.Close)
	var r refusals
	result := run(t, replication(t, served.URL+"/db", target), r.collect)
	require.EqualValues(t, 40, result.Stats.DocsWritten)
	require.ElementsMatch(t, large, tooLarge(t, &r))
}

// tooLarge returns the ids of the refused documents, of which each was refused for its size.
func tooLarge(t *testing.T, r *refusals) (ids []string) {
	t.Helper()
	for _, f := range r.all {
		require.Equal(t, http.StatusRequestEntityTooLarge, f.Status)
		ids = append(ids, f.ID)
	}
	return ids
}
