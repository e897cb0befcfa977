package worker_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/couch/couchtest"
	"settee/pkg/sockopt"
	"settee/replicator"
	"settee/replicator/worker"
)

// verifying is a call of Verify in a test.
type verifying struct {
	what worker.Verification
	cfg  worker.Config
	stop func() // ends what.Stop

	mu    sync.Mutex
	found []worker.Difference
}

func newVerifying(rep *replicator.Replication, edit ...func(*verifying)) *verifying {
	stopped, stop := context.WithCancel(context.Background())
	v := &verifying{
		what: worker.Verification{Replication: rep, Wait: time.Millisecond, Stop: stopped}, cfg: testConfig(), stop: stop,
	}
	v.what.Found = func(d worker.Difference) error {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.found = append(v.found, d)
		return nil
	}
	for _, e := range edit {
		e(v)
	}
	return v
}

func both(v *verifying)        { v.what.Both = true }
func attachments(v *verifying) { v.what.Attachments = true }

// verify compares two databases. It returns the differences in a fixed order.
func verify(t testing.TB, rep *replicator.Replication, edit ...func(*verifying)) (worker.Verified, []worker.Difference) {
	t.Helper()
	v := newVerifying(rep, edit...)
	counts, err := worker.Verify(t.Context(), v.what, v.cfg)
	require.NoError(t, err)
	slices.SortFunc(v.found, func(a, b worker.Difference) int {
		return strings.Compare(a.ID+" "+a.Rev+nameOf(a), b.ID+" "+b.Rev+nameOf(b))
	})
	var wrong int64
	for _, d := range v.found {
		if d.Attachment != nil {
			wrong++
		}
	}
	require.Equal(t, wrong, counts.DifferentAttachments)
	require.EqualValues(t, len(v.found), counts.MissingAtTarget+counts.MissingAtSource+counts.DifferentAttachments)
	require.Equal(t, len(v.found) == 0, counts.Equal())
	return counts, v.found
}

func nameOf(d worker.Difference) string {
	if d.Attachment == nil {
		return ""
	}
	return d.Attachment.Name
}

// leaves returns the number of leaves of a database.
func leaves(t testing.TB, dbURL string) (n int64) {
	t.Helper()
	for _, tree := range couchtest.Trees(t, dbURL) {
		n += int64(len(tree.Leaves))
	}
	return n
}

// rev returns a revision id with a hash of one repeated digit, as CouchDB writes them.
func rev(generation int, digit string) string {
	return fmt.Sprintf("%d-%s", generation, strings.Repeat(digit, 32))
}

// plant writes revisions as a replication does.
func plant(t testing.TB, dbURL string, docs ...string) {
	t.Helper()
	post(t, dbURL+"/_bulk_docs", `{"new_edits":false,"docs":[`+strings.Join(docs, ",")+`]}`)
}

// planted returns a document with a history of revisions, the latest first, and further members.
func planted(id string, generation int, digits, more string) string {
	var ids []string
	for _, digit := range strings.Split(digits, "") {
		ids = append(ids, strings.Repeat(digit, 32))
	}
	history, _ := json.Marshal(ids)
	return fmt.Sprintf(`{"_id":%q,"_rev":%q,"_revisions":{"start":%d,"ids":%s}%s}`,
		id, rev(generation, digits[:1]), generation, history, more)
}

