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
	Left     int    `json:"left"`    // documents there that were not selected
	Database string `json:"database"`
	To       string `json:"to"` // "CouchDB" or "settee"
	// Began says that the call has asked a server to stop or to start jobs.
	Began bool `json:"-"`
}

func (m Moved) String() string {
	text := fmt.Sprintf("%s: %s moved to %s, %d kept", m.Database, counted(m.Moved, "document"), m.To, m.Kept)
	if m.Left > 0 {
		text += fmt.Sprintf(", %d not selected", m.Left)
	}
	return text
}

// counted returns a number with a noun, which has an s if they are not one.
func counted(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// Progress says how far a call has come with a database.
type Progress struct {
	Database string
	Plan     bool // the call is a plan, which moves nothing
	Looked   int  // documents that a plan has looked at
	Stopped  int
	Moved    int
	Kept     int
	Waiting  int // jobs that have not stopped yet
	// Steps is about how many steps are left: a document takes one in a plan, and two in a move.
	Steps int64
}

func (p Progress) String() string {
	switch {
	case p.Waiting > 0:
		return fmt.Sprintf("%s: waiting for %s to stop", p.Database, counted(p.Waiting, "job"))
	case p.Plan:
		return fmt.Sprintf("%s: looked at %s", p.Database, counted(p.Looked, "job"))
	}
	return fmt.Sprintf("%s: %d stopped, %d moved, %d kept", p.Database, p.Stopped, p.Moved, p.Kept)
}
