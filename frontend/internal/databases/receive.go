package databases

import (
	"errors"
	"net/http"
	"strings"
	"syscall"

	"settee/frontend/internal/docbody"
	"settee/frontend/internal/web"
	"settee/pkg/config"
	"settee/pkg/docstore"
)

// receive receives the document in the body of the request: JSON, or multipart/related, in which contents of attachments
// follow it. Its id is id, or if that is empty the one in the body, or else a new one.
func (w *writer) receive(answer http.ResponseWriter, id string) (*entry, error) {
	doc, err := w.receiveDocument(answer)
	if err != nil {
		return nil, err
	}
	switch {
	case id != "":
		doc.ID = id
	case doc.ID == "":
		doc.ID, doc.Rev, doc.Revisions = w.endpoints.newID(), "", nil
	}
	if doc.Rev, err = statedRev(w.r, doc.Rev); err != nil {
		return nil, err
	}
	return w.newEntry(doc)
}

func (w *writer) receiveDocument(answer http.ResponseWriter) (*docbody.Document, error) {
	if kind := w.r.Header.Get("Content-Type"); docbody.IsRelated(kind) {
		return w.receiveRelated(answer, kind)
	}
	s, err := w.receiveJSON(answer)
	if err != nil {
		return nil, err
	}
	doc, err := docbody.ReadDocument(s, w.endpoints.documentOptions())
	return doc, bodyFailure(err)
}

func (w *writer) receiveRelated(answer http.ResponseWriter, kind string) (*docbody.Document, error) {
	body, err := web.OpenBody(answer, w.r, web.RequestLimit(w.endpoints.Settings.Current()))
	if err != nil {
		return nil, err
	}
	opts := w.endpoints.documentOptions()
	opts.Spool = w.endpoints.spoolOptions(w.r)
	related, err := docbody.ReadRelated(body, kind, opts)
	if err != nil {
		return nil, bodyFailure(err)
	}
	w.body, w.related = related, related
	return related.Document, w.takeForWrite(int64(related.Document.Body.Len()))
}

// receiveJSON receives a body that is JSON, which may be compressed.
func (w *writer) receiveJSON(answer http.ResponseWriter) (*docbody.Spool, error) {
	cfg := w.endpoints.Settings.Current()
	plain, err := web.OpenPlain(answer, w.r, web.RequestLimit(cfg))
	if err != nil {
		return nil, err
	}
	opts := w.endpoints.spoolOptions(w.r)
	opts.Limit = docbody.Limit{Bytes: config.MaxHTTPRequestSize.Get(cfg), Name: config.MaxHTTPRequestSize.String()}
	s, err := docbody.NewSpool(plain, opts)
	if err != nil {
		return nil, bodyFailure(err)
	}
	w.body = s
	if s.Size() == 0 {
		return nil, web.MissingBody()
	}
	return s, w.takeForWrite(s.Size())
}

// takeForWrite takes the memory that writing the documents of a body of a size needs: a batch, and one document.
func (w *writer) takeForWrite(size int64) error {
	if size <= smallBody {
		return nil
	}
	most := bulkBytes + config.MaxDocumentSize.Get(w.endpoints.Settings.Current())
	return web.MemoryOf(w.r).Take(w.r.Context(), wholeCost*min(size, most), web.BodyShare(size))
}

// smallBody is the size in bytes up to which the cost of a connection includes the documents of a body.
const smallBody = 4 << 10

// spoolOptions returns where the body of a request is kept.
func (e *Endpoints) spoolOptions(r *http.Request) docbody.SpoolOptions {
	return docbody.SpoolOptions{
		Dir: config.SpoolDir.Get(e.Settings.Current()), Memory: web.MemoryOf(r), Disk: web.SpoolOf(r), Context: r.Context(),
	}
}

