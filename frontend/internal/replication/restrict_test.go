package replication

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/frontend/accounts"
	"settee/frontend/internal/access"
	"settee/frontend/internal/webtest"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/replicator/jobs"
)

func TestWhoseJobsAListShows(t *testing.T) {
	t.Parallel()
	n := webtest.Open(t, webtest.Memory(t), docstore.Hooks{})
	require.NoError(t, n.NewDatabase("_replicator").SetSecurity(t.Context(), []byte(`{"admins":{"names":["boss"]}}`)))
	users := n.NewDatabase("_users")
	for _, name := range []string{"boss", "ann"} {
		id, body := "org.couchdb.user:"+name, docjson.Must(`{"type":"user","name":"`+name+`","roles":[],"password":"`+webtest.Secret+`"}`)
		hashed, err := n.Accounts.Document(t.Context(), accounts.Write{ID: id, Body: body, Admin: true})
		require.NoError(t, err)
		webtest.Write(t, users, docstore.Edit{ID: id, Body: hashed})
	}
	e := &Endpoints{Guard: &access.Guard{Documents: n.Documents, Accounts: n.Accounts, Settings: n.Config}}
	ann, eve := "ann", "eve"
	for _, c := range []struct {
		who    string
		filter jobs.Filter
		order  jobs.Order
		user   *string // that the list is of
		may    bool
	}{
		{webtest.AdminName, jobs.Filter{}, jobs.ByOwner, nil, true},
		{webtest.AdminName, jobs.Filter{}, "newest", nil, true},
		{"ann", jobs.Filter{}, jobs.ByOwner, &ann, true},
		{"ann", jobs.Filter{User: &eve}, jobs.ByOwner, &eve, false},
		{"ann", jobs.Filter{}, "newest", nil, false},
		{"ann", jobs.Filter{Database: "_replicator"}, jobs.ByOwner, nil, false},
		{"boss", jobs.Filter{Database: "_replicator"}, jobs.ByOwner, nil, true},
	} {
		r := httptest.NewRequest(http.MethodGet, "/_scheduler/jobs", nil)
		password := webtest.Secret
		if c.who == webtest.AdminName {
			password = webtest.AdminPassword
		}
		r.SetBasicAuth(c.who, password)
		known, err := e.Guard.Admit(httptest.NewRecorder(), r)
		require.NoError(t, err)
		filter := c.filter
		if err := e.restrict(known, &filter, c.order); c.may {
			require.NoError(t, err, "%+v", c)
		} else {
			require.Equal(t, errNotAdmin, err, "%+v", c)
		}
		assert.Equal(t, c.user, filter.User, "%+v", c)
	}
}
