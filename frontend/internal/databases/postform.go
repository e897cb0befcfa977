package databases

import (
	"cmp"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"settee/frontend/internal/docbody"
	"settee/frontend/internal/web"
	"settee/pkg/docstore"
)

// PostForm answers POST /{db}/{doc}: a form, as pages send it. Its field _doc is a document, or _rev is the revision
// that gets more attachments. Its files _attachments are attachments, and become the first ones. They are stored while
// they arrive.
func (e *Endpoints) PostForm(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	if err := refererIsHost(r); err != nil {
		return err
	}
	id, err := documentID(r)
	if err != nil {
		return err
	}
	if web.MediaType(r.Header) != docbody.FormType {
		return web.BadContentType("Content-Type must be " + docbody.FormType)
	}
	if err := mayWriteAttachment(r, db, id); err != nil {
		return err
	}
	body, err := web.OpenBody(w, r, web.RequestLimit(e.Settings.Current()))
	if err != nil {
		return err
	}
	form, err := docbody.ReadForm(body, r.Header.Get("Content-Type"))
	if err != nil {
		return bodyFailure(err)
	}
	p := &postedForm{writer: e.newWriter(r, db, false), spool: e.spoolOptions(r), id: id, names: map[string]bool{}}
	defer p.close()
	if err := p.read(form); err != nil {
		return bodyFailure(err)
	}
	one, err := p.entry(e.documentOptions())
	if err != nil {
		return err
	}
	rev, err := p.writeOne(one)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", `"`+rev+`"`)
	return web.Respond(w, r, http.StatusCreated, written{true, id, rev})
}

// refererIsHost refuses a request that does not come from a page of this server. Any page can send a form.
func refererIsHost(r *http.Request) error {
	referer := r.Header.Get("Referer")
	if referer == "" {
		return web.BadRequest("Referer header required.")
	}
	from, err := url.Parse(referer)
	if err != nil || from.Host != cmp.Or(r.Header.Get("X-Forwarded-Host"), r.Host) {
		return web.BadRequest("Referer header must match host.")
	}
	return nil
}

// postedForm is a form that is being read and written.
type postedForm struct {
	*writer
	spool    docbody.SpoolOptions
	id       string
	doc, rev *docbody.Spool // the first fields of these names, or nil
	files    []docstore.EditAttachment
	names    map[string]bool // of files
}

func (p *postedForm) close() {
	p.writer.close()
	for _, s := range []*docbody.Spool{p.doc, p.rev} {
		if s != nil {
			_ = s.Close() // it was only read
		}
	}
}

// read reads the fields, and stores the files.
func (p *postedForm) read(form *docbody.Form) error {
	for {
		field, err := form.Next()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case field.Name == "_attachments" && field.IsFile && field.FileName != "": // it is empty if no file was chosen
			err = p.file(field)
		case field.Name == "_doc" && p.doc == nil:
			p.doc, err = docbody.NewSpool(field.Content, p.spool)
		case field.Name == "_rev" && p.rev == nil:
			p.rev, err = docbody.NewSpool(field.Content, docbody.SpoolOptions{Limit: docbody.Limit{Bytes: maxFormRev, Name: "of _rev"}})
		}
		if err != nil {
			return err
		}
	}
}

// maxFormRev is the maximum size in bytes of a revision in a form.
const maxFormRev = 10_000

func (p *postedForm) file(field *docbody.Field) error {
	name := field.FileName
	if strings.HasPrefix(name, "_") {
		return web.BadRequest("Attachment name '" + web.Cut(name) + "' starts with prohibited character '_'")
	}
	if p.names[name] {
		return web.BadRequest("Duplicate attachments")
	}
	upload, err := p.upload(p.id, name, field.Content, docstore.UploadOptions{})
	if err != nil {
		return err
	}
	p.names[name] = true
	p.files = append(p.files, docstore.EditAttachment{Name: name, Type: field.ContentType, Upload: upload})
	return nil
}

// entry returns the document.
func (p *postedForm) entry(opts docbody.Options) (one *entry, err error) {
	switch {
	case p.doc != nil:
		one, err = p.ofDocument(opts)
	case p.rev != nil:
		one, err = p.ofRevision()
	default:
		err = web.BadRequest("the form has neither a field `_doc` nor a field `_rev`")
	}
	if err != nil {
		return nil, err
	}
	old := slices.DeleteFunc(one.Attachments, func(a docstore.EditAttachment) bool { return p.names[a.Name] })
	one.Attachments = slices.Concat(p.files, old)
	return one, nil
}

func (p *postedForm) ofDocument(opts docbody.Options) (*entry, error) {
	doc, err := docbody.ReadDocument(p.doc, opts)
	if err != nil {
		return nil, bodyFailure(err)
	}
	doc.ID = p.id
	if doc.Rev, err = statedRev(p.r, doc.Rev); err != nil {
		return nil, err
	}
	if isLocal(p.id) && len(p.files) > 0 {
		return nil, web.BadRequest("_local documents do not accept attachments.")
	}
	return p.newEntry(doc)
}

func (p *postedForm) ofRevision() (*entry, error) {
	rev, err := io.ReadAll(io.NewSectionReader(p.rev, 0, p.rev.Size()))
	if err != nil {
		return nil, err
	}
	if len(rev) == 0 {
		return nil, web.BadRequest("Invalid rev format")
	}
	edit, _, err := withoutAttachment(p.r, p.db, p.id, string(rev), "")
	return &entry{Edit: edit}, err
}
