package couch_test

import (
	"bytes"
	"compress/gzip"
	"crypto/md5"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch"
	"settee/pkg/couch/couchtest"
)

// live opens a new database of a peer.
func live(t *testing.T, peer couchtest.Peer, edit ...func(*couch.Config)) *couch.Database {
	t.Helper()
	return openAt(t, peer.DB(t, "live"), edit...)
}

// openAt opens a database whose URL may have credentials.
func openAt(t *testing.T, dbURL string, edit ...func(*couch.Config)) *couch.Database {
	t.Helper()
	bare, username, password := couchtest.Credentials(dbURL)
	return open(t, bare, append(edit, func(c *couch.Config) { c.Username, c.Password = username, password })...)
}

// write writes revisions that the server must accept.
func write(t *testing.T, db *couch.Database, bodies ...string) {
	t.Helper()
	docs := make([]couch.Document, len(bodies))
	for i, body := range bodies {
		docs[i] = document(t, body)
	}
	refused, err := db.BulkDocs(t.Context(), docs)
	require.NoError(t, err)
	require.Empty(t, refused)
}

// revision returns a document's body.
func revision(id string, generation int, history ...string) string {
	b, _ := json.Marshal(history)
	quoted, _ := json.Marshal(id)
	return fmt.Sprintf(`{"_id":%s,"_rev":"%d-%s","_revisions":{"start":%d,"ids":%s},"at":%q}`,
		quoted, generation, history[0], generation, b, history[0])
}

// requireLast checks that no change follows a sequence.
func requireLast(t *testing.T, db *couch.Database, seq json.RawMessage) {
	t.Helper()
	require.NotEmpty(t, seq)
	rows, _ := allRows(t, db, couch.ChangesOptions{Since: seq})
	require.Empty(t, rows)
}

func TestLiveDatabase(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		source := peer.DB(t, "live")
		db := openAt(t, source)
		info, err := db.Info(t.Context())
		require.NoError(t, err)
		requireLast(t, db, info.UpdateSeq)
		require.NotEmpty(t, info.InstanceStartTime)

		require.ErrorIs(t, db.Create(t.Context(), nil), couch.ErrExists)
		_, err = db.EnsureFullCommit(t.Context())
		require.NoError(t, err)

		missing := openAt(t, source+"-nowhere")
		_, err = missing.Info(t.Context())
		require.ErrorIs(t, err, couch.ErrNoDatabase)
		_, err = missing.GetLocal(t.Context(), "x")
		require.ErrorIs(t, err, couch.ErrNoDatabase)
		_, err = missing.BulkGet(t.Context(), []couch.DocRef{{ID: "x", Rev: "1-a"}})
		require.ErrorIs(t, err, couch.ErrNoDatabase)

		t.Cleanup(func() { peer.Remove(t, source+"-created") })
		created := openAt(t, source+"-created")
		require.NoError(t, created.Create(t.Context(), nil))
		_, err = created.Info(t.Context())
		require.NoError(t, err)
	})
}

func TestLiveIDs(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		db := live(t, peer)
		all := []string{
			"plain", "a/b", "a b", "a+b", "a%2Fb", "dü", "😀", "q?x=1&y", "#hash", `"quoted"`, `back\slash`, "..", ".", "a:b;c,d@e",
			"_design/x", "_design/a/b", "Ünïcode/with spaces+and plus",
		}
		for _, id := range all {
			write(t, db, revision(id, 1, "aa"))
			doc, err := db.Get(t.Context(), id)
			require.NoError(t, err, id)
			parsed, err := couch.ParseDocument(doc)
			require.NoError(t, err)
			require.Equal(t, id, parsed.ID)
		}
		rows, _ := allRows(t, db, couch.ChangesOptions{})
		require.ElementsMatch(t, all, ids(rows))
		for _, id := range []string{"abc", "a/b c+ü", "0123+continuous"} {
			_, err := db.GetLocal(t.Context(), id)
			require.ErrorIs(t, err, couch.ErrNotFound)
			rev, err := db.PutLocal(t.Context(), id, raw(`{"v":1}`))
			require.NoError(t, err)
			doc, err := db.GetLocal(t.Context(), id)
			require.NoError(t, err)
			var stored map[string]any
			require.NoError(t, json.Unmarshal(doc, &stored))
			require.Equal(t, map[string]any{"_id": "_local/" + id, "_rev": rev, "v": 1.0}, stored)
			_, err = db.PutLocal(t.Context(), id, raw(`{"_rev":"`+rev+`","v":2}`))
			require.NoError(t, err)
			_, err = db.PutLocal(t.Context(), id, raw(`{"v":3}`))
			if _, couchDB := peer.(*couchtest.CouchDB); couchDB {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, couch.ErrConflict)
			}
		}
		ddoc, err := db.Get(t.Context(), "_design/a/b")
		require.NoError(t, err)
		require.Contains(t, string(ddoc), `"_design/a/b"`)
	})
}

