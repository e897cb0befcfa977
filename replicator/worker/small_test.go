package worker_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch/couchtest"
)

// singles returns the number of requests for one document.
func (p *proxy) singles() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, r := range p.requests {
		if strings.Contains(r, " /doc-") && strings.Count(r, "/") == 1 { // no attachment
			n++
		}
	}
	return n
}

// smallDocuments returns documents with attachments, from number begin on, in their revision number rev.
func smallDocuments(begin, n, rev int, contentType string, sizes ...int) []string {
	var docs []string
	for i := range n {
		var hashes, files []string
		for r := rev; r > 0; r-- {
			hashes = append(hashes, fmt.Sprintf(`"%032x"`, r))
		}
		for f, size := range sizes {
			data := base64.StdEncoding.EncodeToString([]byte(strings.Repeat(fmt.Sprintf("%d/%d/%d ", begin+i, f, rev), size)[:size]))
			files = append(files, fmt.Sprintf(`"file %d":{"content_type":%q,"revpos":%d,"data":%q}`, f, contentType, rev, data))
		}
		docs = append(docs, fmt.Sprintf(`{"_id":"doc-%05d","_rev":"%d-%032x","_revisions":{"start":%d,"ids":[%s]},"n":%d,"_attachments":{%s}}`,
			begin+i, rev, rev, rev, strings.Join(hashes, ","), i, strings.Join(files, ",")))
	}
	return docs
}

func writeAll(t *testing.T, dbURL string, docs []string) {
	t.Helper()
	post(t, dbURL+"/_bulk_docs", `{"new_edits":false,"docs":[`+strings.Join(docs, ",")+`]}`)
}

// Documents with small attachments need no requests of their own, unless the attachments are stored compressed. They
// arrive with the same digests.
func TestSmallAttachmentsAreCopiedInBulk(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		_, isCouchDB := peer.(*couchtest.CouchDB)
		source, target := peer.DB(t, "source"), peer.DB(t, "target")
		writeAll(t, source, smallDocuments(0, 300, 1, "application/octet-stream", 10<<10))
		writeAll(t, source, smallDocuments(300, 50, 1, "application/octet-stream", 1, 0, 3000))
		writeAll(t, source, smallDocuments(350, 20, 1, "application/octet-stream", 30_000, 30_000, 30_000))
		writeAll(t, source, smallDocuments(370, 30, 1, "text/plain", 10<<10))
		writeAll(t, source, smallDocuments(0, 10, 2, "application/octet-stream", 10<<10, 100))
		for _, doc := range smallDocuments(100, 10, 1, "application/octet-stream", 1000) {
			writeAll(t, source, []string{strings.ReplaceAll(doc, "00000001", "0000000f")}) // a conflict
		}
		single := 20
		if isCouchDB {
			single += 30 // compressed
		}
		check := func(single int) {
			from, to := newProxy(t, source, nil), newProxy(t, target, nil)
			result := run(t, replication(t, from.URL, to.URL))
			couchtest.SameTrees(t, source, target)
			require.Equal(t, result.Stats.MissingRevisionsFound, result.Stats.DocsRead)
			require.Equal(t, result.Stats.MissingRevisionsFound, result.Stats.DocsWritten)
			require.Zero(t, result.Stats.DocWriteFailures)
			require.Equal(t, []int{single, single}, []int{from.singles(), to.singles()}, "source:\n%s\ntarget:\n%s", from.story(), to.story())
		}
		check(single)

		// New revisions, also of what was read singly, and a conflict.
		writeAll(t, source, smallDocuments(5, 10, 3, "application/octet-stream", 1000))
		writeAll(t, source, []string{strings.ReplaceAll(smallDocuments(20, 1, 1, "a/b", 50)[0], "00000001", "0000000f")})
		check(0)
	})
}

// Wrong bytes do not reach the target, and a source that leaves the bytes out is not asked for them again.
func TestInlineAttachmentsAreChecked(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		for name, answer := range map[string]func(string) string{
			"other bytes": func(text string) string { return strings.ReplaceAll(text, `"data":"`, `"data":"AAAA`) },
			"stubs":       func(text string) string { return strings.ReplaceAll(text, `"data":"`, `"stub":true,"x":"`) },
			"cut":         func(text string) string { return text[:len(text)/2] },
			"empty":       func(string) string { return `{"results":[]}` },
			"refused":     nil,
		} {
			source, target := peer.DB(t, "source"), peer.DB(t, "target")
			writeAll(t, source, smallDocuments(0, 40, 1, "application/octet-stream", 1000, 10))
			var mu sync.Mutex
			inline := 0
			from := newProxy(t, source, func(w http.ResponseWriter, r *http.Request, path string) bool {
				if path != "/_bulk_get" || r.URL.Query().Get("attachments") == "" {
					return false
				}
				mu.Lock()
				inline++
				mu.Unlock()
				if answer == nil {
					return refuse(w, http.StatusBadRequest, `{"error":"bad_request","reason":"attachments"}`)
				}
				text := forwarded(t, source, r, path)
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, answer(text))
				return true
			})
			result := run(t, replication(t, from.URL, target, `"worker_processes":1,"worker_batch_size":10`))
			couchtest.SameTrees(t, source, target)
			require.EqualValues(t, 40, result.Stats.DocsWritten, name)
			require.EqualValues(t, 40, result.Stats.DocsRead, name)
			switch name {
			case "stubs", "refused":
				require.LessOrEqual(t, inline, 2, name) // one batch may be asked before the other's answer
			default:
				require.Greater(t, inline, 2, name) // of the four batches, one whose _bulk_get fails is read one by one
			}
			require.NotZero(t, from.singles(), name)
		}
	})
}

// forwarded returns the answer of a database to a request.
func forwarded(t *testing.T, dbURL string, r *http.Request, path string) string {
	request, err := http.NewRequestWithContext(r.Context(), r.Method, dbURL+path+"?"+r.URL.RawQuery, r.Body)
	if err != nil {
		t.Error(err)
		return ""
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	if !json.Valid(text) {
		t.Errorf("%s: %d %s", path, answer.StatusCode, text)
	}
	return string(text)
}
