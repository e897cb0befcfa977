package docbody

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"settee/pkg/docjson"
	"settee/pkg/jsontext"
)

// maxSpecial is the maximum total size in bytes of the members of a document whose names begin with an underscore,
// without contents of attachments. It is several times the size of the longest history and attachments of a revision.
const maxSpecial = 2_000_000

// Document is a document as a client sent it.
type Document struct {
	// ID is the id in the JSON. It is empty, or valid by [CheckID].
	ID string
	// Rev is the document's revision, N-id, from its _revisions or else its _rev. It is empty if there is none.
	Rev     string
	Deleted bool
	// Revisions is nil if there is none or if it has no ids.
	Revisions *Revisions
	// Body is the JSON object without its special members. The other members are unchanged.
	Body docjson.Body
	// Attachments are in the order of the JSON.
	Attachments []Attachment
}

// Revisions is the history of a revision: Start is the generation of the first of IDs, which lead from the revision to
// its ancestors.
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
	scan := newScanner(s, 0, s.Size())
	defer scan.Free()
	doc, err := readDocument(scan, s, opts)
	if err == nil {
		err = scan.end()
	}
	if err != nil {
		return nil, wrong(err)
	}
	return doc, nil
}

// checkWhole checks a document that nothing may follow.
func (d *Document) checkWhole() error {
	for i := range d.Attachments {
		if a := &d.Attachments[i]; a.Follows {
			return refuse(BadRequest, "the attachment %s cannot follow: the body is not multipart/related", quote(a.Name))
		}
	}
	return nil
}

// CheckID returns an error if CouchDB does not accept id as a document id.
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

// reading is the state of reading a document.
type reading struct {
	*scanner
	spool *Spool
	opts  Options
	doc   *Document
	body  capped
	// left is the number of bytes left for special members.
	left int64
}

func readDocument(scan *scanner, spool *Spool, opts Options) (*Document, error) {
	if err := scan.object(errNotObject); err != nil {
		return nil, err
	}
	r := &reading{scanner: scan, spool: spool, opts: opts, doc: new(Document), left: maxSpecial}
	r.body = capped{text: scan.scratch[:0], most: opts.Document.Bytes}
	if r.body.most <= 0 {
		r.body.most = spool.Size()
	}
	r.body.add([]byte("{"))
	if err := r.members(r.member); err != nil {
		return nil, err
	}
	r.body.add([]byte("}"))
	if r.body.over {
		what := "the document"
		if r.doc.ID != "" {
			what += " " + quote(r.doc.ID)
		}
		return nil, opts.Document.refuse(DocumentTooLarge, what)
	}
	return r.doc, r.takeBody()
}

// takeBody checks the text of the body, and sets the document's. It keeps the buffer of a small one for the next document.
func (r *reading) takeBody() error {
	text := r.body.text
	r.scratch = nil
	if len(text) <= windowSize {
		text, r.scratch = slices.Clone(text), text
	}
	body, err := docjson.Parse(text)
	if err != nil {
		return errJSON // the names of members were checked before
	}
	r.doc.Body = body
	return nil
}

// member reads a member of a document.
func (r *reading) member(name string) error {
	if !docjson.IsMember(name) {
		return r.specialMember(name)
	}
	if len(r.body.text) > 1 {
		r.body.add([]byte(","))
	}
	r.body.add(r.key)
	r.body.add([]byte(":"))
	return r.Copy(&r.body)
}

// specialMember reads a member whose name begins with an underscore. It ignores those that CouchDB adds to documents in
// its responses.
func (r *reading) specialMember(name string) error {
	switch {
	case name == "_attachments" && r.begins('{'):
		return r.attachments()
	case name == "_revisions" && r.begins('{'):
		return r.revisions()
	}
	value, err := r.capture()
	if err != nil {
		return err
	}
	switch name {
	case "_id":
		id, ok := jsontext.String(value)
		if !ok {
			return refuse(DocumentID, "Document id must be a string")
		}
		r.doc.ID = id
		return CheckID(id)
	case "_rev":
		text, _ := jsontext.String(value)
		rev, ok := r.revision(text)
		if !ok {
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

// capture reads a value. It is valid until the next call.
func (r *reading) capture() ([]byte, error) {
	r.left -= int64(len(r.key))
	value, err := r.Value(int(max(r.left, 0)))
	if errors.Is(err, jsontext.ErrTooLarge) || r.left < 0 {
		return nil, refuse(DocumentTooLarge,
			"the members of a document that begin with an underscore may have %d bytes, contents of attachments aside", maxSpecial)
	}
	r.left -= int64(len(value))
	return value, err
}

// revision returns the normal form of a revision, and false if text is none.
func (r *reading) revision(text string) (string, bool) {
	pos, id, found := strings.Cut(text, "-")
	n, errPos := strconv.ParseInt(pos, 10, 64)
	id, errID := r.opts.revID(id)
	return strconv.FormatInt(n, 10) + "-" + id, found && errPos == nil && errID == nil
}

// revisions reads _revisions. It ignores one without ids.
func (r *reading) revisions() error {
	var start *int64
	var ids []string
	listed := false
	err := r.members(func(name string) error {
		if name == "ids" && r.begins('[') {
			ids, listed = nil, true
			return r.elements(func() error {
				value, err := r.capture()
				if err != nil {
					return err
				}
				id, ok := jsontext.String(value)
				if !ok {
					return refuse(DocumentInvalid, "RevId isn't a string")
				}
				if id, err = r.opts.revID(id); err != nil {
					return refuse(DocumentInvalid, "RevId isn't a valid hexadecimal")
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