func TestLiveReplicatedWrites(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		db := live(t, peer)
		write(t, db, revision("x", 2, "bb", "aa"), revision("x", 2, "cc", "aa"), revision("y", 1, "aa"))
		write(t, db, strings.Replace(revision("y", 2, "dd", "aa"), `"at"`, `"_deleted":true,"at"`, 1))
		write(t, db, revision("x", 2, "bb", "aa")) // a repetition changes nothing

		rows, feed := allRows(t, db, couch.ChangesOptions{AllLeaves: true})
		require.ElementsMatch(t, []string{"x", "y"}, ids(rows))
		for _, row := range rows {
			if row.ID == "x" {
				require.ElementsMatch(t, []string{"2-bb", "2-cc"}, row.Revs)
			}
			require.Equal(t, row.ID == "y", row.Deleted)
		}
		requireLast(t, db, feed.LastSeq())

		_, couchDB := peer.(*couchtest.CouchDB)
		pending, known := feed.Pending()
		require.Equal(t, couchDB, known)
		require.Zero(t, pending)
		missing, err := db.RevsDiff(t.Context(), []couch.DocRevs{
			{ID: "x", Revs: []string{"2-bb", "3-ee"}}, {ID: "y", Revs: []string{"2-dd"}}, {ID: "z", Revs: []string{"1-a"}},
		})
		require.NoError(t, err)
		x := couch.Missing{Revs: []string{"3-ee"}}
		if couchDB {
			x.PossibleAncestors = []string{"2-bb", "2-cc"}
			slices.Sort(missing[0].PossibleAncestors)
		}
		require.Equal(t, []couch.Missing{x, {}, {Revs: []string{"1-a"}}}, missing)
	})
}

func TestLiveWinners(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		db := live(t, peer)
		write(t, db, revision("x", 2, "bb", "aa"), revision("x", 2, "cc", "aa"), revision(`a "/+ü`, 1, "aa"),
			`{"_id":"gone","_rev":"2-dd","_revisions":{"start":2,"ids":["dd","aa"]},"_deleted":true}`, `{"_id":"_design/d","_rev":"1-a"}`)
		winners, err := db.Winners(t.Context(), []string{"x", "never", "gone", `a "/+ü`, "x", "_design/d"})
		require.NoError(t, err)
		require.Equal(t, []couch.Winner{{Rev: "2-cc"}, {}, {Rev: "2-dd", Deleted: true}, {Rev: "1-aa"}, {Rev: "2-cc"}, {Rev: "1-a"}}, winners)
		winners, err = db.Winners(t.Context(), nil)
		require.NoError(t, err)
		require.Empty(t, winners)
	})
}

