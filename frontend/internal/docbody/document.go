package docbody

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxSpecial is how many bytes the members of a document that begin with an underscore
// may have together, contents of attachments aside. It is several times what the
// longest history and the attachments of a revision take.
const maxSpecial = 2_000_000

// Document is a document as a client sent it.
type Document struct {
	// ID is that of the JSON; empty if there is none, otherwise one that [CheckID] takes.
	ID string
	// Rev is the revision that the document says it has, by its _revisions or else its
	// _rev: N-id; empty is none.
	Rev     string
	Deleted bool
	// Revisions is nil if there is none, or none that names a revision.
	Revisions *Revisions
	// Body is the JSON object without the members that are not part of it; each of the
	// others is as it was sent.
	Body []byte
	// Attachments are in the order of the JSON.
	Attachments []Attachment
}

// Revisions is the history of a revision: Start is the position of the first of IDs,
// which lead from the revision to its ancestors.
type Revisions struct {
	Start int64
	IDs   []string
}

// ReadDocument reads a document. The contents of its attachments stay in the spool.
func ReadDocument(s *Spool, opts Options) (*Document, error) {
	doc, err := readOne(s, opts)
	if err != nil {
		return nil, err
	}
	return doc, doc.checkWhole()
}

func readOne(s *Spool, opts Options) (*Document, error) {
	scan := newScanner(s, 0)
	doc, err := readDocument(scan, s, opts)
	if err != nil {
		return nil, err
	}
	return doc, scan.end()
}

// checkWhole checks a document that nothing follows.
func (d *Document) checkWhole() error {
	for i := range d.Attachments {
		if a := &d.Attachments[i]; a.Follows {
			return refuse(BadRequest, "the attachment %s cannot follow: the body is not multipart/related", quote(a.Name))
		}
	}
	return nil
}

// CheckID returns an error if CouchDB has no documents of an id.
func CheckID(id string) error {
	switch {
	case id == "":
		return refuse(DocumentID, "Document id must not be empty")
	case id == "_design/" || id == "_local/":
		return refuse(DocumentID, "Illegal document id `%s`", id)
	case !utf8.ValidString(id):
		return refuse(DocumentID, "Document id must be valid UTF-8")
	case id[0] == '_' && !strings.HasPrefix(id, "_design/") && !strings.HasPrefix(id, "_local/"):
		return refuse(DocumentID, "Only reserved document ids may start with underscore.")
	}
	return nil
}

// reading is a document while it is read.
type reading struct {
	*scanner
	spool *Spool
	opts  Options
	doc   *Document
	body  capped
	// special is the value of the member that begins with an underscore that was read
	// last; left is what such members may have besides.
	special capped
	left    int64
}

func readDocument(scan *scanner, spool *Spool, opts Options) (*Document, error) {
	if c := scan.space(); c != '{' {
		if beginsValue(c) {
			return nil, errNotObject
		}
		return nil, scan.bad()
	}
	r := &reading{scanner: scan, spool: spool, opts: opts, doc: new(Document), left: maxSpecial}
	r.body = capped{text: scan.scratch[:0], most: opts.Document.Bytes}
	if r.body.most <= 0 {
		r.body.most = spool.Size()
	}
	r.body.addText("{")
	if err := r.members(r.member); err != nil {
		return nil, err
	}
	r.body.addText("}")
	if r.body.over {
		what := "the document"
		if r.doc.ID != "" {
			what += " " + quote(r.doc.ID)
		}
		return nil, opts.Document.refuse(DocumentTooLarge, what)
	}
	if !valid(r.body.text) {
		return nil, errJSON
	}
	r.takeBody()
	return r.doc, nil
}

// takeBody gives the document its body. The buffer of a small one is for the next document.
func (r *reading) takeBody() {
	r.doc.Body, r.scratch = r.body.text, nil
	if len(r.body.text) <= windowSize {
		r.doc.Body, r.scratch = slices.Clone(r.body.text), r.body.text
	}
}

// valid reports whether a text whose strings were passed over by a scanner is JSON.
func valid(text []byte) bool { return json.Valid(text) && utf8.Valid(text) }

