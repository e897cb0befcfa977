package databases_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
	"settee/pkg/docstore"
)

// Design documents can be written in many ways.
func TestDesignDocumentsAreAdministrators(t *testing.T) {
	t.Parallel()
	n := start(t)
	p := n.NewPeople()
	n.With("db", webtest.Security)
	require.Equal(t, http.StatusCreated, n.As(p.Admin, http.MethodPut, "/db/_design/d", "{}").Status)
	require.Equal(t, http.StatusCreated, n.As(p.Member, http.MethodPut, "/db/doc", "{}").Status)
	require.Equal(t, http.StatusForbidden, n.As(p.Member, "COPY", "/db/doc", "", "Destination", "_design/e").Status)
	require.Equal(t, http.StatusForbidden, n.As(p.Member, "COPY", "/db/_design/d", "", "Destination", "_design%2fe").Status)
	for _, edits := range []string{"true", "false"} {
		got := n.As(p.Member, http.MethodPost, "/db/_bulk_docs", `{"new_edits":`+edits+`,"docs":[{"_id":"_design/e","_rev":"1-a"},{"_id":"_design/f","_rev":"1-b"},{"_id":"doc2","_rev":"1-a"}]}`)
		if edits == "true" {
			require.Equal(t, http.StatusCreated, got.Status, got.Body)
		}
		require.Contains(t, got.Body, `{"id":"_design/e"`)
		require.Contains(t, got.Body, `"error":"forbidden","reason":"You are not a db or server admin."`)
		require.Equal(t, http.StatusNotFound, n.Get("/db/_design/e").Status)
		require.Equal(t, http.StatusNotFound, n.Get("/db/_design/f").Status)
	}
}

func TestUserDocuments(t *testing.T) {
	t.Parallel()
	n := start(t)
	ann, eve := n.NewUser("ann", "staff"), n.NewUser("eve")
	const mine = "/_users/org.couchdb.user:ann"
	got := n.As(ann, http.MethodGet, mine, "").Is(t, http.StatusOK)
	doc := got.JSON(t)
	require.Equal(t, "pbkdf2", doc["password_scheme"])
	require.Equal(t, "sha256", doc["pbkdf2_prf"])
	require.NotContains(t, doc, "password")
	put := func(who string, changes map[string]any) webtest.Answer {
		body := map[string]any{}
		for name, value := range doc {
			body[name] = value
		}
		for name, value := range changes {
			body[name] = value
		}
		text, err := json.Marshal(body)
		require.NoError(t, err)
		return n.As(who, http.MethodPut, mine, string(text))
	}
	webtest.Refused(t, put(ann, map[string]any{"roles": []string{"staff", "more"}}), http.StatusForbidden, "forbidden", "Only _admin may edit roles")
	require.Equal(t, http.StatusForbidden, put(eve, nil).Status)
	got = put(ann, map[string]any{"password": "new-" + webtest.Secret})
	require.Equal(t, http.StatusCreated, got.Status, got.Body)
	require.Equal(t, http.StatusUnauthorized, n.As(ann, http.MethodGet, mine, "").Status)
	ann = "ann:new-" + webtest.Secret

	// Revisions from elsewhere could win with any roles.
	n.As(ann, http.MethodPut, mine+"?new_edits=false", `{"_rev":"9-a","type":"user","name":"ann","roles":["staff"]}`).Is(t, http.StatusForbidden)
	// A user without a document, as one with a token, cannot make one, and neither can a user that has deleted it.
	rev := n.As(ann, http.MethodGet, mine, "").JSON(t)["_rev"].(string)
	for _, target := range []string{"org.couchdb.user:other", "org.couchdb.user:eve", "_local/mine"} {
		webtest.Refused(t, n.As(ann, "COPY", mine, "", "Destination", target), http.StatusNotFound, "not_found", "missing")
	}
	require.Equal(t, http.StatusCreated, n.As(ann, http.MethodPut, mine+"/photo?rev="+rev, "x", "Content-Type", "image/png").Status)
	require.Equal(t, http.StatusOK, n.As(ann, http.MethodGet, mine+"/photo", "").Status)
	require.Equal(t, http.StatusForbidden, n.As(eve, http.MethodGet, mine+"/photo", "").Status)
	rev = n.As(ann, http.MethodGet, mine, "").JSON(t)["_rev"].(string)
	require.Equal(t, http.StatusOK, n.As(ann, http.MethodDelete, mine+"?rev="+rev, "").Status)
	require.Equal(t, http.StatusUnauthorized, n.As(ann, http.MethodGet, mine, "").Status)

	// Administrators write many, replicated ones too, and no password is kept as it came.
	got = n.Do(http.MethodPost, "/_users/_bulk_docs", `{"new_edits":false,"docs":[{"_id":"org.couchdb.user:bob","_rev":"3-a",
		"type":"user","name":"bob","roles":["x"],"password":"bob-`+webtest.Secret+`"},{"_id":"org.couchdb.user:bad","_rev":"1-a","name":"bad"}]}`,
		"Content-Type", "application/json")
	require.Contains(t, got.Body, `doc.type must be user`)
	require.NotContains(t, n.Get("/_users/_all_docs?include_docs=true").Body, `"password":`)
	got = n.As("bob:bob-"+webtest.Secret, http.MethodGet, "/_session", "")
	require.Contains(t, got.Body, `"userCtx":{"name":"bob","roles":["x"]}`)
}