func TestLiveRefusedWrites(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		db := live(t, peer)
		write(t, db, `{"_id":"_design/v","_rev":"1-a","validate_doc_update":`+
			`"function(doc){ if (doc.bad) throw({forbidden: 'bad document'}); if (doc.who) throw({unauthorized: 'who are you'}); }"}`)
		refused, err := db.BulkDocs(t.Context(), []couch.Document{
			document(t, `{"_id":"a","_rev":"1-a","bad":true}`),
			document(t, `{"_id":"b","_rev":"1-a"}`),
			document(t, `{"_id":"c","_rev":"1-a","who":true}`),
		})
		require.NoError(t, err)
		require.Equal(t, []couch.DocError{
			{ID: "a", Rev: "1-a", Code: "forbidden", Reason: "bad document"},
			{ID: "c", Rev: "1-a", Code: "unauthorized", Reason: "who are you"},
		}, refused)

		doc, source := withAttachments(t, "d", "1-a", attached{couch.Attachment{Name: "f", ContentType: "a/b", Length: 2}, []byte("12")})
		doc.Body = bytes.Replace(doc.Body, []byte(`"_id"`), []byte(`"bad":true,"_id"`), 1)
		require.ErrorIs(t, db.PutMultipart(t.Context(), document(t, string(doc.Body)), source), couch.ErrForbidden)

		_, err = db.BulkDocs(t.Context(), []couch.Document{document(t, `{"_id":"_illegal","_rev":"1-a"}`)})
		require.ErrorContains(t, err, ": 400 ")
	})
}

func TestLiveBulkGet(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		db := live(t, peer)
		write(t, db, revision("x", 2, "bb", "aa"), revision("x", 2, "cc", "aa"), revision("y", 1, "aa"))
		write(t, db, strings.Replace(revision("y", 2, "dd", "aa"), `"at"`, `"_deleted":true,"at"`, 1))
		got := fetchAll(t, db, couch.DocRef{ID: "x", Rev: "2-bb"}, couch.DocRef{ID: "x", Rev: "2-cc"},
			couch.DocRef{ID: "y", Rev: "2-dd"}, couch.DocRef{ID: "never", Rev: "1-q"})
		require.Len(t, got, 4)
		revs := map[string]bool{}
		for _, f := range got {
			if f.Err != nil {
				require.Equal(t, "never", f.ID)
				require.Equal(t, "1-q", f.Rev)
				require.ErrorIs(t, f.Err, couch.ErrNotFound)
				continue
			}
			revs[f.ID+" "+f.Rev] = true
			require.Contains(t, string(f.Doc.Body), `"_revisions":{"start":2`)
			require.Equal(t, f.ID == "y", f.Doc.Deleted)
		}
		require.Equal(t, map[string]bool{"x 2-bb": true, "x 2-cc": true, "y 2-dd": true}, revs)
		require.Empty(t, fetchAll(t, db)) // the server never answers an empty list
	})
}

// TestLiveCopy copies documents unchanged from one database to another.
func TestLiveCopy(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		sourceURL, targetURL := peer.DB(t, "source"), peer.DB(t, "target")
		source, target := openAt(t, sourceURL), openAt(t, targetURL)
		write(t, source, revision("x", 2, "bb", "aa"), revision("x", 2, "cc", "aa"), revision("a/b c+dü", 1, "aa"))
		fetched := fetchAll(t, source, couch.DocRef{ID: "x", Rev: "2-bb"}, couch.DocRef{ID: "x", Rev: "2-cc"},
			couch.DocRef{ID: "a/b c+dü", Rev: "1-aa"})
		var docs []couch.Document
		for _, f := range fetched {
			docs = append(docs, f.Doc)
		}
		refused, err := target.BulkDocs(t.Context(), docs)
		require.NoError(t, err)
		require.Empty(t, refused)
		couchtest.SameTrees(t, sourceURL, targetURL)
	})
}

func TestLiveOpenRevs(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		db := live(t, peer)
		write(t, db, revision("a/x", 2, "bb", "aa"), revision("a/x", 2, "cc", "aa"))
		got := readLeaves(t, db, "a/x", "2-cc")
		require.Len(t, got, 1)
		require.Equal(t, "2-cc", got[0].Rev)
		got = readLeaves(t, db, "never", "1-q")
		require.Len(t, got, 1)
		require.ErrorIs(t, got[0].Err, couch.ErrNotFound)
	})
}

