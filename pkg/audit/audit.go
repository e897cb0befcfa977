// Package audit keeps who has changed what: the latest changes that users have made to replications, settings and nodes.
//
// A change is recorded in the transaction that makes it ([Entry.Record]), so none is missing and none is there that was not
// made. The user is in the context of a request ([By]). What a node does by itself has no user, and is not recorded.
//
// Keys, below [Prefix]:
//
//	("entry", at, token) -> Entry, a JSON object
//
// at is the time of the node that made the change, in microseconds since the Unix epoch. token tells changes of one time apart. It
// is the same in each run of a transaction's function, so that a change whose commit is reported unknown is recorded once. [Trim]
// removes all but the latest [Kept] entries.
package audit

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	"settee/pkg/jsontext"
	"settee/pkg/kv"
	"settee/pkg/kv/check"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// Kept is the number of entries that Trim keeps, and the most that List returns.
const Kept = 1_000

// maxValue is the most bytes of a value of a setting in an entry.
const maxValue = 200

// Action is what a user did.
type Action string

// The actions.
const (
	Edited  Action = "edit"   // a document of a replicator database
	Paused  Action = "pause"  // in its document
	Resumed Action = "resume" // in its document
	Deleted Action = "delete" // a document, all documents of a database, or a posted job
	Ran     Action = "run"    // a job, at once
	Set     Action = "set"    // a setting
	Unset   Action = "unset"  // a setting

	Cordoned   Action = "cordon"   // a node: it takes no jobs
	Drained    Action = "drain"    // a node: it also gives back those that it has
	Uncordoned Action = "uncordon" // a node
)

// Kind is what a change was made to.
type Kind string

// The kinds.
const (
	Jobs     Kind = "jobs" // and their documents and databases
	Settings Kind = "settings"
	Nodes    Kind = "nodes"
)

// Kinds are all kinds.
var Kinds = []Kind{Jobs, Settings, Nodes}

// Kind returns what the change was made to.
func (e *Entry) Kind() Kind {
	switch {
	case e.Section != "":
		return Settings
	case e.Node != "":
		return Nodes
	}
	return Jobs
}

// Entry is a change. Only the members that it has to do with are set.
type Entry struct {
	At     time.Time `json:"at"`
	User   string    `json:"user"`
	Action Action    `json:"action"`
	// JobID is the job, and Database and DocID are its document. A deleted replicator database has no DocID.
	JobID    string `json:"job_id,omitempty"`
	Database string `json:"database,omitempty"`
	DocID    string `json:"doc_id,omitempty"`
	// Section and Key are the setting, and Old and New its values, without secrets. Both are empty for no value.
	Section string `json:"section,omitempty"`
	Key     string `json:"key,omitempty"`
	Old     string `json:"old,omitempty"`
	New     string `json:"new,omitempty"`
	// Node is the name or the instance of a node.
	Node string `json:"node,omitempty"`

	token string
}

// Prefix is what the keys of this package begin with.
var Prefix = tuple.NewSubspace("audit").Bytes()

var entries = tuple.SubspaceFromBytes(Prefix).Sub("entry")

type userKey struct{}

// By returns a context for what a user does.
func By(ctx context.Context, user string) context.Context {
	return context.WithValue(ctx, userKey{}, user)
}

// UserOf returns the user of a context, or "" if it has none.
func UserOf(ctx context.Context) string {
	user, _ := ctx.Value(userKey{}).(string)
	return user
}

// New returns an entry for what the user of a context does. It is called outside the function of the transaction.
func New(ctx context.Context, action Action) Entry {
	return Entry{At: time.Now(), User: UserOf(ctx), Action: action, token: rand.Text()}
}

// Of returns an entry for a change that is made by a user with a token, which no other change has. It is for functions of
// transactions whose earlier runs do not count.
func Of(user string, action Action, token string) Entry {
	return Entry{At: time.Now(), User: user, Action: action, token: token}
}

// Record records a change in the transaction that makes it, unless it has no user.
func (e Entry) Record(tx kv.Transaction) error {
	if e.User == "" {
		return nil
	}
	e.At, e.Old, e.New = e.At.UTC().Truncate(time.Microsecond), cut(e.Old), cut(e.New)
	text, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("recording who made a change: %w", err)
	}
	tx.Set(entries.Pack(e.At.UnixMicro(), e.token), text)
	return nil
}

// cut returns a value of a setting, with an ellipsis for what is beyond maxValue bytes.
func cut(text string) string {
	if len(text) <= maxValue {
		return text
	}
	return jsontext.Cut(text, maxValue) + "…"
}

// List returns the latest entries of which keep returns true, at most limit, the newest first. It looks at the latest Kept
// entries.
func List(ctx context.Context, db kv.Database, limit int, keep func(*Entry) bool) ([]Entry, error) {
	return kv.TransactValue(ctx, db, func(tx kv.Transaction) ([]Entry, error) {
		pairs, err := tx.Snapshot().GetRange(rows.Range(entries), kv.RangeOptions{Limit: Kept, Reverse: true}).Slice()
		if err != nil {
			return nil, err
		}
		found := []Entry{}
		for _, pair := range pairs {
			var e Entry
			if err := json.Unmarshal(pair.Value, &e); err != nil {
				return nil, fmt.Errorf("reading who made a change: %w", err)
			}
			if len(found) < limit && keep(&e) {
				found = append(found, e)
			}
		}
		return found, nil
	})
}

// Trim removes all entries except the latest Kept.
func Trim(ctx context.Context, db kv.Database) error {
	return db.Transact(ctx, func(tx kv.Transaction) error {
		all := rows.Range(entries)
		kept, err := tx.Snapshot().GetRange(all, kv.RangeOptions{Limit: Kept, Reverse: true}).Slice()
		if err != nil || len(kept) < Kept {
			return err
		}
		tx.ClearRange(kv.KeyRange{Begin: all.Begin, End: kept[Kept-1].Key})
		return nil
	})
}

// Check checks the forms of the rows.
func Check(ctx context.Context, c *check.Checker) error {
	space := tuple.SubspaceFromBytes(Prefix)
	return c.Walk(ctx, kv.PrefixRange(Prefix), func(p *check.Page, pair kv.KeyValue) (func() error, error) {
		key, err := space.Unpack(pair.Key)
		var family, token string
		var at int64
		switch {
		case err != nil || len(key) != 3 || !rows.As(key[0], &family) || family != "entry" || !rows.As(key[1], &at) || !rows.As(key[2], &token):
			p.Fault(pair.Key, nil, "unknown key")
		case !check.Object(pair.Value):
			p.Fault(pair.Key, nil, "a change: the value is not one that settee writes")
		}
		return nil, nil
	})
}
