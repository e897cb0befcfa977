package console

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Output is where a command writes what a node has answered.
type Output struct {
	Out io.Writer
	// Width is the width of the terminal, or 0 if lines may have any.
	Width int
	// Now is the time from which people are told how long ago something was.
	Now time.Time
	// JSON writes each object as the node answered it, one a line.
	JSON bool
}

func (o Output) table(columns ...column) *table { return &table{width: o.Width, columns: columns} }

// writeJSON writes objects as the node answered them.
func (o Output) writeJSON(objects ...json.RawMessage) error {
	for _, object := range objects {
		if _, err := fmt.Fprintf(o.Out, "%s\n", object); err != nil {
			return err
		}
	}
	return nil
}

// writeBelow writes a table after an empty line.
func (o Output) writeBelow(t *table, rows [][]string) error {
	if _, err := io.WriteString(o.Out, "\n"); err != nil {
		return err
	}
	return t.write(o.Out, rows)
}
