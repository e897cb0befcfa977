package migrate

import "fmt"

// Event is something that a call tells its caller. Its JSON form is an object, and String returns a line.
type Event interface{ String() string }

// Kept is a document that stays where it is.
type Kept struct {
	Kept     string `json:"kept"` // the document's id
	Database string `json:"database"`
	At       string `json:"at"` // "CouchDB" or "settee"
	Reason   string `json:"reason"`
}

func (k Kept) String() string {
	return fmt.Sprintf("%s: %q stays at %s: %s", k.Database, k.Kept, k.At, k.Reason)
}

// Note is a sentence for the operator. Database is empty if it is about a server.
type Note struct {
	Note     string `json:"note"`
	Database string `json:"database,omitempty"`
}

func (n Note) String() string {
	if n.Database == "" {
		return n.Note
	}
	return n.Database + ": " + n.Note
}

// Moved says that the jobs of a database were moved.
type Moved struct {
	Moved    int    `json:"moved"`   // documents that now are live at To
	Stopped  int    `json:"stopped"` // documents that this call deleted at the other server
	Kept     int    `json:"kept"`    // documents that stay there
	Database string `json:"database"`
	To       string `json:"to"` // "CouchDB" or "settee"
}

func (m Moved) String() string {
	return fmt.Sprintf("%s: %d documents moved to %s, %d kept", m.Database, m.Moved, m.To, m.Kept)
}
