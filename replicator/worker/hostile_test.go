package worker_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/couch"
	"settee/pkg/couch/couchtest"
	"settee/pkg/sockopt"
	"settee/replicator"
	"settee/replicator/worker"
)

// hostilePair is a source with documents of all kinds and an empty target, on a network in memory.
type hostilePair struct {
	source, target *couchtest.Hostile
	transport      http.RoundTripper
}

const password = "s3cr3t-word"

func newHostilePair(t *testing.T) *hostilePair {
	p := &hostilePair{source: couchtest.NewHostile(1), target: couchtest.NewHostile(2)}
	p.guard()
	for i := range 30 {
		p.source.Add(fmt.Sprintf("d%d", i), 100+10*i)
	}
	large, attachment := 300_000, int64(100_000)
	if testkit.Race { // slow, and the size shows no races
		large, attachment = 60_000, 10_000
	}
	p.source.Add("large", large)
	p.source.Add("_design/d", 10)
	for i := range 3 {
		p.source.Add(fmt.Sprintf("att%d", i), 50, attachment, 2_000)
	}
	p.transport = couchtest.Pipe(t, map[string]http.Handler{"a.example": p.source, "b.example": p.target})
	return p
}

// guard makes both sides require the credentials of run.
func (p *hostilePair) guard() {
	for _, side := range []*couchtest.Hostile{p.source, p.target} {
		side.Username, side.Password = "someone", password
	}
}

func (p *hostilePair) side(name string) *couchtest.Hostile {
	return map[string]*couchtest.Hostile{"source": p.source, "target": p.target}[name]
}

func (p *hostilePair) config() worker.Config {
	cfg := worker.DefaultConfig()
	cfg.ServerUUID, cfg.MaxDocument = serverUUID, 8<<20
	cfg.Transport = func(replicator.Endpoint, *sockopt.Options) http.RoundTripper { return p.transport }
	return cfg
}

func (p *hostilePair) run(t *testing.T, edit ...func(*worker.Config, *worker.Job)) (worker.Result, error) {
	cfg := p.config()
	login := "http://someone:" + password + "@"
	job := worker.Job{Replication: replication(t, login+"a.example/db", login+"b.example/db")}
	for _, e := range edit {
		e(&cfg, &job)
	}
	return worker.Run(t.Context(), job, cfg, &recorder{})
}

// claimsNothingElse checks that the target has everything below its checkpoints.
func (p *hostilePair) claimsNothingElse(t *testing.T) {
	t.Helper()
	for _, side := range []*couchtest.Hostile{p.source, p.target} {
		for _, seq := range side.Checkpoints() {
			lacking, err := p.target.Lacks(p.source, seq)
			require.NoError(t, err)
			require.Empty(t, lacking, "up to %s", seq)
		}
	}
}

func (p *hostilePair) complete(t *testing.T) {
	t.Helper()
	lacking, err := p.target.Lacks(p.source, nil)
	require.NoError(t, err)
	require.Empty(t, lacking)
	require.NotEmpty(t, p.target.Checkpoints())
	p.claimsNothingElse(t)
}

// requested is the description of a request in errors.
var requested = map[couchtest.Endpoint]string{
	couchtest.Info: "GET http://%s/db: ", couchtest.Local: " http://%s/db/_local/", couchtest.Changes: "GET http://%s/db/_changes: ",
	couchtest.RevsDiff: "POST http://%s/db/_revs_diff: ", couchtest.BulkGet: "POST http://%s/db/_bulk_get: ",
	couchtest.BulkDocs: "POST http://%s/db/_bulk_docs: ", couchtest.Get: "GET http://%s/db/", couchtest.Put: "PUT http://%s/db/",
	couchtest.Commit: "POST http://%s/db/_ensure_full_commit: ",
}

// misdeed is a fault of one endpoint, and the expected error of the run.
type misdeed struct {
	side  string
	at    couchtest.Endpoint
	fault couchtest.Fault
	says  []string // nil if the run succeeds
}

func (m misdeed) name() string { return fmt.Sprintf("%s/%s/%s", m.side, m.at, m.fault) }

