package databases

import (
	"errors"
	"net/http"
	"syscall"

	"settee/frontend/internal/docbody"
	"settee/frontend/internal/web"
	"settee/pkg/config"
	"settee/pkg/docstore"
)

// spool receives a body that is JSON, which may be compressed. The caller closes it.
func (e *Endpoints) spool(w http.ResponseWriter, r *http.Request) (*docbody.Spool, error) {
	cfg := e.Settings.Current()
	plain, err := web.OpenPlain(w, r, web.RequestLimit(cfg))
	if err != nil {
		return nil, err
	}
	opts := e.spoolOptions(r)
	opts.Limit = docbody.Limit{Bytes: config.MaxHTTPRequestSize.Get(cfg), Name: config.MaxHTTPRequestSize.String()}
	s, err := docbody.NewSpool(plain, opts)
	if err != nil {
		return nil, bodyFailure(err)
	}
	if s.Size() == 0 {
		_ = s.Close() // an empty body has no file
		return nil, web.MissingBody()
	}
	if err := e.takeForWrite(r, s.Size()); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// takeForWrite takes the memory that writing the documents of a body of a size needs: a batch, and one document.
func (e *Endpoints) takeForWrite(r *http.Request, size int64) error {
	if size <= smallBody {
		return nil
	}
	most := bulkBytes + config.MaxDocumentSize.Get(e.Settings.Current())
	return web.MemoryOf(r).Take(r.Context(), wholeCost*min(size, most), web.BodyShare(size))
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

// newEdit returns a document as an edit, without its attachments. rev is the revision that the request states; it
// may be empty. A replicated document has its history, or at least a revision.
func newEdit(doc *docbody.Document, rev string, replicated bool) (docstore.Edit, error) {
	edit := docstore.Edit{ID: doc.ID, Deleted: doc.Deleted, Body: doc.Body}
	switch {
	case replicated && doc.Revisions != nil:
		edit.Pos, edit.Path = doc.Revisions.Start, doc.Revisions.IDs
		return edit, nil
	case rev == "" && replicated:
		return edit, web.BadRequest("When `new_edits: false`, the document needs `_rev` or `_revisions` specified")
	case rev == "":
		return edit, nil
	}
	parsed, err := parseRev(rev)
	if replicated {
		edit.Pos, edit.Path = parsed.Pos, []string{parsed.ID}
	} else {
		edit.Rev = parsed
	}
	return edit, err
}

func parseRev(text string) (docstore.Rev, error) {
	rev, err := docstore.ParseRev(text)
	if err != nil {
		return rev, web.BadRequest("Invalid rev format")
	}
	return rev, nil
}
