package worker_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/couch"
	"settee/pkg/couch/couchtest"
	"settee/replicator/worker"
)

// Whatever is wrong with one document or with its row in the feed, the others arrive, this one is listed unless it arrives, and
// the run completes.
func TestOneDamagedDocument(t *testing.T) {
	testkit.SkipShort(t)
	quietly(t)
	answers := []couchtest.Fault{
		couchtest.NeverAnswers, couchtest.OneByteASec, couchtest.ClosesMidway, couchtest.AnnouncesMore, couchtest.EndlessBody,
		couchtest.InvalidJSON, couchtest.Status500, couchtest.Status404, couchtest.RedirectLoop,
	}
	const plain, attached = "d7", "att1"
	n := 0
	for _, damage := range []struct {
		side, id  string
		endpoints []couchtest.Endpoint
		faults    []couchtest.Fault
	}{
		{"source", plain, []couchtest.Endpoint{couchtest.Changes}, []couchtest.Fault{
			couchtest.NoRevision, couchtest.NoID, couchtest.NoRow, couchtest.HugeLine}},
		{"source", plain, []couchtest.Endpoint{couchtest.BulkGet}, answers},
		{"source", plain, []couchtest.Endpoint{couchtest.BulkGet, couchtest.Get}, answers},
		{"source", attached, []couchtest.Endpoint{couchtest.Get}, append(answers,
			couchtest.WrongBoundary, couchtest.MissingParts, couchtest.WrongDigest)},
		{"target", plain, []couchtest.Endpoint{couchtest.RevsDiff}, answers},
		{"target", plain, []couchtest.Endpoint{couchtest.BulkDocs}, answers},
		{"target", plain, []couchtest.Endpoint{couchtest.BulkDocs, couchtest.Put}, answers},
		{"target", attached, []couchtest.Endpoint{couchtest.Put}, answers},
	} {
		for _, fault := range damage.faults {
			if n++; testkit.SkipsCase(n) {
				continue
			}
			testkit.RunBubble(t, fmt.Sprint(damage.side, damage.endpoints, fault), func(t *testing.T) {
				p := newHostilePair(t)
				p.side(damage.side).Damage(damage.id, fault, damage.endpoints...)
				var r refusals
				began := time.Now()
				result, err := p.run(t, func(cfg *worker.Config, _ *worker.Job) { r.collect(cfg) })
				require.NoError(t, err)
				require.Less(t, time.Since(began), 2*time.Hour)
				lacking, err := p.target.Lacks(p.source, nil)
				if fault != couchtest.WrongDigest {
					require.NoError(t, err)
				}
				require.Subset(t, []string{damage.id}, lacking)
				require.EqualValues(t, len(r.all), result.Stats.DocWriteFailures)
				if len(lacking) > 0 {
					require.Len(t, r.all, 1)
				}
				for _, f := range r.all {
					if fault != couchtest.NoID && fault != couchtest.NoRow {
						require.Equal(t, damage.id, f.ID)
					}
					require.NotEmpty(t, f.Code)
					require.Contains(t, f.Reason, damage.side)
					require.NotContains(t, f.Reason, password)
				}
				require.NotEmpty(t, p.target.Checkpoints())
			})
		}
	}
}

// A document whose requests fail for some seconds, while those of others do not, arrives: the second time it is tried as often as
// any request.
func TestADocumentThatFailsForSomeSeconds(t *testing.T) {
	t.Parallel()
	const attached = "att1"
	for _, damage := range []struct {
		side     string
		endpoint couchtest.Endpoint
	}{{"source", couchtest.Get}, {"target", couchtest.Put}} {
		testkit.RunBubble(t, damage.side, func(t *testing.T) {
			p := newHostilePair(t)
			p.side(damage.side).Damage(attached, couchtest.ClosesMidway, damage.endpoint)
			repaired := time.AfterFunc(6*time.Second, func() {
				p.side(damage.side).Damage(attached, couchtest.None, damage.endpoint)
			})
			defer repaired.Stop()
			var r refusals
			_, err := p.run(t, func(cfg *worker.Config, _ *worker.Job) { r.collect(cfg) })
			require.NoError(t, err)
			require.Empty(t, r.all)
			lacking, err := p.target.Lacks(p.source, nil)
			require.NoError(t, err)
			require.Empty(t, lacking)
		})
	}
}

