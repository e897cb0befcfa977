package replicator_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"settee/replicator"

	"github.com/stretchr/testify/require"
)

// mirrorOf returns the mirror that a document asks for.
func mirrorOf(t *testing.T, members string) *replicator.Replication {
	t.Helper()
	return parse(t, []byte(`{"source": "http://a.example", "target": "http://b.example/couch", `+members+`}`))
}

func TestMirrorDefaults(t *testing.T) {
	t.Parallel()
	r := mirrorOf(t, `"mirror": {}, "continuous": true`)
	require.Equal(t, &replicator.Mirror{Include: []string{"*"}, Security: true, Deleted: replicator.MirrorKeeps}, r.Mirror)
	require.Equal(t, "http://a.example/", r.Source.URL)
	require.Equal(t, "http://b.example/couch/", r.Target.URL)

	r = mirrorOf(t, `"mirror": {"include": ["b*", "a", "a"], "exclude": ["bad"], "security": false, "deleted": "delete",
		"prefix": "old/", "replicators": true}`)
	require.Equal(t, &replicator.Mirror{
		Include: []string{"a", "b*"}, Exclude: []string{"bad"}, Deleted: replicator.MirrorDeletes, Prefix: "old/", Replicators: true,
	}, r.Mirror)
	require.Nil(t, parse(t, definition("")).Mirror)
}

func TestMirrorIsStored(t *testing.T) {
	t.Parallel()
	r := mirrorOf(t, `"mirror": {"include": ["<*>"], "exclude": ["x"]}, "continuous": true`)
	for _, each := range []*replicator.Replication{r, r.Child("<1>")} {
		args := replicator.JobArgs{Replication: each}
		text, err := args.Stored()
		require.NoError(t, err)
		var read replicator.JobArgs
		require.NoError(t, json.Unmarshal(text, &read))
		require.Equal(t, each, read.Replication)
	}
	require.False(t, r.Equal(mirrorOf(t, `"mirror": {"include": ["<*>"]}, "continuous": true`)))
}

func TestMirrorRefusals(t *testing.T) {
	t.Parallel()
	for members, field := range map[string]string{
		`"mirror": true`:                              "mirror",
		`"mirror": null`:                              "mirror",
		`"mirror": []`:                                "mirror",
		`"mirror": {"include": "a"}`:                  "mirror.include",
		`"mirror": {"include": []}`:                   "mirror.include",
		`"mirror": {"include": [1]}`:                  "mirror.include",
		`"mirror": {"include": [""]}`:                 "mirror.include",
		`"mirror": {"exclude": {}}`:                   "mirror.exclude",
		`"mirror": {"security": "yes"}`:               "mirror.security",
		`"mirror": {"deleted": true}`:                 "mirror.deleted",
		`"mirror": {"deleted": "drop"}`:               "mirror.deleted",
		`"mirror": {"prefix": 1}`:                     "mirror.prefix",
		`"mirror": {"prefix": "Big"}`:                 "mirror.prefix",
		`"mirror": {"replicators": 1}`:                "mirror.replicators",
		`"mirror": {"includes": ["a"]}`:               "mirror.includes",
		`"mirror": {"include": ["_replicator"]}`:      "mirror.include",
		`"mirror": {"include": ["a/_replicator"]}`:    "mirror.include",
		`"mirror": {}, "doc_ids": ["a"]`:              "doc_ids",
		`"mirror": {}, "since_seq": 1`:                "since_seq",
		`"mirror": {}, "every": "1h"`:                 "every",
		`"mirror": {}, "create_target": false`:        "create_target",
		`"mirror": {}, "schedule": "0 3 * * *"`:       "schedule",
		`"mirror": {}, "selector": {}, "filter": "a"`: "filter",
	} {
		text := []byte(`{"source": "http://a.example", "target": "http://b.example/", ` + members + `}`)
		_, err := replicator.ParseRequest(text, replicator.ParseOptions{})
		var refused *replicator.ParseError
		require.ErrorAs(t, err, &refused, members)
		require.Equal(t, field, refused.Field, "%s: %v", members, err)
		require.Contains(t, refused.Reason, strings.TrimPrefix(field, "mirror."), members)
	}
	refused := refusal(t, []byte(`{"source": "http://a.example:80", "target": "http://A.example/", "mirror": {}}`))
	require.Equal(t, "mirror.prefix", refused.Field)
}

func TestMirrorSelects(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ mirror, selected, left string }{
		{`{}`, "a,a/b,x+y", "_users,_replicator,a/_replicator,_global_changes"},
		{`{"include": ["*", "_users"]}`, "a,_users", "_replicator"},
		{`{"include": ["_*"]}`, "_users,_global_changes", "a,_replicator"},
		{`{"include": ["_*"], "replicators": true}`, "_users,_replicator", "a"},
		{`{"include": ["_*"], "prefix": "old-"}`, "_users,_replicator", "a"},
		{`{"include": ["*"], "prefix": "old/"}`, "a", "a/_replicator"},
		{`{"include": ["*"], "exclude": ["_*"]}`, "a", "_users"},
		{`{"include": ["shop-*-eu", "one"]}`, "shop--eu,shop-a-b-eu,one", "shop-eu,shop-a-eu-x,one2,on"},
		{`{"include": ["a*b*b"]}`, "abb,axbxb", "ab,abba"},
		{`{"include": ["*"], "exclude": ["*-tmp", "x*"]}`, "a,tmp,a-tmp-b", "a-tmp,-tmp,x"},
		{`{"include": ["**"]}`, "a,bc", "_users"},
	} {
		r := mirrorOf(t, `"mirror": `+test.mirror)
		for name := range strings.SplitSeq(test.selected, ",") {
			require.True(t, r.Selects(name), "%s %s", test.mirror, name)
		}
		for name := range strings.SplitSeq(test.left, ",") {
			require.False(t, r.Selects(name), "%s %s", test.mirror, name)
		}
		require.False(t, r.Selects(""))
	}
	own := parse(t, []byte(`{"source": "http://a.example/", "target": "http://u:p@A.example:80", "mirror": {"prefix": "old-"}}`))
	require.True(t, own.Selects("a"))
	require.False(t, own.Selects("old-a"), "it does not mirror its copies")
}