func TestVerifyListsEveryKindOfMissingLeaf(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		source, target := pair(t, peer, mixed(71))
		const deleted = `,"_deleted":true`
		common := []string{
			planted("edited", 1, "a", ""), planted("deleted", 1, "a", ""), planted("conflict", 2, "cb", ""),
			planted("newer", 1, "a", ""), planted("swapped", 2, "ba", ""),
		}
		plant(t, source, common...)
		rep := replication(t, source, target)
		run(t, rep)
		counts, found := verify(t, rep, both, attachments)
		require.Empty(t, found)
		require.Equal(t, 2*leaves(t, source), counts.Checked)
		require.Positive(t, counts.Attachments)

		plant(t, source,
			planted("missing", 1, "a", ""),
			planted("buried", 2, "ba", deleted),
			planted("edited", 2, "ba", ""),
			planted("deleted", 2, "da", deleted),
			planted("conflict", 2, "ab", ""), planted("conflict", 2, "9b", deleted),
			planted("_design/d", 1, "a", `,"views":{}`),
			planted("swapped", 2, "ca", ""), // wins there, and the target's winner is a conflict
		)
		plant(t, target, planted("newer", 2, "ba", ""), planted("extra", 1, "a", ""), planted("extra", 2, "ef", deleted))

		want := []worker.Difference{
			{ID: "_design/d", Rev: rev(1, "a"), Missing: "target", Winner: true},
			{ID: "buried", Rev: rev(2, "b"), Missing: "target", Winner: true, Deleted: true},
			{ID: "conflict", Rev: rev(2, "9"), Missing: "target", Deleted: true},
			{ID: "conflict", Rev: rev(2, "a"), Missing: "target"},
			{ID: "deleted", Rev: rev(2, "d"), Missing: "target", Winner: true, Deleted: true},
			{ID: "edited", Rev: rev(2, "b"), Missing: "target", Winner: true},
			{ID: "missing", Rev: rev(1, "a"), Missing: "target", Winner: true},
			{ID: "swapped", Rev: rev(2, "c"), Missing: "target", Winner: true},
		}
		for name, edit := range map[string]func(*verifying){
			"in bulk":       func(*verifying) {},
			"singly":        func(v *verifying) { v.cfg.NoBulkGet = true },
			"small batches": func(v *verifying) { v.cfg.WorkerBatchSize = 1 },
		} {
			counts, found = verify(t, rep, edit)
			require.Equal(t, want, found, name)
			require.Equal(t, leaves(t, source), counts.Checked)
			require.Zero(t, counts.Changed)
		}
		_, found = verify(t, rep, both, attachments)
		want = append(want,
			worker.Difference{ID: "extra", Rev: rev(1, "a"), Missing: "source", Winner: true},
			worker.Difference{ID: "extra", Rev: rev(2, "e"), Missing: "source", Deleted: true},
			worker.Difference{ID: "newer", Rev: rev(2, "b"), Missing: "source", Winner: true})
		slices.SortFunc(want, func(a, b worker.Difference) int { return strings.Compare(a.ID+" "+a.Rev, b.ID+" "+b.Rev) })
		require.Equal(t, want, found)

		_, found = verify(t, replication(t, source, target, `"winning_revs_only":true`))
		for _, d := range found {
			require.True(t, d.Winner)
		}
		require.Len(t, found, 6)

		run(t, rep)
		_, found = verify(t, rep)
		require.Empty(t, found)
	})
}

func TestVerifySelectsAsReplicateDoes(t *testing.T) {
	t.Parallel()
	peer := couchtest.SharedCouchDB(t)
	source, target := peer.DB(t, "source"), peer.DB(t, "target")
	plant(t, source,
		planted("_design/d", 1, "a", `,"filters":{"f":"function(doc, req) { return doc.kind === req.query.kind; }"}`),
		planted("apple", 1, "a", `,"kind":"fruit"`), planted("leek", 1, "a", `,"kind":"vegetable"`),
		// The leaf that passes is not the winner.
		planted("tomato", 2, "ba", `,"kind":"vegetable"`), planted("tomato", 2, "ca", `,"kind":"fruit"`), planted("tomato", 2, "da", `,"kind":"vegetable"`),
	)
	want := []worker.Difference{
		{ID: "apple", Rev: rev(1, "a"), Missing: "target", Winner: true},
		{ID: "tomato", Rev: rev(2, "c"), Missing: "target"},
	}
	for _, fields := range []string{`"selector":{"kind":"fruit"}`, `"filter":"d/f","query_params":{"kind":"fruit"}`} {
		counts, found := verify(t, replication(t, source, target, fields))
		require.Equal(t, want, found, fields)
		require.EqualValues(t, 2, counts.Checked)
	}
	_, found := verify(t, replication(t, source, target, `"doc_ids":["leek","none"]`), both)
	require.Equal(t, []worker.Difference{{ID: "leek", Rev: rev(1, "a"), Missing: "target", Winner: true}}, found)
	counts, _ := verify(t, replication(t, source, target, `"since_seq":`+updateSeq(t, source)))
	require.Zero(t, counts.Checked)

	v := newVerifying(replication(t, source, target, `"filter":"d/f","query_params":{"kind":"fruit"}`), both)
	_, err := worker.Verify(t.Context(), v.what, v.cfg)
	require.ErrorContains(t, err, "Couldn't open document `_design/d` from target database `"+shown(target), "the filter is needed on both sides")
}