var (
	sourceEndpoints = []couchtest.Endpoint{couchtest.Info, couchtest.Local, couchtest.Changes, couchtest.BulkGet, couchtest.Get, couchtest.Commit}
	targetEndpoints = []couchtest.Endpoint{couchtest.Info, couchtest.Local, couchtest.RevsDiff, couchtest.BulkDocs, couchtest.Put, couchtest.Commit}
)

// misdeeds returns every useful combination of a fault and an endpoint. Faults that package couch tells in the same way are
// tested there.
func misdeeds() []misdeed {
	const early, huge, malformed = "(the server ended it early)", "larger than this client takes", "malformed answer"
	var all []misdeed
	for fault, words := range map[couchtest.Fault]string{
		couchtest.NeverAnswers: "stalled", couchtest.ClosesMidway: early, couchtest.AnnouncesMore: early,
		couchtest.EndlessBody: huge, couchtest.InvalidJSON: malformed, couchtest.Status500: "500 internal_server_error: a storm",
		couchtest.Status429: "429 too_many_requests: a storm", couchtest.Status404: "404 Not Found",
		couchtest.NoDatabase: "could not open http://", couchtest.RedirectLoop: "redirect not followed: ",
	} {
		for side, endpoints := range map[string][]couchtest.Endpoint{"source": sourceEndpoints, "target": targetEndpoints} {
			host := map[string]string{"source": "a.example", "target": "b.example"}[side]
			for _, at := range endpoints {
				m := misdeed{side: side, at: at, fault: fault, says: []string{side, fmt.Sprintf(requested[at], host), words}}
				switch {
				case at == couchtest.Get && fault == couchtest.AnnouncesMore: // documents without attachments are read
					continue
				case forgiven(at, fault):
					m.says = nil
				case fault == couchtest.NoDatabase || fault == couchtest.Status404 && at == couchtest.Info:
					m.says = []string{"db_not_found: could not open http://" + host + "/db/"}
				case fault == couchtest.Status404 && at == couchtest.Get:
					m.says = []string{"missing_doc: document ", "the source announced a revision that it does not have"}
				}
				all = append(all, m)
			}
		}
	}
	slices.SortFunc(all, func(a, b misdeed) int { return cmp.Compare(a.name(), b.name()) })
	const feed = "source: GET http://a.example/db/_changes: reading the changes feed: "
	return append(all,
		misdeed{"source", couchtest.Changes, couchtest.RepeatedSequences, nil},
		misdeed{"source", couchtest.Changes, couchtest.DescendingSequences, nil}, // its sequences are strings
		misdeed{"source", couchtest.Changes, couchtest.NoEnd, []string{feed + "stalled: nothing but heartbeats for 5m0s"}},
		misdeed{"source", couchtest.Changes, couchtest.RowsForEver, []string{"source: the changes feed of http://a.example/db/ does not end: "}},
		misdeed{"source", couchtest.Changes, couchtest.OldRowsForEver, []string{"source: the changes feed of http://a.example/db/ does not end: "}},
		misdeed{"source", couchtest.Get, couchtest.WrongBoundary, []string{"source: GET http://a.example/db/", ": malformed answer: ", "boundary"}},
	)
}

