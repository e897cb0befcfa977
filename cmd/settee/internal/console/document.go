package console

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"strings"

	"settee/cmd/settee/internal/remote"
)

// Document is the document of a job.
type Document struct {
	path    string
	members map[string]json.RawMessage
}

// Document reads the document of a job that has one, with its credentials if the user may see them.
func (n *Node) Document(ctx context.Context, job Job) (*Document, error) {
	d := &Document{path: remote.Path(*job.Database, *job.DocID)}
	return d, n.Get(ctx, d.path, &d.members)
}

// Text returns the document in JSON.
func (d *Document) Text() ([]byte, error) { return json.Marshal(d.members) }

// write writes a document that was read and changed.
func (n *Node) write(ctx context.Context, d *Document) error {
	return n.Ask(ctx, http.MethodPut, d.path, d.members, nil)
}

// writeAnew writes a document without what its replications have left in it, so that it is replicated from then on, and without members
// that are nil.
func (n *Node) writeAnew(ctx context.Context, d *Document) error {
	maps.DeleteFunc(d.members, func(name string, value json.RawMessage) bool {
		return value == nil || strings.HasPrefix(name, "_replication")
	})
	return n.write(ctx, d)
}

// equal reports whether both have the same members, except those that the node writes: special members and the owner.
func (d *Document) equal(other *Document) bool {
	return reflect.DeepEqual(d.values(), other.values())
}

// values returns the members that equal compares.
func (d *Document) values() map[string]any {
	values := map[string]any{}
	for name, text := range d.members {
		var value any
		if name == "owner" || strings.HasPrefix(name, "_") || json.Unmarshal(text, &value) != nil {
			continue
		}
		values[name] = value
	}
	return values
}