// shown returns a URL as errors show it.
func shown(dbURL string) string {
	bare, _, _ := couchtest.Credentials(dbURL)
	return bare
}

// What arrives or is replaced after it was found missing is no difference.
func TestVerifyAsksAgain(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		for name, test := range map[string]struct {
			between func(source, target string) // the two questions
			changed int64
			found   []worker.Difference
		}{
			"it arrives": {func(source, target string) { run(t, replication(t, source, target)) }, 0, nil},
			"it is replaced": {func(source, _ string) {
				plant(t, source, planted("d", 3, "fba", ""), planted("d", 3, "eca", ""))
			}, 2, nil},
			"the winner is replaced": {func(source, _ string) {
				plant(t, source, planted("d", 3, "eca", ""))
			}, 1, []worker.Difference{{ID: "d", Rev: rev(2, "b"), Missing: "target"}}},
			"it is no longer the winner": {func(source, _ string) {
				plant(t, source, planted("d", 2, "fa", ""))
			}, 0, []worker.Difference{{ID: "d", Rev: rev(2, "b"), Missing: "target"}, {ID: "d", Rev: rev(2, "c"), Missing: "target"}}},
			"nothing": {func(string, string) {}, 0, []worker.Difference{
				{ID: "d", Rev: rev(2, "b"), Missing: "target"}, {ID: "d", Rev: rev(2, "c"), Missing: "target", Winner: true}}},
		} {
			source, target := peer.DB(t, "source"), peer.DB(t, "target")
			plant(t, source, planted("d", 2, "ba", `,"_attachments":{"f":{"content_type":"text/plain","data":"eHh4eA=="}}`), planted("d", 2, "ca", ""))
			questions := 0
			through := newProxy(t, target, func(_ http.ResponseWriter, r *http.Request, path string) bool {
				if path == "/_revs_diff" {
					if questions++; questions == 2 {
						test.between(source, target)
					}
				}
				return false
			})
			counts, found := verify(t, replication(t, source, through.URL), attachments)
			require.Equal(t, test.found, found, name)
			require.Equal(t, test.changed, counts.Changed, name)
			require.Equal(t, 2, questions)
			require.EqualValues(t, 2, counts.Checked)
			if name == "it arrives" {
				require.EqualValues(t, 1, counts.Attachments, "they are compared when they have arrived")
			}
		}
	})
}

// attached returns the member of a document with one attachment f.
func attached(contentType, content string) string {
	return fmt.Sprintf(`,"_attachments":{"f":{"content_type":%q,"data":%q}}`, contentType, base64.StdEncoding.EncodeToString([]byte(content)))
}