// The bytes of attachments that a source damages do not reach the target. If the target compares an attachment with its
// digest, the run does so only after the target has refused the document, and its error is the same.
func TestDamagedAttachments(t *testing.T) {
	t.Parallel()
	const says = `source: GET http://a.example/db/x: attachments of document "x": attachment "a0": its bytes do not match its digest, md5-`
	for _, test := range []struct {
		name    string
		sizes   []int64
		retries int
		unnamed bool   // the target does not say that it is CouchDB
		answer  string // of the target; "" for CouchDB's
		passes  bool   // the source damages nothing later
		refused int    // by the target
	}{
		{name: "large", sizes: []int64{100_000}, retries: 5, refused: 1},
		{name: "large, without retries", sizes: []int64{100_000}, refused: 1},
		{name: "large, for a short time", sizes: []int64{100_000}, retries: 5, passes: true, refused: 1},
		{name: "large, for a short time, without retries", sizes: []int64{100_000}, passes: true, refused: 1},
		{name: "large, refused as by settee", sizes: []int64{100_000}, retries: 5, answer: "400 content_md5_mismatch", refused: 1},
		{name: "large, without an answer", sizes: []int64{100_000}, retries: 5, answer: "0", refused: 1},
		{name: "large, to an unknown server", sizes: []int64{100_000}, retries: 5, unnamed: true},
		{name: "several", sizes: []int64{100_000, 100_000}, retries: 5},
		{name: "small", sizes: []int64{60_000}, retries: 5},
	} {
		testkit.RunBubble(t, test.name, func(t *testing.T) {
			source, target := couchtest.NewHostile(1), couchtest.NewHostile(2)
			source.Add("x", 50, test.sizes...)
			source.Switch(couchtest.WrongDigest, couchtest.Get)
			target.Unnamed = test.unnamed
			if test.passes {
				timer := time.AfterFunc(100*time.Millisecond, func() { source.Switch(couchtest.None, couchtest.Get) })
				defer timer.Stop()
			}
			cfg := pipedTo(t, source, answering(target, test.answer))
			cfg.RetriesPerRequest = test.retries
			var r refusals
			r.collect(&cfg)
			job := worker.Job{Replication: replication(t, "http://a.example/db", "http://b.example/db")}
			_, err := worker.Run(t.Context(), job, cfg, &recorder{})
			if test.passes {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, couch.ErrDigest)
				require.ErrorContains(t, err, says)
				require.Empty(t, target.Checkpoints())
			}
			require.Equal(t, test.refused, target.Damaged())
			require.Empty(t, r.all)
			has, err := target.Has("x", source)
			require.NoError(t, err)
			require.Equal(t, test.passes, has)
		})
	}
}

// A target that finds an attachment damaged, although the run finds that it is not, refuses the document.
func TestAttachmentsThatOnlyTheTargetFindsDamaged(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		source, target := couchtest.NewHostile(1), couchtest.NewHostile(2)
		source.Add("x", 50, 100_000)
		writes := 0
		cfg := pipedTo(t, source, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/db/x" {
				target.ServeHTTP(w, r)
				return
			}
			writes++
			_, _ = io.Copy(io.Discard, r.Body)
			refuse(w, http.StatusBadRequest, `{"error":"content_md5_mismatch","reason":"Possible message corruption."}`)
		}))
		var r refusals
		r.collect(&cfg)
		job := worker.Job{Replication: replication(t, "http://a.example/db", "http://b.example/db")}
		result, err := worker.Run(t.Context(), job, cfg, &recorder{})
		require.NoError(t, err)
		require.EqualValues(t, 1, result.Stats.DocWriteFailures)
		require.Len(t, r.all, 1)
		require.Equal(t, "content_md5_mismatch", r.all[0].Code)
		require.Equal(t, 3, writes, "unchecked, checked, and in a way of its own")
	})
}

// answering answers writes of documents with a status and a code, or not at all if the status is 0, where the target answers
// 500. If answer is empty, it changes nothing.
func answering(target http.Handler, answer string) http.Handler {
	if answer == "" {
		return target
	}
	status, code, _ := strings.Cut(answer, " ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPut {
			target.ServeHTTP(w, r)
			return
		}
		right := httptest.NewRecorder()
		target.ServeHTTP(right, r)
		switch {
		case right.Code != http.StatusInternalServerError:
			maps.Copy(w.Header(), right.Header())
			w.WriteHeader(right.Code)
			_, _ = w.Write(right.Body.Bytes())
		case status == "0":
			panic(http.ErrAbortHandler)
		default:
			refuse(w, number(status), fmt.Sprintf(`{"error":%q,"reason":"Possible message corruption."}`, code))
		}
	})
}

// forgiven reports whether a run can tolerate a fault, because the fault loses nothing that the run needs or there is
// an alternative.
func forgiven(at couchtest.Endpoint, fault couchtest.Fault) bool {
	switch at {
	case couchtest.BulkGet: // documents are read one by one
		return fault != couchtest.NoDatabase && fault != couchtest.Status429
	case couchtest.Changes, couchtest.RevsDiff, couchtest.BulkDocs:
		return fault == couchtest.AnnouncesMore
	case couchtest.Commit: // any answer is enough
		return fault == couchtest.InvalidJSON || fault == couchtest.Status404
	}
	return false
}

