package replicator_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/replicator"
)

// parsed parses a document with the given members.
func parsed(members string) (*replicator.Replication, error) {
	doc, err := replicator.ParseText("d", []byte(`{"source": "http://a.example/db", "target": "http://b.example/db", `+members+`}`), replicator.ParseOptions{})
	if err != nil {
		return nil, err
	}
	return doc.Replication, nil
}

func TestInvalidTimes(t *testing.T) {
	t.Parallel()
	for members, field := range map[string]string{
		`"schedule": ""`:                                           "schedule",
		`"schedule": 3`:                                            "schedule",
		`"schedule": null`:                                         "schedule",
		`"schedule": "@daily"`:                                     "schedule",
		`"schedule": "@every 1h"`:                                  "schedule",
		`"schedule": "0 3 * *"`:                                    "schedule",
		`"schedule": "0 0 3 * * *"`:                                "schedule",
		`"schedule": "TZ=UTC 0 3 * * *"`:                           "schedule",
		`"schedule": "CRON_TZ=UTC 3 * * *"`:                        "schedule",
		`"schedule": "60 3 * * *"`:                                 "schedule",
		`"schedule": "0 24 * * *"`:                                 "schedule",
		`"schedule": "0 3 32 * *"`:                                 "schedule",
		`"schedule": "0 3 * 13 *"`:                                 "schedule",
		`"schedule": "0 3 * * 8"`:                                  "schedule",
		`"schedule": "0 3 30 2 *"`:                                 "schedule",
		`"schedule": "0 3 * foo *"`:                                "schedule",
		`"schedule": "*/0 * * * *"`:                                "schedule",
		`"schedule": "*/100 * * * *"`:                              "schedule",
		`"schedule": "*-5 * * * *"`:                                "schedule",
		`"schedule": ", * * * *"`:                                  "schedule",
		`"schedule": "1,,2 * * * *"`:                               "schedule",
		`"schedule": "+5 * * * *"`:                                 "schedule",
		`"schedule": "0 0 L * *"`:                                  "schedule",
		`"schedule": "H * * * *"`:                                  "schedule",
		`"schedule": "` + strings.Repeat("1,", 500) + `1 3 * * *"`: "schedule",
		`"schedule": "0 3 * * *", "timezone": ""`:                  "timezone",
		`"schedule": "0 3 * * *", "timezone": "Local"`:             "timezone",
		`"schedule": "0 3 * * *", "timezone": "Europe/Bärlin"`:     "timezone",
		`"schedule": "0 3 * * *", "timezone": "../etc/passwd"`:     "timezone",
		`"schedule": "0 3 * * *", "timezone": 1`:                   "timezone",
		`"timezone": "UTC"`:                                        "timezone",
		`"every": "15m", "timezone": "UTC"`:                        "timezone",
		`"every": "15m", "schedule": "0 3 * * *"`:                  "every",
		`"every": ""`:                                              "every",
		`"every": 15`:                                              "every",
		`"every": "15"`:                                            "every",
		`"every": "0s"`:                                            "every",
		`"every": "500ms"`:                                         "every",
		`"every": "1.5h"`:                                          "every",
		`"every": "-1h"`:                                           "every",
		`"every": "1d"`:                                            "every",
		`"every": "30m1h"`:                                         "every",
		`"every": "2562048h"`:                                      "every",
		`"every": "9999999999h"`:                                   "every",
		`"every": "15m", "continuous": true`:                       "continuous",
		`"schedule": "0 3 * * *", "continuous": true`:              "continuous",
	} {
		_, err := parsed(members)
		var refused *replicator.ParseError
		require.ErrorAs(t, err, &refused, members)
		assert.Equal(t, field, refused.Field, members)
		assert.Contains(t, refused.Reason, "`"+field+"`", members)
	}
	for _, member := range []string{`"schedule": "0 3 * * *"`, `"every": "15m"`, `"timezone": "UTC"`} {
		_, err := replicator.ParseRequest([]byte(`{"source": "http://a.example/db", "target": "http://b.example/db", `+member+`}`), replicator.ParseOptions{})
		var refused *replicator.ParseError
		require.ErrorAs(t, err, &refused, member)
		assert.Contains(t, member, `"`+refused.Field+`"`)
		assert.Contains(t, refused.Reason, "`"+refused.Field+"`")
	}
}

// times returns the next times of a schedule after a time, in UTC.
func times(t *testing.T, members, after string, count int) (out []string) {
	t.Helper()
	r, err := parsed(members)
	require.NoError(t, err, members)
	now, err := time.Parse(time.RFC3339, after)
	require.NoError(t, err)
	for range count {
		now, err = r.NextRun(now, now)
		require.NoError(t, err)
		out = append(out, now.UTC().Format("01-02 15:04:05"))
	}
	return out
}