// show makes a request whose answer may have the secret, and returns it with that replaced.
func (n *node) show(who, method, target, body string) (int, string) {
	n.Helper()
	name, password, _ := strings.Cut(who, ":")
	r, err := http.NewRequestWithContext(n.Context(), method, "http://"+n.Address+target, strings.NewReader(body))
	require.NoError(n, err)
	r.SetBasicAuth(name, password)
	r.Header.Set("Content-Type", "application/json")
	response, err := n.Client.Do(r)
	require.NoError(n, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(n, err)
	return response.StatusCode, strings.ReplaceAll(string(text), webtest.Secret, "SECRET")
}

func TestReplicationDocumentsOfOthers(t *testing.T) {
	t.Parallel()
	n := start(t)
	p := n.NewPeople()
	other := n.NewUser("bob", "staff")
	const database = "/x%2F_replicator"
	n.With("x/_replicator", webtest.Security)
	got := n.As(p.Member, http.MethodPut, database+"/rep", webtest.Replication("")).Is(t, http.StatusCreated)
	first := got.JSON(t)["rev"].(string)
	got = n.As(p.Member, http.MethodPut, database+"/rep?rev="+first, webtest.Replication(`"n":2`)).Is(t, http.StatusCreated)
	rev := got.JSON(t)["rev"].(string)

	for _, who := range []string{p.Root, p.Admin, p.Member} {
		status, body := n.show(who, http.MethodGet, database+"/rep", "")
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, body, `"_rev":"`+rev+`"`)
		require.Contains(t, body, "SECRET")
		require.Contains(t, body, `"owner":"ann"`)
	}
	// In no way does another one see more, or a revision that there is.
	for _, target := range []string{
		"/rep", "/rep?revs=true", "/rep?revs_info=true", "/rep?meta=true&attachments=true", "/rep?rev=" + rev, "/rep?latest=true&rev=" + rev,
		"/rep?open_revs=all", "/rep?open_revs=[%22" + rev + "%22]&revs=true", "/rep?local_seq=true&conflicts=true",
	} {
		for _, accept := range []string{"application/json", "multipart/mixed"} {
			got := n.As(other, http.MethodGet, database+target, "", "Accept", accept).Is(t, http.StatusOK)
			for _, kept := range []string{first, rev} {
				require.NotContains(t, got.Body, kept[len("1-"):], target)
				require.NotContains(t, got.Header.Get("ETag"), kept[len("1-"):])
			}
			require.Contains(t, got.Body, `"source":"http://a.example/db","target":{"url":"http://b.example/db"}`, target)
		}
	}
	got = n.As(other, http.MethodPost, database+"/_bulk_get?revs=true", `{"docs":[{"id":"rep"},{"id":"rep","rev":"`+rev+`"}]}`).Is(t, http.StatusOK)
	require.NotContains(t, got.Body, rev[len("2-"):]+`","source`)
	require.NotContains(t, got.Body, first[len("1-"):])

	// It cannot be written back, and not by its real revision either.
	stripped := n.As(other, http.MethodGet, database+"/rep", "").JSON(t)
	fake := stripped["_rev"].(string)
	require.NotEqual(t, rev, fake)
	// The made up one says nothing of the real one: the same is shown under the same.
	got = n.As(p.Member, http.MethodPut, database+"/rep?rev="+rev, strings.ReplaceAll(webtest.Replication(`"n":2`), webtest.Secret, "other-"+webtest.Secret)).Is(t, http.StatusCreated)
	third := got.JSON(t)["rev"].(string)
	got = n.As(p.Member, http.MethodPut, database+"/same", webtest.Replication("")).Is(t, http.StatusCreated)
	n.As(p.Member, http.MethodPut, database+"/same?rev="+got.JSON(t)["rev"].(string), webtest.Replication(`"n":2`)).Is(t, http.StatusCreated)
	require.Equal(t, fake, n.As(other, http.MethodGet, database+"/same", "").JSON(t)["_rev"])
	rev = third
	require.Equal(t, http.StatusConflict, n.As(other, http.MethodPut, database+"/rep?rev="+fake, webtest.Replication("")).Status)
	const others = "Can't update replication documents from other users."
	webtest.Refused(t, n.As(other, http.MethodPut, database+"/rep?rev="+rev, webtest.Replication("")), http.StatusForbidden, "forbidden", others)
	webtest.Refused(t, n.As(other, http.MethodDelete, database+"/rep?rev="+rev, ""), http.StatusForbidden, "forbidden", others)
	webtest.Refused(t, n.As(other, http.MethodPut, database+"/rep/a?rev="+rev, "x"), http.StatusForbidden, "forbidden", others)
	got = n.As(other, http.MethodPost, database+"/_bulk_docs", `{"docs":[{"_id":"rep","_rev":"`+rev+`","_deleted":true}]}`)
	require.Contains(t, got.Body, others)
	for _, body := range []string{
		`{"new_edits":false,"docs":[{"_id":"rep","_rev":"9-a","_deleted":true}]}`,
		`{"new_edits":false,"docs":[{"_id":"new","_rev":"1-a","source":"http://a/b","target":"http://c/d","owner":"bob"}]}`,
	} {
		require.Contains(t, n.As(other, http.MethodPost, database+"/_bulk_docs", body).Body, `"error":"forbidden"`)
	}
	// Nor copied.
	require.Equal(t, http.StatusForbidden, n.As(other, "COPY", database+"/rep", "", "Destination", "mine").Status)
	require.Equal(t, http.StatusForbidden, n.As(other, http.MethodGet, database+"/rep/a", "").Status)
	require.Equal(t, http.StatusNotFound, n.Get(database+"/mine").Status)

	// Its owner may.
	require.Equal(t, http.StatusOK, n.As(p.Member, http.MethodDelete, database+"/rep?rev="+rev, "").Status)
}

