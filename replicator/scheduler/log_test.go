package scheduler_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/replicator"
	"settee/replicator/jobs"
)

// Lines about a job of a document name the document, and the end of a run whose node stops is no error.
func TestLogOfADocument(t *testing.T) {
	inLab(t, jobs.Options{}, nil, func(l *lab) {
		l.end()
		var log bytes.Buffer
		l.log = zerolog.New(zerolog.SyncWriter(&log))
		l.start()
		id := l.put(repdb, "live", `, "continuous": true`)
		l.in(id, replicator.StateRunning)
		l.end()
		messages := map[any]map[string]any{}
		for line := range bytes.Lines(log.Bytes()) {
			var fields map[string]any
			require.NoError(l, json.Unmarshal(line, &fields))
			if fields["job"] == nil {
				continue
			}
			messages[fields["message"]] = fields
			assert.Equal(l, id, fields["job"])
			assert.Equal(l, repdb, fields["database"], "%s", line)
			assert.Equal(l, "live", fields["doc_id"], "%s", line)
		}
		assert.Contains(l, messages, "replication started")
		back := messages["replication goes back to the queue"]
		require.NotNil(l, back, "%s", log.String())
		assert.Equal(l, "info", back["level"])
		assert.NotContains(l, back, "error")
		l.log = zerolog.Nop()
		l.start()
	})
}