// quietly suppresses what net/http prints about servers that send more than announced.
func quietly(t *testing.T) {
	before := log.Writer()
	log.SetOutput(io.Discard)
	t.Cleanup(func() { log.SetOutput(before) })
}

// A run against a peer that does something wrong ends soon, with an error that names the fault or the limit that was
// exceeded, and leaves nothing except true checkpoints. The next run, against a peer that behaves, copies everything.
func TestHostilePeers(t *testing.T) {
	testkit.SkipShort(t)
	quietly(t)
	for i, m := range misdeeds() {
		if testkit.SkipsCase(i) {
			continue
		}
		testkit.RunBubble(t, m.name(), func(t *testing.T) {
			p := newHostilePair(t)
			p.side(m.side).Switch(m.fault, m.at)
			began := time.Now()
			_, err := p.run(t)
			require.Less(t, time.Since(began), 40*time.Minute)
			if m.says == nil {
				require.NoError(t, err)
				p.complete(t)
			} else {
				var failure *worker.Error
				require.ErrorAs(t, err, &failure)
				for _, words := range m.says {
					require.ErrorContains(t, err, words)
				}
				require.NotContains(t, err.Error(), password)
				require.Less(t, len(err.Error()), 600)
				p.claimsNothingElse(t)
			}
			p.side(m.side).Switch(couchtest.None, m.at)
			_, err = p.run(t)
			require.NoError(t, err)
			p.complete(t)
		})
	}
}

// Numeric sequences can be compared. A change with a lower sequence than a previous one would be skipped by a run that
// starts from a checkpoint in between.
func TestSequencesThatGoBack(t *testing.T) {
	t.Parallel()
	for _, continuous := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := newHostilePair(t)
			p.source.Numbers = true
			p.source.Switch(couchtest.DescendingSequences, couchtest.Changes)
			_, err := p.run(t, func(_ *worker.Config, job *worker.Job) { job.Replication.Continuous = continuous })
			require.ErrorContains(t, err, "source: GET http://a.example/db/_changes: reading the changes feed: malformed answer: sequence 34 comes after 35")
			require.Empty(t, p.target.Checkpoints())
			p.source.Switch(couchtest.RepeatedSequences, couchtest.Changes)
			_, err = p.run(t)
			require.NoError(t, err)
			p.complete(t)
		})
	}
}

// A byte a second is not silence, but too slow for an answer that takes minutes.
func TestOneByteASecond(t *testing.T) {
	quietly(t)
	for side, endpoints := range map[string][]couchtest.Endpoint{"source": sourceEndpoints, "target": targetEndpoints} {
		for _, at := range endpoints {
			testkit.RunBubble(t, side+"/"+string(at), func(t *testing.T) {
				p := newHostilePair(t)
				p.side(side).Switch(couchtest.OneByteASec, at)
				stopped, stop := context.WithCancel(context.Background())
				timer := time.AfterFunc(time.Hour, stop)
				_, err := p.run(t, func(_ *worker.Config, job *worker.Job) { job.Stop = stopped })
				timer.Stop()
				if err != nil {
					require.ErrorIs(t, err, couch.ErrTooSlow)
					require.ErrorContains(t, err, "stalled: too slow: ")
					require.ErrorContains(t, err, side)
				}
				p.claimsNothingElse(t)
				p.side(side).Switch(couchtest.None, at)
				_, err = p.run(t)
				require.NoError(t, err)
				p.complete(t)
			})
		}
	}
}

