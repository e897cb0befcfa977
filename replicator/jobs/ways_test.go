package jobs_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/internal/testkit"
	"settee/replicator"
	"settee/replicator/jobs"
)

// aJob is a job of a document, or a posted one, that is brought into a state and then written in some way.
type aJob struct {
	*bundle
	posted bool
	id     string
	run    *jobs.Run // that holds it; nil: none
}

// define gives the job a definition.
func (j *aJob) define(members string) {
	if j.posted {
		_, err := j.store.Requests.Replicate(j.Context(), j.definition(members), new("alice"))
		require.NoError(j, err)
		return
	}
	rev := ""
	if j.stored() > 0 {
		rev = j.document(repdb, "d")["_rev"].(string)
	}
	j.bundle.put(repdb, "d", rev, members)
}

// other returns the members of another definition. A posted job keeps its id with it.
func (j *aJob) other() string {
	if j.posted {
		return definedContinuous + `, "worker_batch_size": 7`
	}
	return definedContinuous + `, "doc_ids": ["other"]`
}

// drop removes the document or the posted job.
func (j *aJob) drop() {
	if !j.posted {
		j.bundle.remove(repdb, "d", j.document(repdb, "d")["_rev"].(string))
		return
	}
	if _, err := j.store.Requests.Cancel(j.Context(), j.id, nil); !errors.Is(err, jobs.ErrNotFound) {
		require.NoError(j, err)
	}
}

const definedContinuous = `"continuous": true`

// jobStates brings a job with a continuous definition, which waits for its first run, into a state.
var jobStates = map[string]func(j *aJob){
	"due":     func(*aJob) {},
	"running": func(j *aJob) { j.run = j.identified() },
	"opened": func(j *aJob) {
		j.run = j.opened()
		require.NoError(j, j.run.ListRefused(j.Context(), []replicator.Failure{{ID: "x"}}, 1))
		require.NoError(j, j.run.Update(j.Context(), func(s *replicator.JobState) { s.Stats.DocWriteFailures++ }))
	},
	"stuck": func(j *aJob) {
		j.run = j.opened()
		require.NoError(j, j.run.Update(j.Context(), func(s *replicator.JobState) {
			s.Activity = &replicator.Activity{Doing: replicator.DoingReading, Since: time.Now().Add(-time.Hour)}
		}))
	},
	"crashing": func(j *aJob) {
		j.run = j.opened()
		j.crash(j.run)
		j.run = nil
	},
	"about to park": func(j *aJob) {
		j.run = j.opened()
		require.NoError(j, j.run.Parking(j.Context(), replicator.Parked{Server: sourceServer, Database: sourceDatabase}))
	},
	"parked": func(j *aJob) { j.park() },
	"paused": func(j *aJob) {
		if !j.posted {
			j.define(definedContinuous + `, "paused": true`)
		}
	},
	"completed": func(j *aJob) { require.NoError(j, j.accept().Complete(j.Context(), nil)) },
	"failed":    func(j *aJob) { require.NoError(j, j.accept().Fail(j.Context(), replicator.TextFault("", "no"))) },
	"redefined": func(j *aJob) {
		j.run = j.opened()
		j.define(j.other())
	},
	"turn": func(j *aJob) { j.mirror() },
	"gone": func(j *aJob) {
		if j.mirror() {
			require.NoError(j, asMirror(j.run).EndDatabases(j.Context(), []string{"films"}, time.Now().Add(time.Hour)))
		}
	},
}

// mirror makes the document a mirror with a database that waits for its turn, whose job takes the place of the document's, and
// runs the mirror. It does nothing to a posted job.
func (j *aJob) mirror() bool {
	if j.posted {
		return false
	}
	require.NoError(j, jobWays["define a mirror"](j))
	j.run = j.opened()
	require.NoError(j, asMirror(j.run).AddDatabases(j.Context(), []string{"films"}, 0))
	j.id = replicator.ChildJobID(j.id, "films")
	return true
}

