package replicator_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"settee/replicator"
)

func TestRoutesOfEndpoints(t *testing.T) {
	t.Parallel()
	header := func(name, value string) []replicator.Header { return []replicator.Header{{Name: name, Value: value}} }
	plain := replicator.Endpoint{URL: "http://h.example:5984/a/my%2Fdb"}
	key, database, ok := plain.Route()
	assert.True(t, ok)
	assert.Equal(t, "my/db", database)
	for name, same := range map[string]replicator.Endpoint{
		"another database": {URL: "http://H.example:5984/a/other/"},
		"a user":           {URL: plain.URL, Headers: header("Authorization", "Basic x")},
	} {
		got, _, _ := same.Route()
		assert.Equal(t, key, got, name)
	}
	for name, other := range map[string]replicator.Endpoint{
		"another path":   {URL: "http://h.example:5984/b/db"},
		"a proxy":        {URL: plain.URL, Proxy: "http://p.example:8080"},
		"its own header": {URL: plain.URL, Headers: header("X-Tenant", "a")},
	} {
		got, _, ok := other.Route()
		assert.True(t, ok, name)
		assert.NotEqual(t, key, got, name)
		assert.Equal(t, name != "another path", strings.HasPrefix(got, key), name)
	}
	for _, none := range []string{"http://h.example", "http://h.example/", "http://h.example/a?b", ""} {
		_, _, ok := replicator.Endpoint{URL: none}.Route()
		assert.False(t, ok, none)
	}
}

func TestTargetsThatHaveLostWhatTheyHad(t *testing.T) {
	t.Parallel()
	parked := replicator.ParkedTarget{Identity: "server", Instance: "1700000000"}
	for _, c := range []struct {
		parked replicator.ParkedTarget
		now    replicator.TargetNow
		lost   bool
	}{
		{parked, replicator.TargetNow{Identity: "server", Instance: "1700000000"}, false},
		{parked, replicator.TargetNow{}, false},
		{parked, replicator.TargetNow{Missing: true}, true},
		{parked, replicator.TargetNow{Identity: "another", Instance: "1700000000"}, true},
		{parked, replicator.TargetNow{Identity: "server", Instance: "1700000001"}, true},
		{replicator.ParkedTarget{}, replicator.TargetNow{Identity: "server", Instance: "1700000000"}, false},
	} {
		assert.Equal(t, c.lost, c.parked.Lost(c.now), "%+v, now %+v", c.parked, c.now)
	}
}
