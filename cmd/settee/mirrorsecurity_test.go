package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch/couchtest"
)

// A `_security` object that changes while its job is parked is copied within max_idle_sec. No changes feed tells of it.
func TestMirrorFollowsSecurity(t *testing.T) {
	t.Parallel()
	follows := func(t *testing.T, server, database string) {
		node := serveNode(t, "mem:", "replicator/idle_timeout_sec=1", "replicator/max_idle_sec=2", "replicator/interval_sec=1")
		prefix := "secured-" + strings.ToLower(database) + "-"
		copied := server + "/" + url.QueryEscape(prefix+database)
		node.ask(http.StatusCreated, http.MethodPut, "_replicator/m", fmt.Sprintf(
			`{"source":%q,"target":%q,"continuous":true,"mirror":{"include":[%q],"prefix":%q}}`, server, server, database, prefix))
		source := server + "/" + url.QueryEscape(database) + "/_security"
		for _, name := range []string{"ann", "bob"} {
			require.Eventually(t, func() bool {
				return strings.Contains(node.ask(http.StatusOK, http.MethodGet, "_scheduler/summary", ""), `"parked":1`)
			}, limit, 100*time.Millisecond)
			ask(t, http.StatusOK, http.MethodPut, source, fmt.Sprintf(`{"admins":{"names":[%q]}}`, name))
			require.Eventually(t, func() bool {
				_, object := request(t, http.MethodGet, copied+"/_security", "")
				return strings.Contains(object, name)
			}, limit, 100*time.Millisecond)
		}
	}
	t.Run("CouchDB", func(t *testing.T) {
		t.Parallel()
		peer := couchtest.SharedCouchDB(t)
		name := nameIn(t, peer.DB(t, "secured"))
		server := couchtest.As(peer.URL, peer.Username, peer.Password)
		t.Cleanup(func() { peer.Remove(t, server+"/secured-"+name+"-"+name) })
		follows(t, server, name)
	})
	t.Run("settee", func(t *testing.T) {
		t.Parallel()
		server := serveNode(t, "mem:")
		server.create("secured")
		follows(t, strings.TrimSuffix(server.url, "/"), "secured")
	})
}