func TestMirrorChild(t *testing.T) {
	t.Parallel()
	r := mirrorOf(t, `"mirror": {"prefix": "old-", "security": false}, "continuous": true, "selector": {"a": 1},
		"create_target_params": {"q": 1}, "use_checkpoints": false`)
	child := r.Child("a/b+c$(d)")
	require.Equal(t, "http://a.example/a%2Fb%2Bc%24%28d%29/", child.Source.URL)
	require.Equal(t, "http://b.example/couch/old-a%2Fb%2Bc%24%28d%29/", child.Target.URL)
	require.Nil(t, child.Mirror)
	require.Equal(t, &replicator.Mirrored{}, child.Mirrored)
	server, database, ok := child.Source.Server()
	require.True(t, ok)
	require.Equal(t, "http://a.example/", server)
	require.Equal(t, "a/b+c$(d)", database)

	byHand := parse(t, []byte(`{"source": "http://a.example/a%2Fb%2Bc%24%28d%29",
		"target": "http://b.example/couch/old-a%2Fb%2Bc%24%28d%29", "continuous": true, "selector": {"a": 1}}`))
	want, err := byHand.ID("server", "")
	require.NoError(t, err)
	got, err := child.ID("server", "")
	require.NoError(t, err)
	require.Equal(t, want.Base, got.Base, "it goes on from the checkpoints of the replication by hand")
	require.True(t, got.Continuous && got.CreateTarget)
}

func TestMirrorIDs(t *testing.T) {
	t.Parallel()
	a, b := mirrorOf(t, `"mirror": {"include": ["a"]}`), mirrorOf(t, `"mirror": {"include": ["b"]}, "filter": "x/y"`)
	require.False(t, b.NeedsFilterCode())
	require.True(t, b.Child("b").NeedsFilterCode())
	idA, err := a.ID("server", "")
	require.NoError(t, err)
	idB, err := b.ID("server", "")
	require.NoError(t, err)
	require.NotEqual(t, idA.Base, idB.Base)
	require.NotEqual(t, a.JobID("me"), b.JobID("me"))
}

func TestChildJobID(t *testing.T) {
	t.Parallel()
	for _, mirror := range []string{replicator.PersistentJobID("0123", "a|b/c"), "00112233445566778899aabbccddeeff"} {
		id := replicator.ChildJobID(mirror, "db")
		require.NotEqual(t, id, replicator.ChildJobID(mirror, "db2"))
		require.Len(t, id, len(mirror)+replicator.ChildIDSize)
		of, ok := replicator.MirrorOf(id)
		require.True(t, ok)
		require.Equal(t, mirror, of)
		_, ok = replicator.MirrorOf(mirror)
		require.False(t, ok)
	}
	require.True(t, strings.HasPrefix(replicator.ChildJobID("0123|doc", "db"), "0123|"), "the instance of the database begins the id")
	for _, other := range []string{"", "_mirror.", "0123|_mirror.12", "0123|_mirrors", "0123|doc|_mirror.00112233445566778899aabbccddeeff|x"} {
		_, ok := replicator.MirrorOf(other)
		require.False(t, ok, other)
	}
}

func TestUnmirrorable(t *testing.T) {
	t.Parallel()
	for name, why := range map[string]string{
		"films": "", "user/a.b": "", "...": "", strings.Repeat("x", 1_000): "",
		".": "a step in a path", "..": "a step in a path", "a/../b": "a step in a path", "a/.": "a step in a path",
		strings.Repeat("x", 1_001): "has 1001 bytes", "a\nb": "control characters",
	} {
		if got := replicator.Unmirrorable(name); why == "" {
			require.Empty(t, got, name)
		} else {
			require.Contains(t, got, why, name)
		}
	}
}

// What a mirror's target has is known from the last comparison while it cannot be compared.
func TestKnownBehind(t *testing.T) {
	t.Parallel()
	now := time.Now()
	last, later := now.Add(-time.Hour), now.Add(-time.Minute)
	fails := replicator.MirrorProgress{Target: replicator.MirrorTargetLook{Error: "down", ErrorSince: later, Last: last}}
	for _, behind := range []time.Time{{}, later} {
		s := replicator.MirrorSummary{Behind: behind, BehindDatabase: "one"}
		s.KnownBehind(&fails)
		require.Equal(t, last.Unix(), s.Behind.Unix())
		require.Empty(t, s.BehindDatabase)
	}
	for _, p := range []*replicator.MirrorProgress{
		nil, {}, {Target: replicator.MirrorTargetLook{Last: last}}, {Target: replicator.MirrorTargetLook{Error: "no", Refused: true, Last: last}},
		{Target: replicator.MirrorTargetLook{Error: "down"}},
	} {
		var s replicator.MirrorSummary
		s.KnownBehind(p)
		require.Zero(t, s)
	}
	text, since := fails.Fault()
	require.Equal(t, "down", text)
	require.Equal(t, later, since)
	fails.Target.Error, fails.Target.Lost = "", &replicator.MirrorLoss{Databases: 1, Database: "one", At: last}
	text, since = fails.Fault()
	require.Equal(t, `the target has lost the database "one": it is copied again. Find out who has deleted that`, text)
	require.Equal(t, last, since)
}