func TestVerifyComparesAttachments(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		source, target := peer.DB(t, "source"), peer.DB(t, "target")
		for id, sides := range map[string][2]string{
			"bytes":  {attached("image/png", "one"), attached("image/png", "two")},
			"length": {attached("image/png", "three"), attached("image/png", "four")},
			"type":   {attached("image/png", "same"), attached("image/gif", "same")},
			"lost":   {attached("image/png", "there"), ""},
			"found":  {"", attached("text/plain", "there")},
			"same":   {attached("text/plain", strings.Repeat("same ", 1000)), attached("text/plain", strings.Repeat("same ", 1000))},
			"none":   {"", ""},
		} {
			plant(t, source, planted(id, 1, "a", sides[0]))
			plant(t, target, planted(id, 1, "a", sides[1]))
		}
		// The target's leaf is newer, and its attachments are its own.
		plant(t, source, planted("newer", 1, "a", attached("image/png", "one")))
		plant(t, target, planted("newer", 1, "a", ""), planted("newer", 2, "ba", attached("image/png", "two")))

		state := func(contentType, content string) *worker.AttachmentState {
			return &worker.AttachmentState{ContentType: contentType, Length: int64(len(content))}
		}
		digested := func(contentType, content string) *worker.AttachmentState {
			s := state(contentType, content)
			s.Digest = digestOf(content)
			return s
		}
		want := map[string]worker.AttachmentDifference{
			"bytes":  {Name: "f", Source: digested("image/png", "one"), Target: digested("image/png", "two")},
			"length": {Name: "f", Source: state("image/png", "three"), Target: state("image/png", "four")},
			"type":   {Name: "f", Source: state("image/png", "same"), Target: state("image/gif", "same")},
			"lost":   {Name: "f", Source: state("image/png", "there")},
			"found":  {Name: "f", Target: state("text/plain", "there")},
		}
		for name, edit := range map[string]func(*verifying){
			"in bulk": func(*verifying) {},
			"singly":  func(v *verifying) { v.cfg.NoBulkGet, v.cfg.HTTPConnections = true, 1 },
		} {
			counts, found := verify(t, replication(t, source, target), attachments, both, edit)
			got := map[string]worker.AttachmentDifference{}
			for _, d := range found {
				if d.ID == "newer" {
					require.Equal(t, worker.Difference{ID: "newer", Rev: rev(2, "b"), Missing: "source", Winner: true}, d)
					continue
				}
				require.Equal(t, rev(1, "a"), d.Rev)
				got[d.ID] = *d.Attachment
			}
			require.Equal(t, want, got, name)
			require.EqualValues(t, 6, counts.Attachments)
		}
		_, found := verify(t, replication(t, source, target))
		require.Empty(t, found, "without Attachments the revisions are the same")
	})
}

func digestOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// Attachments may be stored compressed on one side only. Then their digests differ, and their contents do not.
// The server's setting for it is changed, so the server is the test's own.
func verifyComparesDecodedAttachments(t *testing.T, peer *couchtest.CouchDB) {
	source, target := peer.DB(t, "source"), peer.DB(t, "target")
	text := strings.Repeat("text ", 1000)
	plant(t, source, planted("same", 1, "a", attached("text/plain", text)), planted("other", 1, "a", attached("text/plain", text)))
	peer.Do(t, http.MethodPut, "/_node/_local/_config/attachments/compression_level", []byte(`"0"`), http.StatusOK)
	plant(t, target, planted("same", 1, "a", attached("text/plain", text)),
		planted("other", 1, "a", attached("text/plain", strings.Replace(text, "text", "test", 1))))
	require.NotEqual(t, couchtest.Trees(t, source)["same"], couchtest.Trees(t, target)["same"], "the digests differ")

	counts, found := verify(t, replication(t, source, target), attachments)
	require.EqualValues(t, 2, counts.Attachments)
	require.Len(t, found, 1)
	require.Equal(t, "other", found[0].ID)
	require.EqualValues(t, len(text), found[0].Attachment.Target.Length)
}