// No answer tells which attachments, and which revisions, a replication document has that is
// another user's.
func TestAttachmentsOfOthers(t *testing.T) {
	t.Parallel()
	n := start(t)
	p := n.NewPeople()
	other := n.NewUser("bob", "staff")
	const database = "/x%2F_replicator"
	n.With("x/_replicator", webtest.Security)
	got := n.As(p.Member, http.MethodPut, database+"/rep", webtest.Replication(`"_attachments":{"a":{"data":"aGVsbG8="}}`)).Is(t, http.StatusCreated)
	rev := got.JSON(t)["rev"].(string)
	gotten := n.As(p.Member, http.MethodGet, database+"/rep/a", "").Is(t, http.StatusOK)
	etag := gotten.Header.Get("ETag")

	shape := func(a webtest.Answer) string {
		for _, name := range []string{"Date", "X-Couch-Request-Id"} {
			a.Header.Del(name)
		}
		return fmt.Sprint(a.Status, a.Header, a.Body)
	}
	for _, request := range []struct {
		method  string
		headers []string
	}{
		{http.MethodGet, nil},
		{http.MethodHead, nil},
		{http.MethodGet, []string{"Range", "bytes=1-2"}},
		{http.MethodGet, []string{"Range", "bytes=100-200"}},
		{http.MethodGet, []string{"If-None-Match", etag}},
		{http.MethodGet, []string{"Accept-Encoding", "gzip"}},
		{http.MethodPut, nil},
		{http.MethodDelete, nil},
	} {
		answers := map[string]string{}
		for _, name := range []string{"a", "b"} {
			for _, query := range []string{"", "?rev=" + rev, "?rev=1-00000000000000000000000000000000", "?rev=7-a", "?latest=true&rev=" + rev} {
				got := n.As(other, request.method, database+"/rep/"+name+query, "", request.headers...).Is(t, http.StatusForbidden)
				answers[shape(got)] = name + query
			}
		}
		require.Len(t, answers, 1, request.method)
	}
	for _, query := range []string{"", "?rev=" + rev, "?rev=7-a"} {
		require.Equal(t, http.StatusForbidden, n.As(other, "COPY", database+"/rep"+query, "", "Destination", "mine").Status)
	}
	for _, since := range []string{rev, "7-a"} {
		for _, accept := range []string{"application/json", "multipart/mixed", "multipart/related"} {
			got := n.As(other, http.MethodPost, database+"/_bulk_get?attachments=true",
				`{"docs":[{"id":"rep","atts_since":["`+since+`"]}]}`, "Accept", accept)
			require.Equal(t, http.StatusOK, got.Status, got.Body)
			require.NotContains(t, got.Body, "attachment")
			got = n.As(other, http.MethodGet, database+`/rep?attachments=true&atts_since=["`+since+`"]`, "", "Accept", accept).Is(t, http.StatusOK)
			require.NotContains(t, got.Body, "attachment")
		}
	}

	// Members see what is missing. Other users do not see the attachments of a deleted document either.
	require.Equal(t, http.StatusNotFound, n.As(p.Member, http.MethodGet, database+"/rep/b", "").Status)
	require.Equal(t, http.StatusConflict, n.As(p.Member, http.MethodPut, database+"/rep/b?rev=7-a", "").Status)
	require.Equal(t, http.StatusNotFound, n.As(other, http.MethodGet, database+"/none/b", "").Status)
	got = n.As(p.Member, http.MethodPut, database+"/rep?rev="+rev, `{"_deleted":true,"_attachments":{"a":{"stub":true}}}`).Is(t, http.StatusOK)
	require.Equal(t, http.StatusForbidden, n.As(other, http.MethodGet, database+"/rep/a?rev="+got.JSON(t)["rev"].(string), "").Status)
	require.Equal(t, http.StatusOK, n.As(p.Root, http.MethodGet, database+"/rep/a?rev="+got.JSON(t)["rev"].(string), "").Status)
}