func digestOf(b []byte) string {
	sum := md5.Sum(b)
	return "md5-" + base64.StdEncoding.EncodeToString(sum[:])
}

// withAttachments returns a document whose attachments follow, and their source.
func withAttachments(t *testing.T, id, rev string, all ...attached) (couch.Document, *listed) {
	t.Helper()
	_, hash, _ := strings.Cut(rev, "-")
	quotedID, _ := json.Marshal(id)
	body := fmt.Sprintf(`{"_id":%s,"_rev":%q,"_revisions":{"start":1,"ids":[%q]},"_attachments":{`, quotedID, rev, hash)
	source := listed{}
	for i, a := range all {
		if i > 0 {
			body += ","
		}
		name, _ := json.Marshal(a.About.Name)
		kind, _ := json.Marshal(a.About.ContentType)
		body += fmt.Sprintf(`%s:{"content_type":%s,"revpos":1,"digest":%q,"length":%d,"follows":true`, name, kind, digestOf(a.Bytes), a.About.Length)
		if a.About.Encoding != "" {
			body += fmt.Sprintf(`,"encoding":%q,"encoded_length":%d`, a.About.Encoding, len(a.Bytes))
		}
		body += "}"
	}
	doc := document(t, body+`},"n":1.0}`)
	about, err := doc.Attachments()
	require.NoError(t, err)
	for i, a := range all {
		source = append(source, attached{about[i], a.Bytes})
	}
	return doc, &source
}

func plainAttachment(name, kind string, b []byte) attached {
	return attached{couch.Attachment{Name: name, ContentType: kind, Length: int64(len(b))}, b}
}

// unpacked returns an attachment's content, decompressed. CouchDB compresses text.
func unpacked(t *testing.T, a attached) []byte {
	t.Helper()
	if a.About.Encoding == "" {
		return a.Bytes
	}
	require.Equal(t, "gzip", a.About.Encoding)
	zip, err := gzip.NewReader(bytes.NewReader(a.Bytes))
	require.NoError(t, err)
	content, err := io.ReadAll(zip)
	require.NoError(t, err)
	return content
}

func TestLiveAttachments(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		binary := make([]byte, 2048)
		for i := range binary {
			binary[i] = byte(i)
		}
		big := bytes.Repeat(binary, 1000) // large enough for Expect: 100-continue
		var zipped bytes.Buffer
		zip := gzip.NewWriter(&zipped)
		_, err := io.WriteString(zip, strings.Repeat("hello ", 2000))
		require.NoError(t, err)
		require.NoError(t, zip.Close())

		for _, test := range []struct {
			name string
			id   string
			all  []attached
		}{
			{"one", "one", []attached{plainAttachment("f.bin", "application/octet-stream", binary)}},
			{"several, and an empty one", "several", []attached{
				plainAttachment("z", "text/plain; charset=\"utf-8\"", []byte("last comes first")),
				plainAttachment("empty", "a/b", nil),
				plainAttachment("a", "text/html", []byte("\r\n--boundary--\r\n")),
			}},
			{"big", "big", []attached{plainAttachment("big", "video/x", big), plainAttachment("small", "a/b", []byte("1"))}},
			{"names", "a/b c+dü", []attached{
				plainAttachment("a b.txt", "a/b", []byte("1")), plainAttachment("dir/x", "a/b", []byte("2")),
				plainAttachment("ü😀", "a/b", []byte("3")), plainAttachment("semi;x=1", "a/b", []byte("4")),
			}},
			{"names that its multipart reader does not know again", "odd", []attached{
				plainAttachment(`back\slash`, "a/b", []byte("1")), plainAttachment(`q"uote`, "a/b", binary),
				plainAttachment("%22", "a/b", []byte("33")), plainAttachment("&#1234;", "a/b", nil),
				plainAttachment("tab\there", "a/b", []byte("4444")),
			}},
			{"design document", "_design/att", []attached{plainAttachment("index.html", "text/html", []byte("<p>"))}},
			{"compressed", "compressed", []attached{
				{couch.Attachment{Name: "hello.txt", ContentType: "text/plain", Length: 12000, Encoding: "gzip"}, zipped.Bytes()},
				plainAttachment("plain", "a/b", []byte("1")),
			}},
			{"compressed, of unknown length", "unknown", []attached{
				{couch.Attachment{Name: "hello.txt", ContentType: "a/b", Length: int64(zipped.Len()), Encoding: "gzip"}, zipped.Bytes()},
			}},
			{"large document", "large", []attached{plainAttachment("f", "a/b", []byte("1"))}},
		} {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				db := live(t, peer)
				_, err := db.Info(t.Context()) // so that the client knows the server
				require.NoError(t, err)
				doc, source := withAttachments(t, test.id, "1-aa", test.all...)
				if test.name == "large document" {
					doc = document(t, strings.Replace(string(doc.Body), `"n":1.0`, `"n":"`+strings.Repeat("x", 3<<20)+`"`, 1))
				}
				require.NoError(t, db.PutMultipart(ctxFor(t, 2*time.Minute), doc, source))

				got := readLeaves(t, db, test.id, "1-aa")
				require.Len(t, got, 1)
				require.Len(t, got[0].Attachments, len(test.all))
				byName := map[string]attached{}
				for _, a := range got[0].Attachments {
					require.True(t, a.About.Follows)
					require.False(t, a.About.Stub)
					byName[a.About.Name] = a
				}
				for _, want := range test.all {
					a := byName[want.About.Name]
					require.True(t, bytes.Equal(unpacked(t, want), unpacked(t, a)), want.About.Name)
					require.Equal(t, digestOf(a.Bytes), a.About.Digest)
					require.Equal(t, want.About.ContentType, a.About.ContentType)
				}
			})
		}
	})
}