// An attachment that one side cannot send is a difference, unless it can after all.
func TestVerifyAttachmentsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	peer := couchtest.SharedCouchDB(t)
	short := func(w http.ResponseWriter, _ string) bool {
		_, _ = io.WriteString(w, "cont")
		return true
	}
	gone := func(w http.ResponseWriter, _ string) bool {
		return refuse(w, 404, `{"error":"not_found","reason":"Document is missing attachment"}`)
	}
	for name, test := range map[string]struct {
		answer func(w http.ResponseWriter, target string) bool
		times  int64 // that it is given
		says   string
	}{
		"short":        {short, 100, "3 bytes are missing"},
		"short once":   {short, 1, ""},
		"short thrice": {short, 3, ""}, // the database works after that
		"gone":         {gone, 100, "not_found"},
		"replaced": {func(w http.ResponseWriter, target string) bool {
			plant(t, target, planted("a", 2, "ba", ""))
			return gone(w, target)
		}, 1, ""},
	} {
		source, target := peer.DB(t, "source"), peer.DB(t, "target")
		for _, dbURL := range []string{source, target} {
			plant(t, dbURL, planted("a", 1, "a", attached("image/png", "content")), planted("b", 1, "a", attached("image/png", "content")))
		}
		var asked atomic.Int64
		through := newProxy(t, target, func(w http.ResponseWriter, _ *http.Request, path string) bool {
			return path == "/a/f" && asked.Add(1) <= test.times && test.answer(w, target)
		})
		counts, found := verify(t, replication(t, source, through.URL), attachments)
		if test.says == "" {
			require.Empty(t, found, name)
			continue
		}
		require.Len(t, found, 1, name)
		require.EqualValues(t, 2, counts.Attachments)
		require.Contains(t, found[0].Attachment.Target.Error, test.says)
		require.Equal(t, digestOf("content"), found[0].Attachment.Source.Digest)
	}
}

// listing is a stub that answers _all_docs.
func listing(t testing.TB, s *stub) {
	s.on("POST /_all_docs", func(w http.ResponseWriter, _ *http.Request, body []byte) bool {
		var asked struct{ Keys []string }
		assertNoError(t, json.Unmarshal(body, &asked))
		rows := make([]string, len(asked.Keys))
		for i, id := range asked.Keys {
			rows[i] = `{"id":` + quoted(id) + `,"key":` + quoted(id) + `,"value":{"rev":"1-a"}}`
		}
		return refuse(w, 200, `{"total_rows":1,"offset":null,"rows":[`+strings.Join(rows, ",")+`]}`)
	})
}

// verifyStubs compares two stubs in memory.
func verifyStubs(t testing.TB, source, target http.Handler, edit ...func(*verifying)) *verifying {
	transport := couchtest.Pipe(t, map[string]http.Handler{"a.example": source, "b.example": target})
	v := newVerifying(replication(t, "http://a.example/db", "http://b.example/db"), edit...)
	v.cfg.NoCompression = true
	v.cfg.Transport = func(replicator.Endpoint, *sockopt.Options) http.RoundTripper { return transport }
	return v
}

