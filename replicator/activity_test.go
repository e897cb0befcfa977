package replicator

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestActivityInListings(t *testing.T) {
	t.Parallel()
	at := func(second int) time.Time {
		return time.Date(2026, 11, 21, 13, 0, second, 999_999_999, time.FixedZone("", 3600))
	}
	state := JobState{
		State: StateRunning, StartTime: at(0),
		Activity: &Activity{
			Doing: DoingRateLimited, Since: at(1), BatchesInFlight: 2, LastProgress: at(2),
			Waiting: []Wait{{
				Endpoint: "target", Method: "POST", Path: "/db/_bulk_docs", Error: "429: proxy http://me:secret@host says no",
				RateLimited: true, Attempt: 3, Attempts: 6, Since: at(3), Until: at(4),
			}},
			Refusing: &Refusing{Count: 7, Since: at(5), Latest: Failure{
				ID: "a", Rev: "1-a", Status: 403, Code: "forbidden", Reason: "no", Time: at(6),
			}},
		},
	}
	text, err := json.Marshal(state.ShownActivity())
	require.NoError(t, err)
	require.Equal(t, `{"batches_in_flight":2,"last_progress":"2026-11-21T12:00:02Z","waiting":[{"endpoint":"target","attempt":3,"attempts":6,`+
		`"since":"2026-11-21T12:00:03Z","until":"2026-11-21T12:00:04Z","fault":{"code":"unknown","message":"429: proxy http://me:*****@host says no",`+
		`"text":"429: proxy http://me:*****@host says no"}}],"refusing":{"count":7,"since":"2026-11-21T12:00:05Z",`+
		`"latest":{"id":"a","rev":"1-a","status":403,"error":"forbidden","reason":"no","timestamp":"2026-11-21T12:00:06Z"}}}`,
		string(text))
	require.Equal(t, "429: proxy http://me:secret@host says no", state.Activity.Waiting[0].Error, "it is not changed")

	stored, err := json.Marshal(&state)
	require.NoError(t, err)
	var again JobState
	require.NoError(t, json.Unmarshal(stored, &again))
	require.Equal(t, DoingRateLimited, again.Activity.Doing)
	require.EqualValues(t, 7, again.Activity.Refusing.Count)

	// Only a running job has an activity.
	for _, other := range []State{StatePending, StateCrashing, StateCompleted, StateFailed} {
		state.State = other
		require.Nil(t, state.ShownActivity())
	}
	text, err = json.Marshal(Activity{Doing: DoingWaiting, Since: at(1)})
	require.NoError(t, err)
	require.Equal(t, `{"doing":"idle","since":"2026-11-21T12:00:01Z","batches_in_flight":0}`, string(text))
}

// Servers and users choose the length of what is stored with a job.
func TestActivitiesAndFailuresAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("\x01", 100_000) // six bytes each in JSON
	failure := Failure{ID: long, Rev: long, Code: long, Reason: long}
	wait := Wait{Endpoint: "source", Method: "GET", Path: long, Error: long}
	text, err := json.Marshal(failure)
	require.NoError(t, err)
	require.Less(t, len(text), 30_000)
	require.True(t, json.Valid(text))
	text, err = json.Marshal(Activity{Waiting: []Wait{wait, wait}, Refusing: &Refusing{Latest: failure}})
	require.NoError(t, err)
	require.Less(t, len(text), 20_000)
}