// TestLiveAttachmentsCopied streams attachments from one database directly to another.
func TestLiveAttachmentsCopied(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		source, target := live(t, peer, func(c *couch.Config) { c.MaxConnections = 1 }), live(t, peer)
		doc, parts := withAttachments(t, "x", "1-aa",
			plainAttachment("a", "a/b", bytes.Repeat([]byte("0123456789"), 50_000)), plainAttachment("b", "a/b", []byte("b")))
		require.NoError(t, source.PutMultipart(t.Context(), doc, parts))

		leaves, err := source.OpenRevs(t.Context(), "x", "1-aa", nil)
		require.NoError(t, err)
		defer leaves.Close()
		leaf, err := leaves.Next()
		require.NoError(t, err)
		require.NoError(t, target.PutMultipart(t.Context(), leaf.Doc, leaf))
		_, err = leaves.Next()
		require.Equal(t, io.EOF, err)

		require.Equal(t, readLeaves(t, source, "x", "1-aa"), readLeaves(t, target, "x", "1-aa"))

		// A new revision with an attachment that the target has: it stays a stub, and no bytes follow.
		next := document(t, `{"_id":"x","_rev":"2-bb","_revisions":{"start":2,"ids":["bb","aa"]},"_attachments":{"b":`+
			`{"stub":true,"revpos":1,"content_type":"a/b","length":1,"digest":"`+digestOf([]byte("b"))+`"}}}`)
		require.NoError(t, target.PutMultipart(t.Context(), next, nil))
		got := readLeaves(t, target, "x", "2-bb")
		require.Equal(t, []byte("b"), got[0].Attachments[0].Bytes)

		// A stub of an attachment that the target lacks.
		alien := document(t, `{"_id":"y","_rev":"1-bb","_attachments":{"b":`+
			`{"stub":true,"revpos":1,"content_type":"a/b","length":1,"digest":"`+digestOf([]byte("c"))+`"}}}`)
		require.ErrorIs(t, target.PutMultipart(t.Context(), alien, nil), couch.ErrMissingStub)
	})
}