// documentOptions returns the limits of documents.
func (e *Endpoints) documentOptions() docbody.Options {
	document := docbody.Limit{Bytes: config.MaxDocumentSize.Get(e.Settings.Current()), Name: config.MaxDocumentSize.String()}
	if document.Bytes >= docstore.MaxDocumentSize {
		document = docbody.Limit{Bytes: docstore.MaxDocumentSize, Name: "settee's own, which no setting raises"}
	}
	return docbody.Options{
		Document: document, Attachment: e.attachmentLimit(), MaxAttachments: docstore.MaxAttachments,
		RevID: docstore.ParseRevID, KeptBytes: bulkBytes, KeptDocuments: bulkEdits,
	}
}

func (e *Endpoints) attachmentLimit() docbody.Limit {
	return docbody.Limit{Bytes: config.MaxAttachmentSize.Get(e.Settings.Current()), Name: config.MaxAttachmentSize.String()}
}

// bodyFailure returns the failure for an error of package docbody. It returns other errors, and nil, as they are.
func bodyFailure(err error) error {
	var bad *docbody.Error
	if errors.Is(err, syscall.ENOSPC) {
		return web.Busy("there is no space on this node's disk for the body of the request")
	}
	if !errors.As(err, &bad) {
		return err
	}
	status := http.StatusBadRequest
	switch bad.Code {
	case docbody.BadContentType:
		status = http.StatusUnsupportedMediaType
	case docbody.TooLarge, docbody.DocumentTooLarge, docbody.AttachmentTooLarge:
		status = http.StatusRequestEntityTooLarge
	}
	return web.NewFailure(status, string(bad.Code), bad.Reason)
}

// newID returns an id for a document without one.
func (e *Endpoints) newID() string { return e.UUIDs.New(e.Settings.Current()) }

// newEntry returns a document that was received, or an entry of it and the reason why it is refused. Its Rev is the one that
// the request states. A replicated document has its history, or at least a revision. A local document has no attachments, as
// in CouchDB.
func (w *writer) newEntry(doc *docbody.Document) (*entry, error) {
	one := &entry{Edit: docstore.Edit{ID: doc.ID, Deleted: doc.Deleted, Body: doc.Body}, rev: doc.Rev}
	var rev docstore.Rev
	var err error
	switch {
	case isLocal(doc.ID):
		return one, nil
	case w.replicated && doc.Revisions != nil:
		one.Pos, one.Path = doc.Revisions.Start, doc.Revisions.IDs
	case w.replicated && doc.Rev == "":
		err = web.BadRequest("When `new_edits: false`, the document needs `_rev` or `_revisions` specified")
	case w.replicated:
		rev, err = parseRev(doc.Rev)
		one.Pos, one.Path = rev.Pos, []string{rev.ID}
	case doc.Rev != "":
		one.Rev, err = parseRev(doc.Rev)
	}
	if err == nil {
		one.Attachments, err = w.attachments(doc)
	}
	return one, err
}

// statedRev returns the revision that a request replaces, or the one that it writes if the document is replicated.
// The document, ?rev= and If-Match can state it. If several do, they have to agree. It is empty if none does.
func statedRev(r *http.Request, inDocument string) (string, error) {
	rev := inDocument
	if q := web.NewQuery(r); q.Err != nil {
		return "", q.Err
	} else if q.Has("rev") {
		stated := q.Text("rev")
		if err := checkStated(stated); err != nil {
			return "", err
		}
		if rev != "" && rev != stated {
			return "", web.BadRequest("Document rev from request body and query string have different values")
		}
		rev = stated
	}
	if header := r.Header.Get("If-Match"); header != "" {
		stated := strings.Trim(header, `"`)
		if err := checkStated(stated); err != nil {
			return "", err
		}
		if rev != "" && rev != stated {
			return "", web.BadRequest("Document rev and etag have different values")
		}
		rev = stated
	}
	return rev, nil
}

// checkStated checks a revision that a request states. It accepts revisions of local documents, too.
func checkStated(rev string) error {
	if strings.HasPrefix(rev, "0-") {
		return nil
	}
	_, err := parseRev(rev)
	return err
}

func parseRev(text string) (docstore.Rev, error) {
	rev, err := docstore.ParseRev(text)
	if err != nil {
		return rev, web.BadRequest("Invalid rev format")
	}
	return rev, nil
}