// Differences are passed on at once, and leaves that wait to be asked about again take a bounded part of memory: the
// feed waits for them.
func TestVerifyAwaitsABoundedNumberOfLeaves(t *testing.T) {
	testkit.SkipRace(t)
	testkit.SkipShort(t)
	testkit.Bubble(t, func(t *testing.T) {
		const (
			rows    = 400_000
			idSize  = 400
			most    = (32 << 20) / idSize // leaves that fit in the memory for them, at most
			between = 20 * 500            // batches between the feed and there, at most
		)
		source, target := bareStub(t), bareStub(t)
		listing(t, source)
		var sent, found atomic.Int64
		source.on("GET /_changes", func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			if r.URL.Query().Get("limit") == "1" { // a question how many changes there are
				return refuse(w, 200, `{"results":[],"last_seq":"0-x","pending":400000}`)
			}
			_, _ = io.WriteString(w, `{"results":[`)
			for n := range rows {
				if n > 0 {
					_, _ = io.WriteString(w, ",\n")
				}
				_, err := fmt.Fprintf(w, `{"seq":"%d-x","id":"%0*d","changes":[{"rev":"1-a"}]}`, n+1, idSize, n)
				if err != nil {
					return true
				}
				sent.Add(1)
			}
			_, _ = io.WriteString(w, `],"last_seq":"400000-x"}`)
			return true
		})
		v := verifyStubs(t, source, target, func(v *verifying) {
			v.what.Wait = time.Hour
			v.what.Found = func(worker.Difference) error {
				found.Add(1)
				return nil
			}
		})
		done := make(chan error, 1)
		go func() {
			_, err := worker.Verify(t.Context(), v.what, v.cfg)
			done <- err
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Zero(t, found.Load())
		first := sent.Load()
		require.Positive(t, first)
		require.Less(t, first, int64(most+between))
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Positive(t, found.Load())
		require.Greater(t, sent.Load(), first, "the feed goes on")
		require.Less(t, sent.Load()-found.Load(), int64(most+between))
		v.stop()
		require.ErrorIs(t, <-done, worker.ErrStopped)
	})
}

// A document may have very many leaves. Those that are not the winner are read in portions.
func TestVerifyADocumentWithManyLeaves(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		const n = 5_000
		source, target := bareStub(t), bareStub(t)
		listing(t, source)
		revs := make([]string, n)
		for i := range revs {
			id := fmt.Sprintf("1-%x", n+i)
			if i == 0 {
				id = "1-a"
			}
			revs[i] = `{"rev":"` + id + `"}`
			source.docs["d "+id] = fmt.Sprintf(`{"_id":"d","_rev":%q,"_deleted":%t}`, id, i%2 == 1)
		}
		source.rows = append(source.rows, `{"seq":"1-x","id":"d","changes":[`+strings.Join(revs, ",")+`]}`)
		largest := 0
		source.on("POST /_bulk_get", func(_ http.ResponseWriter, _ *http.Request, body []byte) bool {
			largest = max(largest, strings.Count(string(body), `"rev"`))
			return false
		})
		v := verifyStubs(t, source, target)
		counts, err := worker.Verify(t.Context(), v.what, v.cfg)
		require.NoError(t, err)
		require.Equal(t, worker.Verified{Checked: n, MissingAtTarget: n}, counts)
		require.Equal(t, 500, largest)
		deleted := 0
		for _, d := range v.found {
			if d.Deleted {
				deleted++
			}
			require.Equal(t, d.Rev == "1-a", d.Winner)
		}
		require.Equal(t, n/2, deleted)
	})
}

// Documents without an id, of old releases, and those whose id the target rejects are missing there.
func TestVerifyIDsThatTheTargetRejects(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		source, target := bareStub(t), bareStub(t)
		listing(t, source)
		for _, id := range []string{"", "good", "_bad", "better"} {
			source.add(id, "1-a", fmt.Sprintf(`{"_id":%q,"_rev":"1-a"}`, id))
		}
		target.on("POST /_revs_diff", func(w http.ResponseWriter, _ *http.Request, body []byte) bool {
			if strings.Contains(string(body), "_bad") {
				return refuse(w, 400, `{"error":"illegal_docid","reason":"it begins with _"}`)
			}
			return refuse(w, 200, `{}`)
		})
		v := verifyStubs(t, source, target)
		counts, err := worker.Verify(t.Context(), v.what, v.cfg)
		require.NoError(t, err)
		require.Equal(t, worker.Verified{Checked: 4, MissingAtTarget: 2}, counts)
		require.ElementsMatch(t, []worker.Difference{
			{Rev: "1-a", Missing: "target", Winner: true}, {ID: "_bad", Rev: "1-a", Missing: "target", Winner: true},
		}, v.found)
	})
}