func TestLiveFeeds(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		const beat = time.Minute // a feed silent for three of them is stalled
		t.Run("continuous", func(t *testing.T) {
			t.Parallel()
			db := live(t, peer)
			write(t, db, revision("a", 1, "aa"))
			ctx := ctxFor(t, 2*time.Minute)
			feed, err := db.Changes(ctx, couch.ChangesOptions{Feed: couch.FeedContinuous, Heartbeat: beat, Since: raw("0")})
			require.NoError(t, err)
			defer feed.Close()
			row, err := feed.Next()
			require.NoError(t, err)
			require.Equal(t, "a", row.ID)
			requireLast(t, db, row.Seq)
			write(t, db, revision("b", 1, "aa"))
			row, err = feed.Next()
			require.NoError(t, err)
			require.Equal(t, "b", row.ID)
		})
		t.Run("left", func(t *testing.T) {
			t.Parallel()
			db := live(t, peer)
			write(t, db, revision("a", 1, "aa")) // without a row, the answer begins with the first heartbeat
			ctx := ctxFor(t, 2*time.Minute)
			feed, err := db.Changes(ctx, couch.ChangesOptions{Feed: couch.FeedContinuous, Heartbeat: beat})
			require.NoError(t, err)
			require.NoError(t, feed.Close())
			_, err = feed.Next()
			require.Error(t, err)
			require.NoError(t, feed.Close())
		})
	})
}

func TestLiveFilters(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		db := live(t, peer)
		write(t, db, `{"_id":"_design/f","_rev":"1-a","filters":{"t":"function(doc, req){ return doc.at == req.query.want; }"},`+
			`"views":{"v":{"map":"function(doc){ if (doc.at == 'bb') emit(doc._id); }"}}}`, revision("x", 1, "aa"))
		_, feed := allRows(t, db, couch.ChangesOptions{})
		middle := feed.LastSeq()
		write(t, db, revision("y", 1, "bb"), revision("z", 1, "cc"))
		rows, feed := allRows(t, db, couch.ChangesOptions{Filter: "f/t", Query: url.Values{"want": {"cc"}}})
		require.Equal(t, []string{"z"}, ids(rows))
		requireLast(t, db, feed.LastSeq())
		rows, _ = allRows(t, db, couch.ChangesOptions{Filter: "_view", Query: url.Values{"view": {"f/v"}}})
		require.Equal(t, []string{"y"}, ids(rows))
		rows, _ = allRows(t, db, couch.ChangesOptions{DocIDs: []string{"x", "y", "never"}, Since: middle})
		require.Equal(t, []string{"y"}, ids(rows))
		rows, feed = allRows(t, db, couch.ChangesOptions{Limit: 2})
		require.Len(t, rows, 2)
		rest, _ := allRows(t, db, couch.ChangesOptions{Since: feed.LastSeq()})
		require.ElementsMatch(t, []string{"_design/f", "x", "y", "z"}, ids(append(rows, rest...)))
		_, err := db.Changes(t.Context(), couch.ChangesOptions{Filter: "f/never"})
		require.ErrorIs(t, err, couch.ErrNotFound)
	})
}

func TestLiveCredentials(t *testing.T) {
	couchtest.EachWithAdmin(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		target := peer.DB(t, "secured")
		admin := openAt(t, target)
		_, err := admin.Info(t.Context())
		require.NoError(t, err)
		refused, err := admin.BulkDocs(t.Context(), []couch.Document{document(t, `{"_id":"_design/x","_rev":"1-a"}`)})
		require.NoError(t, err)
		require.Empty(t, refused)

		_, err = openAt(t, couchtest.As(target, rand.Text(), "wrong password")).Info(t.Context())
		require.ErrorIs(t, err, couch.ErrUnauthorized)
		require.NotContains(t, err.Error(), "wrong")

		bare, _, _ := couchtest.Credentials(target)
		anyone := open(t, bare)
		refused, err = anyone.BulkDocs(t.Context(), []couch.Document{document(t, `{"_id":"_design/y","_rev":"1-a"}`)})
		if err == nil {
			require.Len(t, refused, 1)
			err = &refused[0]
		}
		require.ErrorIs(t, err, couch.ErrUnauthorized)
	})
}
