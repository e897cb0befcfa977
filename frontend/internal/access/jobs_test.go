package access

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"

	"settee/frontend/internal/auth"
	"settee/pkg/docstore"
)

// The truth table, as a reader of docs/security.md expects it.
func TestWhoMayUseJobs(t *testing.T) {
	t.Parallel()
	type row struct{ serverAdmin, databaseAdmin, owner, poster bool }
	const yes, no = true, false
	for use, want := range map[JobUse]struct{ transient, document row }{
		SeeJob:         {row{yes, no, no, yes}, row{yes, yes, yes, no}},
		RunJob:         {row{yes, no, no, yes}, row{yes, yes, yes, no}},
		CancelJob:      {row{yes, no, no, yes}, row{}},
		ListJobs:       {row{yes, no, no, yes}, row{yes, yes, no, no}},
		ListAll:        {row{yes, no, no, no}, row{yes, no, no, no}},
		SeeFeedError:   {row{yes, no, no, no}, row{yes, no, no, no}},
		ReadDocument:   {row{}, row{yes, yes, yes, no}},
		ChangeDocument: {row{}, row{yes, yes, yes, no}},
	} {
		for transient, want := range map[bool]row{true: want.transient, false: want.document} {
			may := func(is standing) bool { return mayUse(use, transient, is) }
			assert.Equal(t, want, row{may(isServerAdmin), may(isDatabaseAdmin), may(isOwner), may(isPoster)}, "use %d, transient %t", use, transient)
			assert.False(t, may(0), "a user who is none of these")
			assert.Equal(t, want.owner || want.poster, may(isOwner|isPoster), "one standing is enough")
		}
	}
	assert.EqualValues(t, 8, jobUses, "each use has a row above")
}

func TestStandingToDocuments(t *testing.T) {
	t.Parallel()
	replications, other := databases(t, "_replicator")
	ann, admin := &Rights{user: Identity{User: auth.User{Name: "ann"}}}, &Rights{admin: true}
	for _, c := range []struct {
		name    string
		db      *docstore.Database
		doc     docstore.Document
		ann     standing
		changes bool
	}{
		{"her document", replications, docstore.Document{ID: "a", Body: []byte(`{"owner":"ann"}`)}, isOwner, true},
		{"another user's", replications, docstore.Document{ID: "a", Body: []byte(`{"owner":"eve"}`)}, 0, false},
		{"without an owner", replications, docstore.Document{ID: "a", Body: []byte(`{}`)}, 0, false},
		{"deleted, with nothing left", replications, docstore.Document{ID: "a", Deleted: true, Body: []byte(`{}`)}, isOwner, true},
		{"deleted, with members of another user", replications, docstore.Document{ID: "a", Deleted: true, Body: []byte(`{"owner":"eve"}`)}, 0, true},
		{"a design document", replications, docstore.Document{ID: "_design/d", Body: []byte(`{}`)}, isOwner, true},
		{"in another database", other, docstore.Document{ID: "a", Body: []byte(`{"owner":"eve"}`)}, isOwner, true},
	} {
		assert.Equal(t, c.ann, ann.standingTo(c.db, &c.doc), c.name)
		assert.Equal(t, c.ann != 0, ann.mayRead(c.db, &c.doc), c.name)
		assert.Equal(t, c.changes, ann.mayChange(c.db, &c.doc), c.name)
		assert.NotZero(t, admin.standingTo(c.db, &c.doc)&isDatabaseAdmin, c.name)
	}
}

// A damaged job of a database that names no document is still there for server administrators.
func TestJobWithoutDocument(t *testing.T) {
	t.Parallel()
	damaged := JobOwner{Database: "_replicator"}
	r := httptest.NewRequest(http.MethodGet, "/_scheduler/jobs/x", http.NoBody)
	root := Identity{User: auth.User{Name: "root", Roles: []string{auth.AdminRole}}}
	assert.True(t, new(Guard).MayUseJob(r.WithContext(context.WithValue(r.Context(), identityKey{}, root)), SeeJob, damaged))
}