// member reads a member of a document.
func (r *reading) member(name string) error {
	if !r.opts.bodyMember(name) {
		return r.specialMember(name)
	}
	if len(r.body.text) > 1 {
		r.body.addText(",")
	}
	r.body.add(r.key.text)
	r.body.addText(":")
	r.into = &r.body
	err := r.value()
	r.into = nil
	return err
}

// specialMember reads a member that says something of the document. Those that CouchDB
// adds to documents that it sends are ignored.
func (r *reading) specialMember(name string) error {
	switch {
	case name == "_attachments" && r.peek() == '{':
		return r.attachments()
	case name == "_revisions" && r.peek() == '{':
		return r.revisions()
	}
	value, err := r.capture()
	if err != nil {
		return err
	}
	switch name {
	case "_id":
		if r.doc.ID, err = text(value); err != nil {
			return refuse(DocumentID, "Document id must be a string")
		}
		return CheckID(r.doc.ID)
	case "_rev":
		rev, err := text(value)
		if err != nil || !isRevision(rev) {
			return refuse(BadRequest, "Invalid rev format")
		}
		if r.doc.Revisions == nil {
			r.doc.Rev = rev
		}
		return nil
	case "_deleted":
		if json.Unmarshal(value, &r.doc.Deleted) != nil || string(value) == "null" {
			return refuse(DocumentInvalid, "Bad special document member: _deleted must be true or false")
		}
		return nil
	case "_revisions":
		return refuse(DocumentInvalid, "Bad special document member: _revisions must be an object with `start` and `ids`")
	case "_attachments":
		return refuse(DocumentInvalid, "Bad special document member: _attachments must be an object of objects")
	case "_revs_info", "_conflicts", "_deleted_conflicts", "_local_seq":
		return nil
	}
	return refuse(DocumentInvalid, "Bad special document member: %s", name)
}

// capture passes over a value and returns it. It is overwritten by the next one.
func (r *reading) capture() ([]byte, error) {
	r.left -= int64(len(r.key.text))
	r.special = capped{text: r.special.text[:0], most: max(r.left, 0)}
	r.into = &r.special
	err := r.value()
	r.into = nil
	switch {
	case err != nil:
		return nil, err
	case r.special.over || r.left < 0:
		return nil, refuse(DocumentTooLarge,
			"the members of a document that begin with an underscore may have %d bytes, contents of attachments aside", maxSpecial)
	case !valid(r.special.text):
		return nil, errJSON
	}
	r.left -= int64(len(r.special.text))
	return r.special.text, nil
}

// text reads a string.
func text(value []byte) (string, error) {
	if value[0] != '"' {
		return "", errJSON
	}
	if bytes.IndexByte(value, '\\') < 0 {
		return string(value[1 : len(value)-1]), nil
	}
	var out string
	err := json.Unmarshal(value, &out)
	return out, err
}

// isRevision reports whether text is N-id.
func isRevision(text string) bool {
	pos, id, found := strings.Cut(text, "-")
	_, err := strconv.ParseUint(pos, 10, 63)
	return found && id != "" && err == nil
}

// revisions reads _revisions. One without ids says nothing.
func (r *reading) revisions() error {
	var start *int64
	var ids []string
	listed := false
	err := r.members(func(name string) error {
		if name == "ids" && r.peek() == '[' {
			ids, listed = nil, true
			return r.elements(func() error {
				value, err := r.capture()
				if err != nil {
					return err
				}
				id, err := text(value)
				if err != nil {
					return refuse(DocumentInvalid, "RevId isn't a string")
				}
				ids = append(ids, id)
				return nil
			})
		}
		value, err := r.capture()
		if err == nil && name == "start" && json.Unmarshal(value, &start) != nil {
			start = nil
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case start == nil:
		return refuse(DocumentInvalid, "_revisions.start isn't an integer.")
	case !listed:
		return refuse(DocumentInvalid, "_revisions.ids isn't a array.")
	case len(ids) == 0:
		return nil
	}
	r.doc.Revisions = &Revisions{Start: *start, IDs: ids}
	r.doc.Rev = strconv.FormatInt(*start, 10) + "-" + ids[0]
	return nil
}