// A run does not log in again and again if no cookie is ever accepted.
func TestCookiesThatAlwaysExpire(t *testing.T) {
	t.Parallel()
	for side, endpoints := range map[string][]couchtest.Endpoint{"source": sourceEndpoints, "target": targetEndpoints} {
		for _, at := range endpoints {
			if at == couchtest.Put {
				continue // there it means a validation function's refusal
			}
			testkit.RunBubble(t, side+"/"+string(at), func(t *testing.T) {
				p := newHostilePair(t)
				shared := &worker.Shared{}
				with := func(cfg *worker.Config, _ *worker.Job) { cfg.Shared = shared }
				p.side(side).Switch(couchtest.CookieExpires, at)
				for range 5 {
					_, err := p.run(t, with)
					require.ErrorContains(t, err, "You are not authorized to access this db.")
					require.ErrorIs(t, err, couch.ErrUnauthorized)
					p.claimsNothingElse(t)
					time.Sleep(time.Minute) // in the bubble
				}
				require.LessOrEqual(t, p.side(side).Requests(couchtest.Session), 6)
				p.side(side).Switch(couchtest.None, at)
				_, err := p.run(t, with)
				require.NoError(t, err)
				p.complete(t)
			})
		}
	}
}

// Temporary faults during a run cause repeated requests and nothing else.
func TestFaultsThatPass(t *testing.T) {
	quietly(t)
	for _, m := range misdeeds() {
		switch m.fault {
		case couchtest.ClosesMidway, couchtest.AnnouncesMore, couchtest.Status500, couchtest.Status429,
			couchtest.NeverAnswers, couchtest.WrongDigest, couchtest.MissingParts, couchtest.WrongBoundary:
		default:
			continue
		}
		testkit.RunBubble(t, m.name(), func(t *testing.T) {
			p := newHostilePair(t)
			p.side(m.side).Switch(m.fault, m.at)
			pass := 500 * time.Millisecond
			if m.fault == couchtest.NeverAnswers {
				pass = 10 * time.Second
			}
			timer := time.AfterFunc(pass, func() { p.side(m.side).Switch(couchtest.None, m.at) })
			defer timer.Stop()
			_, err := p.run(t)
			require.NoError(t, err)
			p.complete(t)
		})
	}
}

// The cost of a document with very many leaves is linear, whatever the source answers. Quadratic cost would take hours.
func TestADocumentWithVeryManyLeaves(t *testing.T) {
	t.Parallel()
	leaves := 100_000
	if testkit.Race {
		leaves /= 10
	}
	source, target := stubs(t, 0)
	var row strings.Builder
	row.WriteString(`{"seq":"1-x","id":"d","changes":[`)
	for i := range leaves {
		if i > 0 {
			row.WriteByte(',')
		}
		fmt.Fprintf(&row, `{"rev":"1-%d"}`, i)
		rev := fmt.Sprintf("1-%d", i)
		source.docs["d "+rev] = `{"_id":"d","_rev":"` + rev + `"}`
	}
	source.rows = append(source.rows, row.String()+"]}")
	// The last ones are answered with their ancestors.
	source.docs["d 1-9"] = `{"_id":"d","_rev":"3-a","_revisions":{"start":3,"ids":["a","b","9"]}}`
	result := run(t, replication(t, source.URL, target.URL))
	require.EqualValues(t, leaves, result.Stats.DocsWritten)
}

// For a document that is too large, the error names the setting with the limit, however the document is read.
func TestDocumentsThatAreTooLarge(t *testing.T) {
	t.Parallel()
	const most = 1 << 20
	for name, more := range map[string][]string{
		"in bulk":     {`"use_bulk_get":true`},
		"one by one":  {`"use_bulk_get":false`},
		"from a list": {`"use_bulk_get":false`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source, target := stubs(t, 0)
			text := fmt.Sprintf(`{"_id":"big","_rev":"1-a","x":%q}`, strings.Repeat("x", most))
			source.add("big", "1-a", text)
			if name == "from a list" {
				source.fail("GET /big", 200, `[{"ok":`+text+`}]`)
			}
			rep := replication(t, source.URL, target.URL, more...)
			failure := fails(t, rep, func(cfg *worker.Config) { cfg.MaxDocument = most })
			require.ErrorIs(t, failure, couch.ErrLimit)
			require.Contains(t, failure.Reason, "a document of more than 1048576 bytes, see [replicator] max_document_size")
			require.EqualValues(t, 1, run(t, rep).Stats.DocsWritten, "by default it may be larger")
		})
	}
}
