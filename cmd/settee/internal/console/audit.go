package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"time"
)

// MadeChange is a change that a user has made to a job or a setting, in the answers of _scheduler/audit.
type MadeChange struct {
	At       time.Time `json:"at"`
	User     string    `json:"user"`
	Action   string    `json:"action"`
	JobID    string    `json:"job_id"`
	Database string    `json:"database"`
	DocID    string    `json:"doc_id"`
	Section  string    `json:"section"`
	Key      string    `json:"key"`
	Old      string    `json:"old"`
	New      string    `json:"new"`
	Node     string    `json:"node"`
}

// of returns what was changed: a document, a database, a posted job, a setting or a node.
func (c *MadeChange) of() string {
	switch {
	case c.Section != "":
		return "[" + c.Section + "] " + c.Key
	case c.DocID != "":
		return c.Database + "/" + c.DocID
	case c.Database != "":
		return c.Database
	case c.Node != "":
		return c.Node
	}
	return c.JobID
}

// values returns the values of a changed setting.
func (c *MadeChange) values() string {
	switch {
	case c.Section == "":
		return ""
	case c.Old == "":
		return c.New
	}
	return c.Old + " -> " + c.New
}

// Audit returns the latest changes that users have made, at most limit, the newest first: of the job with an id, or all if it is empty, and
// of jobs, settings or nodes, or all if of is empty.
func (n *Node) Audit(ctx context.Context, jobID, of string, limit int) ([]json.RawMessage, error) {
	q := url.Values{"limit": {strconv.Itoa(limit)}}
	if of != "" {
		q.Set("of", of)
	}
	if jobID != "" {
		q.Set("job_id", jobID)
	}
	var answer struct{ Changes []json.RawMessage }
	err := n.Get(ctx, "/_scheduler/audit?"+q.Encode(), &answer)
	return answer.Changes, err
}

// WriteAudit writes changes as a table.
func (o Output) WriteAudit(changes []json.RawMessage) error {
	if o.JSON {
		return o.writeJSON(changes...)
	}
	t := o.table(column{head: "TIME", least: 19}, column{head: "USER", least: 8}, column{head: "ACTION", least: 6},
		column{head: "OF", least: 24}, column{head: "VALUE", least: 12})
	rows := make([][]string, len(changes))
	for i, text := range changes {
		var c MadeChange
		if err := json.Unmarshal(text, &c); err != nil {
			return fmt.Errorf("reading who has made a change: %w", err)
		}
		rows[i] = []string{c.At.Local().Format(time.DateTime), c.User, c.Action, c.of(), c.values()}
	}
	return t.write(o.Out, rows)
}