// CouchDB writes the names of attachments into the headers of a multipart body as they are.
func TestAttachmentNamesThatBreakHeaders(t *testing.T) {
	t.Parallel()
	peer := couchtest.SharedCouchDB(t)
	source, target := peer.DB(t, "source"), peer.DB(t, "target")
	names := []string{"a\nb", "a\rb", "a\x00b", "a\r\n\r\nb", "a\r\n--x\r\n", `a"b`, "\t", "é\x7f"}
	for i, name := range names {
		// One is stored compressed, and the other one is too large to be read with the document.
		post(t, source+"/_bulk_docs", fmt.Sprintf(`{"docs":[{"_id":"d%d","_attachments":{%s:{"content_type":"text/plain","data":"aGVsbG8="},
			%s:{"content_type":"a/b","data":%q}}}]}`, i, quoted(name), quoted(name+"2"), strings.Repeat("AAAA", 30_000)))
	}
	var r refusals
	result := run(t, replication(t, source, target), r.collect)
	require.Empty(t, r.all)
	require.EqualValues(t, len(names), result.Stats.DocsWritten)
	verified, differences := verify(t, replication(t, source, target), attachments)
	require.Empty(t, differences)
	require.EqualValues(t, 2*len(names), verified.Attachments)
}

// TestCompressedAttachmentsFetchedOneByOne: an attachment stays compressed, whatever others the document has.
func TestCompressedAttachmentsFetchedOneByOne(t *testing.T) {
	t.Parallel()
	var zipped bytes.Buffer
	zip := gzip.NewWriter(&zipped)
	_, err := zip.Write(make([]byte, 3000))
	require.NoError(t, errors.Join(err, zip.Close()))
	peer := couchtest.SharedCouchDB(t)
	source, target := peer.DB(t, "source"), peer.DB(t, "target")
	for id, length := range map[string]int{"by the server": 3000, "by the client": zipped.Len()} {
		doc, err := couch.ParseDocument(fmt.Appendf(nil, `{"_id":%q,"_rev":"1-a","_attachments":{
			"f":{"content_type":"text/plain","follows":true,"length":%d,"encoding":"gzip","encoded_length":%d},
			"a\nb":{"content_type":"a/b","follows":true,"length":1}}}`, id, length, zipped.Len()))
		require.NoError(t, err)
		require.NoError(t, opened(t, source).PutMultipart(t.Context(), doc, &contents{doc, []string{zipped.String(), "1"}}))
	}
	run(t, replication(t, source, target))
	stubs := func(dbURL string) (all []string) {
		results, err := opened(t, dbURL).BulkGet(t.Context(), []couch.DocRef{{ID: "by the server", Rev: "1-a"}, {ID: "by the client", Rev: "1-a"}})
		require.NoError(t, err)
		defer results.Close()
		for range 2 {
			got, err := results.Next()
			require.NoError(t, err)
			all = append(all, string(got.Doc.Body))
		}
		return all
	}
	want := stubs(source)
	require.Contains(t, want[1], fmt.Sprintf(`"encoded_length":%d`, zipped.Len()))
	require.Equal(t, want, stubs(target))
}

// contents is a source of a document's attachments.
type contents struct {
	doc  couch.Document
	left []string
}

func (c *contents) NextAttachment() (*couch.AttachmentReader, error) {
	all, err := c.doc.Attachments()
	if err != nil || len(c.left) == 0 {
		return nil, cmp.Or(err, io.EOF)
	}
	next := c.left[0]
	about := all[len(all)-len(c.left)]
	c.left = c.left[1:]
	return couch.NewAttachmentReader(about, strings.NewReader(next)), nil
}
