package access

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/frontend/internal/auth"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv/memkv"
)

// databases returns a database with a name, and another one.
func databases(t *testing.T, name string) (named, other *docstore.Database) {
	t.Helper()
	store, err := memkv.Open(memkv.Options{})
	require.NoError(t, err)
	docs := docstore.Open(store, []byte("docs"), docstore.Options{})
	t.Cleanup(func() {
		docs.Close()
		require.NoError(t, store.Close())
	})
	named, err = docs.Create(t.Context(), name)
	require.NoError(t, err)
	other, err = docs.Create(t.Context(), "other")
	require.NoError(t, err)
	return named, other
}

const (
	adaID, bobID = "org.couchdb.user:ada", "org.couchdb.user:bob"
	noUser       = "org.couchdb.user:"
)

// Whether a document exists for a user does not depend on whether it is there.
func TestDocumentsOfOtherUsers(t *testing.T) {
	t.Parallel()
	db, other := databases(t, "_users")
	nobody, ada := &Rights{member: true}, &Rights{user: Identity{User: auth.User{Name: "ada"}}, member: true}
	admin := &Rights{user: ada.user, admin: true}
	for _, c := range []struct {
		who   *Rights
		id    string
		opens bool
	}{
		{ada, adaID, true}, {ada, bobID, false}, {ada, noUser, false}, {ada, "ada", false}, {ada, "_local/" + adaID, false},
		{nobody, adaID, false}, {nobody, noUser, false}, {nobody, "_local/x", false},
		{admin, adaID, true}, {admin, bobID, true}, {admin, "_local/x", true}, {admin, "_design/d", true},
		{ada, "_design/d", true}, {nobody, "_design/d", true}, // these are refused, if they are there
	} {
		err := c.who.Opens(db, c.id)
		if c.opens {
			require.NoError(t, err, c.id)
		} else {
			assert.Equal(t, http.StatusNotFound, failed(t, err), c.id)
			assert.Equal(t, "missing", reason(t, err), c.id)
		}
		require.NoError(t, c.who.Opens(other, c.id))
	}
}

func TestReadingUsers(t *testing.T) {
	t.Parallel()
	db, other := databases(t, "_users")
	nobody, ada := &Rights{member: true}, &Rights{user: Identity{User: auth.User{Name: "ada"}}, member: true}
	admin := &Rights{user: ada.user, admin: true}
	for _, c := range []struct {
		who    *Rights
		id     string
		status int // 0: the document is read
	}{
		{ada, adaID, 0}, {ada, bobID, http.StatusNotFound}, {ada, "_design/d", http.StatusForbidden},
		{nobody, adaID, http.StatusNotFound}, {nobody, "_design/d", http.StatusForbidden},
		{admin, bobID, 0}, {admin, "_design/d", 0},
	} {
		doc := &docstore.Document{ID: c.id, Body: []byte("{}")}
		_, err := c.who.Reads(db, doc)
		whole := c.who.ReadsWhole(db, doc)
		if c.status == 0 {
			require.NoError(t, err)
			require.NoError(t, whole)
		} else {
			assert.Equal(t, c.status, failed(t, err), c.id)
			assert.Equal(t, c.status, failed(t, whole), c.id)
		}
		_, err = c.who.Reads(other, doc)
		require.NoError(t, err)
	}
}

func TestWritingUsers(t *testing.T) {
	t.Parallel()
	db, _ := databases(t, "_users")
	nobody, ada := &Rights{member: true}, &Rights{user: Identity{User: auth.User{Name: "ada"}}, member: true}
	for _, c := range []struct {
		who        *Rights
		id         string
		replicated bool
		status     int
	}{
		{ada, bobID, false, http.StatusNotFound}, {ada, bobID, true, http.StatusNotFound},
		{ada, "_design/d", false, http.StatusNotFound}, {ada, adaID, true, http.StatusForbidden},
		{nobody, "_design/d", false, http.StatusUnauthorized}, {nobody, adaID, true, http.StatusForbidden},
	} {
		edit := docstore.Edit{ID: c.id, Body: docjson.Must("{}")}
		assert.Equal(t, c.status, failed(t, c.who.Writes(t.Context(), db, &edit, c.replicated)), c.id)
	}
	assert.Equal(t, http.StatusNotFound, failed(t, ada.WritesLocal(db)))
	assert.Equal(t, http.StatusUnauthorized, failed(t, nobody.WritesLocal(db)))
	require.NoError(t, (&Rights{admin: true}).WritesLocal(db))
}
