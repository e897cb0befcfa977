package frontend_test

import (
	"maps"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
)

func TestCheckAReplication(t *testing.T) {
	t.Parallel()
	n := start(t)
	check := func(query, body string) webtest.Answer {
		return n.Do(http.MethodPost, "/_scheduler/check"+query, body, "Content-Type", "application/json")
	}
	got := check("", `{"source": "http://a.example/db", "target": "http://b.example/db"}`).Is(t, http.StatusOK)
	require.Regexp(t, `^\{"ok":true,"replication_id":"[0-9a-f]{32}","warnings":\[\]\}\n$`, got.Body)
	got = check("", `{"source": "http://a.example/db", "target": "http://b.example/db", "filter": "d/f"}`).Is(t, http.StatusOK)
	require.JSONEq(t, `{"ok": true, "replication_id": null, "warnings": []}`, got.Body, "the id depends on the filter's code")
	got = check("", definition(`"worker_processes": 1000`)).Is(t, http.StatusOK)
	require.Len(t, got.JSON(t)["warnings"], 1)

	for body, reason := range map[string]string{
		`{"source": "http://a.example/db", "target": 7}`: "`target`",
		`{"source": "http://a.example/db"}`:              "`target`",
		definition(`"schedule": "61 * * * *"`):           "`schedule`",
		definition(`"selector": 3`):                      "`selector`",
		`[]`:                                             "JSON object",
		`{`:                                              "JSON",
		definition(`"cancel": true`):                     "`cancel`",
		`{"source": "ftp://a.example/db", "target": "http://b.example/db"}`:                "`source`",
		`{"source": {"url": "http://a/b", "auth": []}, "target": "http://b.example/db"}`:   "`source.auth`",
		`{"source": "http://a.example/db", "target": "http://b.example/db", "every": "x"}`: "`every`",
	} {
		got := check("", body).Is(t, http.StatusBadRequest)
		require.Contains(t, got.JSON(t)["reason"], reason, body)
	}
	require.Contains(t, check("?transient=true", definition(`"schedule": "0 * * * *"`)).Is(t, http.StatusBadRequest).Body, "`schedule`")
	check("?transient=true", `{"replication_id": "x", "cancel": true}`).Is(t, http.StatusOK)
	check("?transient=7", definition("")).Is(t, http.StatusBadRequest)

	require.Equal(t, `{"total_rows":0,"offset":0,"jobs":[]}`+"\n", n.Get("/_scheduler/jobs").Body, "nothing was added")
}

func TestConfigurationWithOrigins(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.setConfig("replicator/max_jobs", "7").Is(t, http.StatusOK)
	got := n.Get(configPath+"?origins=true").Is(t, http.StatusOK).JSON(t)
	value := func(section, key string) any {
		its := maps.Clone(got[section].(map[string]any)[key].(map[string]any))
		require.NotEmpty(t, its["meaning"])
		require.NotEmpty(t, its["wants"])
		for _, name := range []string{"meaning", "wants", "unit"} {
			delete(its, name)
		}
		return its
	}
	require.Equal(t, map[string]any{"value": "7", "origin": "store"}, value("replicator", "max_jobs"))
	require.Equal(t, map[string]any{"value": "30000", "origin": "default"}, value("replicator", "checkpoint_interval"))
	require.Equal(t, map[string]any{"value": "****", "origin": "--set"}, value("admins", webtest.AdminName))
	require.Equal(t, map[string]any{"value": "5984", "origin": "default", "at_start": true}, value("chttpd", "port"))
	require.Equal(t, map[string]any{"value": "", "origin": "default"}, value("replicator", "ssl_trusted_certificates_file"), "it is not set")
	n.Get(configPath+"?origins=7").Is(t, http.StatusBadRequest)
}