func TestNextRun(t *testing.T) {
	t.Parallel()
	const berlin, howe = `, "timezone": "Europe/Berlin"`, `, "timezone": "Australia/Lord_Howe"`
	for _, test := range []struct {
		members, after string
		want           []string
	}{
		{`"schedule": "0 3 * * *"`, "2026-11-23T02:59:59.5Z", []string{"11-23 03:00:00", "11-24 03:00:00"}},
		{`"schedule": "0 3 * * *"`, "2026-11-23T03:00:00Z", []string{"11-24 03:00:00"}},
		{`"schedule": "*/20 22-23 * JAN-dec sun"`, "2026-11-23T00:00:00Z", []string{"11-29 22:00:00", "11-29 22:20:00"}},
		{`"schedule": " 0  3 * * 7 "`, "2026-11-23T00:00:00Z", []string{"11-29 03:00:00"}},
		// If both days are given, either is enough.
		{`"schedule": "0 0 1 * 1"`, "2026-11-29T00:00:00Z", []string{"11-30 00:00:00", "12-01 00:00:00", "12-07 00:00:00"}},
		// The clock is put forward from 02:00 to 03:00: a time that is skipped is then.
		{`"schedule": "30 2 * * *"` + berlin, "2026-03-28T00:00:00Z", []string{"03-28 01:30:00", "03-29 01:00:00", "03-30 00:30:00"}},
		{`"schedule": "0 2,3 * * *"` + berlin, "2026-03-28T23:00:00Z", []string{"03-29 01:00:00", "03-30 00:00:00"}},
		{`"schedule": "*/30 * * * *"` + berlin, "2026-03-29T00:00:00Z", []string{"03-29 00:30:00", "03-29 01:00:00", "03-29 01:30:00"}},
		// It is put back from 03:00 to 02:00: a time that comes twice is the first.
		{`"schedule": "30 2 * * *"` + berlin, "2026-10-24T12:00:00Z", []string{"10-25 00:30:00", "10-26 01:30:00"}},
		{`"schedule": "30 2 * * *"` + berlin, "2026-10-25T01:00:00Z", []string{"10-26 01:30:00"}},
		{`"schedule": "*/30 * * * *"` + berlin, "2026-10-25T00:00:00Z", []string{"10-25 00:30:00", "10-25 02:00:00"}},
		// Here it changes by half an hour, on 4 October and on 5 April.
		{`"schedule": "15,40 2 * * *"` + howe, "2026-10-03T12:00:00Z", []string{"10-03 15:30:00", "10-03 15:40:00", "10-04 15:15:00"}},
		{`"schedule": "45 1 * * *"` + howe, "2026-04-04T12:00:00Z", []string{"04-04 14:45:00", "04-05 15:15:00"}},

		{`"every": "1s"`, "2026-11-23T00:00:00.7Z", []string{"11-23 00:00:01", "11-23 00:00:02"}},
		{`"every": "90s"`, "2026-11-23T00:00:00Z", []string{"11-23 00:01:30"}},
		{`"every": "1h30m"`, "2026-11-23T00:00:00Z", []string{"11-23 01:30:00"}},
	} {
		assert.Equal(t, test.want, times(t, test.members, test.after, len(test.want)), test.members)
	}

	r, err := parsed(`"every": "15m"`)
	require.NoError(t, err)
	now := time.Now()
	for began, want := range map[time.Time]time.Time{
		{}: now, now.Add(-time.Hour): now, now.Add(-10 * time.Minute): now.Add(-10 * time.Minute).Truncate(time.Second).Add(15 * time.Minute),
	} {
		next, err := r.NextRun(began, now)
		require.NoError(t, err)
		assert.True(t, next.Equal(want), began)
	}
}

// The times are part of what a document asks for, but not of its replication id.
func TestTimesAndIDs(t *testing.T) {
	t.Parallel()
	plain, err := parsed(`"mine": 1`)
	require.NoError(t, err)
	id, err := plain.ID("uuid", "")
	require.NoError(t, err)
	var all []*replicator.Replication
	for _, members := range []string{
		`"schedule": "0 3 * * *"`, `"schedule": "0 4 * * *"`, `"schedule": "0 3 * * *", "timezone": "Asia/Tokyo"`, `"every": "1h"`,
	} {
		r, err := parsed(members)
		require.NoError(t, err)
		assert.True(t, r.Periodic())
		require.NoError(t, r.Check(replicator.ParseOptions{}))
		got, err := r.ID("uuid", "")
		require.NoError(t, err)
		assert.Equal(t, id, got)
		for _, other := range append(all, plain) {
			assert.False(t, r.Equal(other), members)
		}
		all = append(all, r)
	}
	for i, members := range map[int]string{0: `"schedule": "0  3 * * *"`, 3: `"every": "60m"`} {
		r, err := parsed(members)
		require.NoError(t, err)
		assert.True(t, r.Equal(all[i]))
	}
	assert.False(t, plain.Periodic())
	assert.False(t, (*replicator.Replication)(nil).Periodic())

	// Zones that another node knew, and this one does not.
	all[2].Timezone = "Mars/Phobos"
	err = all[2].Check(replicator.ParseOptions{})
	require.ErrorContains(t, err, "timezone")
	require.NotErrorAs(t, err, new(*replicator.ParseError))
}
