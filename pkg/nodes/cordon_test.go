package nodes_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/audit"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/nodes"
)

// cordonable is a process that notes what it is told.
type cordonable struct {
	*nodes.Registry
	told []string
	held int
}

func newCordonable(db kv.Database, name, role string) *cordonable {
	c := new(cordonable)
	c.Registry = nodes.New(nodes.Options{
		Store: db, Prefix: space.Bytes(),
		Describe: func() nodes.Node { return nodes.Node{Name: name, Roles: []string{role}, Held: c.held} },
		Cordoned: func(is *nodes.Cordon) {
			switch {
			case is == nil:
				c.told = append(c.told, "takes jobs")
			case is.Drain:
				c.told = append(c.told, "drained by "+is.By)
			default:
				c.told = append(c.told, "cordoned by "+is.By)
			}
		},
	})
	return c
}

// A process hears of its cordon when it renews its row, and others see it. A cordon ends with its process, and each change of one is
// recorded once.
func TestCordon(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		db = enginetest.UnknownOnce(struct{ kv.Database }{db}) // not exclusive
		a, twin, front := newCordonable(db, "a", "replication"), newCordonable(db, "a", "replication"), newCordonable(db, "front", "api_frontend")
		renew := func() {
			t.Helper()
			for _, p := range []*cordonable{a, twin, front} {
				require.NoError(t, p.Renew())
			}
		}
		set := func(name string, cordon *nodes.Cordon) (int, error) {
			return front.SetCordon(audit.By(t.Context(), "ann"), name, "replication", cordon)
		}
		cordoned, drained := &nodes.Cordon{At: time.Now(), By: "ann"}, &nodes.Cordon{At: time.Now(), By: "ann", Drain: true}
		a.held = 2
		renew()
		for _, name := range []string{"front", "b", ""} {
			_, err := set(name, cordoned)
			require.ErrorIs(t, err, nodes.ErrNoNode, name)
		}
		n, err := set(a.Instance(), cordoned)
		require.NoError(t, err)
		assert.Equal(t, 1, n)
		_, err = set(a.Instance(), cordoned) // as it is
		require.NoError(t, err)
		renew()
		assert.Equal(t, []string{"cordoned by ann"}, a.told)
		assert.Empty(t, twin.told)
		assert.True(t, a.Cordoned())
		n, err = set("a", drained)
		require.NoError(t, err)
		assert.Equal(t, 2, n)
		renew()
		assert.Equal(t, []string{"cordoned by ann", "drained by ann"}, a.told)
		assert.Equal(t, []string{"drained by ann"}, twin.told)
		for _, seen := range front.Nodes() {
			assert.Equal(t, seen.Name == "a", seen.Cordon != nil)
			assert.Equal(t, seen.Name == "a" && seen.Instance != a.Instance(), seen.Drained(), "it has %d jobs", seen.Held)
			assert.False(t, seen.Takes("replication"))
		}
		require.NoError(t, twin.Stop(t.Context()))
		twin = newCordonable(db, "a", "replication") // it is started again
		_, err = set(a.Instance(), nil)
		require.NoError(t, err)
		renew()
		assert.Equal(t, "takes jobs", a.told[2])
		assert.Empty(t, twin.told)
		made, err := audit.List(t.Context(), db, 10, func(*audit.Entry) bool { return true })
		require.NoError(t, err)
		var actions []string
		for _, e := range made {
			actions = append(actions, string(e.Action)+" by "+e.User)
		}
		assert.Equal(t, []string{"uncordon by ann", "drain by ann", "cordon by ann"}, actions)
		for _, p := range []*cordonable{a, twin, front} {
			require.NoError(t, p.Stop(t.Context()))
		}
		assert.Zero(t, stored(t, db))
	})
}
