package scheduler_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch/couchtest"
	"settee/replicator"
	"settee/replicator/jobs"
)

// A job whose peer misbehaves crashes repeatedly with an explanation, and copies everything when the peer stops
// misbehaving.
func TestHostilePeersCrashJobs(t *testing.T) {
	for name, test := range map[string]struct {
		onTarget bool
		at       couchtest.Endpoint
		fault    couchtest.Fault
		says     string
	}{
		"huge line":    {false, couchtest.Changes, couchtest.HugeLine, "source: GET http://a.example/db/_changes: reading the changes feed: larger than this client takes"},
		"wrong digest": {false, couchtest.Get, couchtest.WrongDigest, "its bytes do not match its digest"},
		"bomb":         {true, couchtest.RevsDiff, couchtest.CompressBomb, "target: POST http://b.example/db/_revs_diff: "},
		"storm":        {true, couchtest.BulkDocs, couchtest.Status500, "target: POST http://b.example/db/_bulk_docs: 500 internal_server_error: a storm"},
		"silence":      {true, couchtest.Local, couchtest.NeverAnswers, "stalled"},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, jobs.Options{}, nil, func(l *lab) {
				source, target := couchtest.NewHostile(1), couchtest.NewHostile(2)
				for i := range 20 {
					source.Add(fmt.Sprintf("d%d", i), 100)
				}
				source.Add("att", 10, 10_000)
				l.others = couchtest.Pipe(l.T, map[string]http.Handler{"a.example": source, "b.example": target})
				wrong := source
				if test.onTarget {
					wrong = target
				}
				wrong.Switch(test.fault, test.at)
				id := l.put(repdb, "doc", "")
				job := l.crashes(id, 2)
				require.Contains(t, job.State.Error, test.says)
				for _, seq := range target.Checkpoints() {
					lacking, err := target.Lacks(source, seq)
					require.NoError(t, err)
					require.Empty(t, lacking)
				}
				wrong.Switch(couchtest.None, test.at)
				l.in(id, replicator.StateCompleted)
				lacking, err := target.Lacks(source, nil)
				require.NoError(t, err)
				require.Empty(t, lacking)
				time.Sleep(time.Minute) // in the bubble: the effects of the faults end
			})
		})
	}
}
