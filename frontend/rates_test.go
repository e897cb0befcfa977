package frontend_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
	"settee/replicator"
	"settee/replicator/rates"
)

// What the nodes did is answered in at most 720 whole steps, whatever is asked for.
func TestRates(t *testing.T) {
	t.Parallel()
	n := start(t)
	now := time.Now()
	for _, ago := range []time.Duration{10 * time.Hour, 90 * time.Minute} {
		err := n.jobs.Rates.Record(t.Context(), now.Add(-ago), rates.Work{DocCounts: replicator.DocCounts{DocsWritten: 7}, Crashes: 1})
		require.NoError(t, err)
	}
	unix := func(ago time.Duration) int64 { return now.Add(-ago).Unix() }
	for query, want := range map[string]struct {
		step, most int64
		written    int64
	}{
		"": {10, 361, 0},
		fmt.Sprintf("?since=%d", unix(115*time.Minute)):                                        {10, 720, 7},
		fmt.Sprintf("?since=%d&step=1", unix(115*time.Minute)):                                 {10, 720, 7},
		fmt.Sprintf("?since=%d&step=11", unix(115*time.Minute)):                                {20, 346, 7},
		fmt.Sprintf("?since=%d&step=7190", unix(95*time.Minute)):                               {7200, 2, 7},
		fmt.Sprintf("?since=%d&step=3600", unix(23*time.Hour)):                                 {3600, 24, 14},
		fmt.Sprintf("?since=%d", unix(23*time.Hour)):                                           {120, 720, 14},
		fmt.Sprintf("?since=%d&until=%d", unix(11*time.Hour), unix(9*time.Hour)):               {120, 61, 7},
		fmt.Sprintf("?since=%d&until=%d", unix(5*time.Hour), now.Unix()+1_000_000_000_000_000): {120, 151, 7},
		"?since=0":                          {120, 720, 14},
		"?since=0&step=99999999999":         {86_400, 2, 14},
		"?since=0&step=9223372036854775807": {86_400, 2, 14},
	} {
		got := n.Get("/_scheduler/rates"+query).Is(t, http.StatusOK)
		var plot struct {
			Since, Until, Step int64
			Written            []int64 `json:"docs_written"`
			Crashes            []int64
		}
		require.NoError(t, json.Unmarshal([]byte(got.Body), &plot))
		require.Equal(t, want.step, plot.Step, query)
		require.Zero(t, plot.Since%plot.Step)
		require.EqualValues(t, len(plot.Written), (plot.Until-plot.Since)/plot.Step, query)
		require.LessOrEqual(t, int64(len(plot.Written)), want.most, query)
		require.Greater(t, int64(len(plot.Written)), want.most*9/10-2, query)
		sum, crashes := int64(0), int64(0)
		for i, n := range plot.Written {
			sum, crashes = sum+n, crashes+plot.Crashes[i]
		}
		require.Equal(t, want.written, sum, query)
		require.Equal(t, want.written/7, crashes, query)
	}
	for query, reason := range map[string]string{
		"since=x":                  "Invalid value for integer parameter `since`: it must be a whole number of at least 0",
		"step=0":                   "Invalid value for integer parameter `step`: it must be at least 1",
		"since=99999999999":        "`since` must be before `until`, and `until` within the last day",
		"until=5":                  "`since` must be before `until`, and `until` within the last day",
		"until=99999999999&step=-": "Invalid value for integer parameter `step`: it must be a whole number of at least 0",
	} {
		webtest.Refused(t, n.Get("/_scheduler/rates?"+query), http.StatusBadRequest, "query_parse_error", reason)
	}
}