func TestOwnersAndUserCtx(t *testing.T) {
	t.Parallel()
	n := start(t)
	p := n.NewPeople()
	const database = "/x%2F_replicator"
	n.With("x/_replicator", webtest.Security)
	for i, test := range []struct {
		who, members, owner, reason string
	}{
		{p.Member, ``, `"ann"`, ""},
		{p.Member, `"owner":"ann"`, `"ann"`, ""},
		{p.Member, `"owner":"bob"`, "", "Can't update replication documents from other users."},
		{p.Member, `"owner":null`, "", "Can't update replication documents from other users."},
		{p.Member, `"owner":"ann","owner":"bob"`, "", "Can't update replication documents from other users."},
		{p.Member, `"user_ctx":{"name":"ann","roles":["staff"]}`, `"ann"`, ""},
		{p.Member, `"user_ctx":{"name":"boss","roles":[]}`, "", "`user_ctx.name` can only be your own name"},
		{p.Member, `"user_ctx":{"name":"ann","roles":["_admin"]}`, "", "`user_ctx.roles` can only have roles of your own"},
		{p.Admin, ``, `"boss"`, ""},
		{p.Admin, `"owner":"bob"`, `"bob"`, ""},
		{p.Root, `"owner":null`, `"admin"`, ""},
		{p.Root, `"user_ctx":{"name":"ann","roles":["anything"]}`, `"admin"`, ""},
	} {
		path := fmt.Sprintf("%s/rep%d", database, i)
		members := test.members
		if members != "" {
			members = "," + members
		}
		got := n.As(test.who, http.MethodPut, path, fmt.Sprintf(`{"source":"http://a.example/%d","target":"http://b.example/db"%s}`, i, members))
		if test.reason != "" {
			webtest.Refused(t, got, http.StatusForbidden, "forbidden", test.reason)
			continue
		}
		require.Equal(t, http.StatusCreated, got.Status, got.Body)
		require.Contains(t, n.Get(path).Body, `"owner":`+test.owner, test.members)
	}
	// What administrators replicate stays as it was.
	n.Do(http.MethodPut, database+"/replicated?new_edits=false", `{"_rev":"1-a","source":"http://a.example/x","target":"http://b.example/db"}`).Is(t, http.StatusCreated)
	require.NotContains(t, n.Get(database+"/replicated").Body, "owner")
}

// One that is silent ends with its next heartbeat.
func TestSilentFeedsEndWithTheirRights(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, n *node, _ *docstore.Database) {
		p := n.NewPeople()
		n.With("db", webtest.Security)
		user, password, _ := strings.Cut(p.Member, ":")
		f := n.Follow("?feed=continuous&since=now&heartbeat=5000", "Authorization", webtest.Basic(user, password))
		f.Expect("")
		n.With("db", "{}")
		require.Equal(t, webtest.FeedLast, f.Rest())
		f.After(10 * time.Second)
	})
}