// jobWays are the ways in which a job is written.
var jobWays = map[string]func(j *aJob) error{
	"define it as it is":  func(j *aJob) error { j.define(definedContinuous); return nil },
	"define it otherwise": func(j *aJob) error { j.define(j.other()); return nil },
	"define a mirror": func(j *aJob) error {
		if !j.posted {
			_, err := j.write(repdb, "d", j.document(repdb, "d")["_rev"].(string), []byte(`{"source": "http://a.example/", "target": "http://b.example/", "continuous": true, "mirror": {}}`))
			return err
		}
		return nil
	},
	"pause": func(j *aJob) error {
		if !j.posted {
			j.define(definedContinuous + `, "paused": true`)
		}
		return nil
	},
	"pause and resume": func(j *aJob) error {
		if !j.posted {
			j.define(definedContinuous + `, "paused": true`)
			j.define(definedContinuous)
		}
		return nil
	},
	"end it in its document": func(j *aJob) error {
		if !j.posted {
			j.define(definedContinuous + `, "_replication_state": "completed"`)
		}
		return nil
	},
	"remove it": func(j *aJob) error { j.drop(); return nil },
	"run it now": func(j *aJob) error {
		if _, err := j.store.Requests.RunNow(j.Context(), j.id); !errors.Is(err, jobs.ErrEnded) {
			return err
		}
		return nil
	},
	"acknowledge": func(j *aJob) error {
		err := j.store.Requests.Acknowledge(j.Context(), j.id, &replicator.Acknowledgement{At: time.Now(), Until: time.Now().Add(time.Millisecond)})
		if errors.Is(err, jobs.ErrNoAttention) {
			return nil
		}
		return err
	},
	"wake it": func(j *aJob) error { j.wake(sourceDatabase); return nil },
	"stop": func(j *aJob) error {
		return j.ofRun(func(r *jobs.Run) error { return r.Stop(j.Context(), "", "", nil) })
	},
	"crash": func(j *aJob) error {
		return j.ofRun(func(r *jobs.Run) error { return r.Crash(j.Context(), time.Now(), 1, replicator.TextFault("", "no")) })
	},
	"complete": func(j *aJob) error { return j.ofRun(func(r *jobs.Run) error { return r.Complete(j.Context(), nil) }) },
	"fail": func(j *aJob) error {
		return j.ofRun(func(r *jobs.Run) error { return r.Fail(j.Context(), replicator.TextFault("", "no")) })
	},
	"park": func(j *aJob) error {
		return j.ofRun(func(r *jobs.Run) error {
			_, err := r.Park(j.Context(), nil)
			return err
		})
	},
	"delete the database": func(j *aJob) error {
		if j.posted {
			return nil
		}
		j.recreate(repdb, false)
		return nil
	},
}

// ofRun ends the run, if there is one.
func (j *aJob) ofRun(end func(*jobs.Run) error) error {
	if j.run == nil {
		return nil
	}
	err := end(j.run)
	if err == nil {
		j.run = nil
	}
	if errors.Is(err, fdbjobs.ErrHalt) {
		return nil
	}
	return err
}

// Each way in which a job can be written, in each state that it can have: all rows agree with the jobs then, and when the run has
// ended, and nothing is left when the job is gone.
func TestEachWayInEachState(t *testing.T) {
	t.Parallel()
	for state, prepare := range jobStates {
		for way, write := range jobWays {
			for _, posted := range []bool{false, true} {
				testkit.RunBubble(t, fmt.Sprintf("%s/%s/posted=%v", state, way, posted), func(t *testing.T) {
					b := setup(t, jobs.Options{TransientMaxAge: time.Second})
					b.create(repdb)
					j := &aJob{bundle: b, posted: posted}
					j.define(definedContinuous)
					if j.id = j.definition(definedContinuous).JobID("alice"); !posted {
						j.id = b.jobID(repdb, "d")
					}
					prepare(j)
					b.check()
					require.NoError(t, write(j))
					b.check()
					if j.run != nil {
						require.NoError(t, j.run.Release(t.Context()))
						b.check()
					}
					if posted || way != "delete the database" && way != "remove it" {
						j.drop()
					}
					time.Sleep(jobs.LeastMaxAge + time.Second)
					b.upkeep()
					for _, family := range []string{"replication_ids", "records", "parked", "asks", "ending"} {
						assert.Empty(t, b.rows(family), family)
					}
					assert.Zero(t, b.stored())
				})
			}
		}
	}
}