func TestVerifyEnds(t *testing.T) {
	ours := errors.New("ours")
	for name, test := range map[string]struct {
		prepare func(source, target *stub, v *verifying)
		wants   error
		says    string
	}{
		"Found fails": {func(_, _ *stub, v *verifying) {
			v.what.Found = func(worker.Difference) error { return ours }
		}, ours, "ours"},
		"Report fails": {func(_, _ *stub, v *verifying) {
			v.what.Wait, v.cfg.ReportInterval = time.Hour, time.Second
			v.what.Report = func(p worker.VerifyProgress) error {
				if p.Checked == 0 || p.ChangesPending == nil || *p.ChangesPending != 3 {
					return fmt.Errorf("not yet: %+v", p)
				}
				return ours
			}
		}, ours, "ours"},
		"stopped": {func(_, _ *stub, v *verifying) {
			v.what.Wait = time.Hour
			time.AfterFunc(time.Minute, v.stop)
		}, worker.ErrStopped, ""},
		"no target": {func(_, target *stub, _ *verifying) {
			target.fail("GET ", 404, `{"error":"not_found","reason":"Database does not exist."}`)
		}, nil, "db_not_found: could not open http://b.example/db"},
		"the other way round": {func(source, target *stub, v *verifying) {
			v.what.Both = true
			target.addSmall(1)
			source.fail("POST /_revs_diff", 500, `{"error":"ill","reason":"very"}`)
		}, nil, "revs_diff_failed: source: POST http://a.example/db/_revs_diff: 500 ill: very"},
		"the filter changes": {func(source, _ *stub, v *verifying) {
			v.what.Replication = replication(t, "http://a.example/db", "http://b.example/db", `"filter":"d/f"`)
			read := 0
			source.on("GET /_design/d", func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
				read++
				return refuse(w, 200, fmt.Sprintf(`{"_id":"_design/d","filters":{"f":"function() { %d }"}}`, read))
			})
		}, worker.ErrIDChanged, "the filter function of http://a.example/db/ changed while it was used"},
		"no winners": {func(source, _ *stub, _ *verifying) {
			source.on("POST /_all_docs", func(w http.ResponseWriter, _ *http.Request, _ []byte) bool { return refuse(w, 200, `{"rows":[]}`) })
		}, nil, `was left out`},
	} {
		testkit.RunBubble(t, name, func(t *testing.T) {
			source, target := bareStub(t), bareStub(t)
			listing(t, source)
			source.addSmall(3)
			v := verifyStubs(t, source, target)
			test.prepare(source, target, v)
			_, err := worker.Verify(t.Context(), v.what, v.cfg)
			require.ErrorContains(t, err, test.says)
			if test.wants != nil {
				require.ErrorIs(t, err, test.wants)
			}
		})
	}
}

// An answer that is cut off is asked for again.
func TestVerifyRepeatsAnswersThatAreCutOff(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		source, target := bareStub(t), bareStub(t)
		listing(t, source)
		source.rows = []string{`{"seq":"1-x","id":"d","changes":[{"rev":"1-a"},{"rev":"1-b"}]}`}
		source.docs["d 1-b"] = `{"_id":"d","_rev":"1-b"}`
		cuts := map[string]int{}
		for request, beginning := range map[string]string{
			"POST /_bulk_get": `{"results":[{"id":"d","docs":[{"ok":{"_id":"d",`, "POST /_all_docs": `{"rows":[`,
			"GET /_changes": `{"results":[`,
		} {
			answer := source.answers[request]
			source.on(request, func(w http.ResponseWriter, r *http.Request, body []byte) bool {
				if cuts[request]++; cuts[request] < 3 {
					cutOff(w, beginning)
				}
				return answer != nil && answer(w, r, body)
			})
		}
		v := verifyStubs(t, source, target)
		counts, err := worker.Verify(t.Context(), v.what, v.cfg)
		require.NoError(t, err)
		require.Equal(t, worker.Verified{Checked: 2, MissingAtTarget: 2}, counts)
	})
}
