package docstore

import (
	"fmt"

	"settee/pkg/redact"
)

// Bodies may hold secrets and are long, so the types that have one do not print it.

// String returns the document's id and the revision that the edit replaces.
func (e Edit) String() string { return "edit of " + quote(e.ID) + " " + e.Rev.String() }

// Format writes String for every verb.
func (e Edit) Format(f fmt.State, verb rune) {
	redact.Format(f, verb, e.String(), "docstore.Edit("+e.String()+")")
}

// String returns the document's id and revision.
func (d Document) String() string { return "document " + quote(d.ID) + " " + d.Rev.String() }

// Format writes String for every verb.
func (d Document) Format(f fmt.State, verb rune) {
	redact.Format(f, verb, d.String(), "docstore.Document("+d.String()+")")
}

// String returns the document's id and revision.
func (d LocalDocument) String() string { return "document " + quote(d.ID) + " " + d.Rev }

// Format writes String for every verb.
func (d LocalDocument) Format(f fmt.State, verb rune) {
	redact.Format(f, verb, d.String(), "docstore.LocalDocument("+d.String()+")")
}

// String returns the document's id and revision.
func (c Change) String() string { return "change of " + quote(c.ID) + " to " + c.Rev.String() }

// Format writes String for every verb.
func (c Change) Format(f fmt.State, verb rune) {
	redact.Format(f, verb, c.String(), "docstore.Change("+c.String()+")")
}
