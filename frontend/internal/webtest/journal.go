package webtest

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Journal is a log that tests can wait for. The zero value is empty.
type Journal struct {
	mu      sync.Mutex
	text    bytes.Buffer
	written chan struct{} // closed by the next line, if not nil
}

// Write implements io.Writer.
func (j *Journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.written != nil {
		close(j.written)
		j.written = nil
	}
	return j.text.Write(line)
}

// Lines returns the log so far. The channel is closed by the next line.
func (j *Journal) Lines() (lines string, more <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.written == nil {
		j.written = make(chan struct{})
	}
	return j.text.String(), j.written
}

// Line waits for a line that contains all of the texts.
func (j *Journal) Line(t *testing.T, texts ...string) map[string]any {
	t.Helper()
	for {
		lines, more := j.Lines()
	next:
		for line := range strings.Lines(lines) {
			for _, text := range texts {
				if !strings.Contains(line, text) {
					continue next
				}
			}
			var fields map[string]any
			require.NoError(t, json.Unmarshal([]byte(line), &fields))
			return fields
		}
		select {
		case <-more:
		case <-t.Context().Done():
			t.Fatalf("no line with %q in:\n%s", texts, lines)
		}
	}
}
