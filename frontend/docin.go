package frontend

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"settee/frontend/internal/docbody"
	"settee/pkg/config"
	"settee/pkg/docstore"
)

// incoming is a request's body while it arrives. A large one may take as long as it likes,
// but not stop for longer than receiveTimeout. The errors are what the client is told.
type incoming struct {
	w       http.ResponseWriter
	body    io.Reader
	most    int64
	advice  string // behind "which is the limit"
	control *http.ResponseController
	moved   time.Time // when the deadline was moved
	read    int64     // bytes so far
}

// newIncoming returns a request's body, which may have so many bytes.
func newIncoming(w http.ResponseWriter, r *http.Request, most int64, advice string) (*incoming, error) {
	in := &incoming{
		w: w, body: http.MaxBytesReader(w, r.Body, most), most: most, advice: advice, control: http.NewResponseController(w),
	}
	if r.ContentLength > most {
		return nil, in.tooLarge()
	}
	return in, nil
}

// receive returns a request's body, which may be as large as any.
func (h *Handler) receive(w http.ResponseWriter, r *http.Request) (*incoming, error) {
	limit := h.requestLimit()
	return newIncoming(w, r, limit.Bytes, " ("+limit.Name+")")
}

func (h *Handler) requestLimit() docbody.Limit {
	return docbody.Limit{Bytes: config.MaxHTTPRequestSize.Get(h.config.Current()), Name: config.MaxHTTPRequestSize.String()}
}

// deadlineStep is how often the deadline of a body is moved at most.
const deadlineStep = receiveTimeout / 60

// Read implements io.Reader.
func (in *incoming) Read(p []byte) (int, error) {
	if now := time.Now(); now.Sub(in.moved) >= deadlineStep {
		in.moved = now
		_ = in.control.SetReadDeadline(now.Add(receiveTimeout)) // see ServeHTTP
	}
	n, err := in.body.Read(p)
	in.read += int64(n)
	if err == nil {
		return n, nil
	}
	if err == io.EOF {
		// The connection is now read only to notice that the client hangs up.
		_ = in.control.SetReadDeadline(time.Time{})
		return n, io.EOF
	}
	if errors.As(err, new(*http.MaxBytesError)) {
		return n, in.tooLarge()
	}
	in.w.Header().Set("Connection", "close") // the rest is not read
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return n, &failure{http.StatusRequestTimeout, "timeout",
			fmt.Sprintf("no more of the request body was received for %s", receiveTimeout)}
	}
	return n, badRequest("the request body ends too early or is malformed")
}

func (in *incoming) tooLarge() error {
	in.w.Header().Set("Connection", "close") // the rest is not read
	return &failure{http.StatusRequestEntityTooLarge, "too_large",
		fmt.Sprintf("the request body has more than %d bytes, which is the limit%s", in.most, in.advice)}
}

// spool receives a body that is JSON, which may be compressed. It has to be closed.
func (h *Handler) spool(w http.ResponseWriter, r *http.Request) (*docbody.Spool, error) {
	in, err := h.receive(w, r)
	if err != nil {
		return nil, err
	}
	body, err := uncompressed(in, r.Header)
	if err != nil {
		return nil, err
	}
	s, err := docbody.NewSpool(body, h.requestLimit())
	if err != nil {
		return nil, bodyFailure(badGzip(err))
	}
	if s.Size() == 0 {
		_ = s.Close() // it has no file
		return nil, badRequest("Missing request body")
	}
	return s, nil
}

// What a compressed body may become: maxRatio times the bytes that have arrived of it, but
// inflatedFreely in any case. The configured limit alone would let one megabyte take a gigabyte of
// disk, as gzip makes up to a thousand bytes of one. JSON that somebody means to store becomes
// some 3 to 15 times smaller; what is more uniform than that is seldom large, and can be sent
// as it is, or in several requests.
const (
	inflatedFreely = 64 << 20 // bytes
	maxRatio       = 32
)

// inflated is a compressed body without its compression.
type inflated struct {
	in    *incoming
	plain io.Reader
	bytes int64 // so far
}

// Read implements io.Reader.
func (f *inflated) Read(p []byte) (int, error) {
	n, err := f.plain.Read(p)
	f.bytes += int64(n)
	if f.bytes > max(inflatedFreely, maxRatio*f.in.read) {
		f.in.w.Header().Set("Connection", "close") // the rest is not read
		return n, &failure{http.StatusRequestEntityTooLarge, "too_large", fmt.Sprintf(
			"the request body becomes more than %d times as large when it is decompressed, which only one of up to %d bytes may: send it as it is, or in several requests",
			maxRatio, inflatedFreely)}
	}
	return n, err
}

// uncompressed is a body without the encoding that it was sent in. It is read to no more than such
// a body may become. What is wrong with it otherwise is an error of reading it: see badGzip.
func uncompressed(in *incoming, header http.Header) (io.Reader, error) {
	switch strings.ToLower(header.Get("Content-Encoding")) {
	case "", "identity":
		return in, nil
	case "gzip":
		plain, err := gzip.NewReader(in)
		if err != nil {
			return nil, badGzip(err)
		}
		return &inflated{in: in, plain: plain}, nil
	}
	return nil, badContentType("Content-Encoding must be gzip or identity")
}

// badGzip says what is wrong with a compressed body, if that is what the error is about.
func badGzip(err error) error {
	var refused *failure
	if !errors.As(err, &refused) && (errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
		return badRequest("the request body is not compressed as its Content-Encoding says")
	}
	return err
}

func badContentType(reason string) error {
	return &failure{http.StatusUnsupportedMediaType, string(docbody.BadContentType), reason}
}

// requireJSON refuses a body that does not say that it is JSON: a page of another origin
// cannot send one that does without asking.
func requireJSON(header http.Header) error {
	kind, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	if !strings.EqualFold(strings.TrimSpace(kind), "application/json") {
		return badContentType("Content-Type must be application/json")
	}
	return nil
}

// documentOptions say what documents may be.
func (h *Handler) documentOptions() docbody.Options {
	return docbody.Options{
		Document:   docbody.Limit{Bytes: min(config.MaxDocumentSize.Get(h.config.Current()), docstore.DefaultMaxDocumentSize), Name: config.MaxDocumentSize.String()},
		Attachment: h.attachmentLimit(),
		BodyMember: docstore.BodyMember,
	}
}

func (h *Handler) attachmentLimit() docbody.Limit {
	return docbody.Limit{Bytes: config.MaxAttachmentSize.Get(h.config.Current()), Name: config.MaxAttachmentSize.String()}
}

// bodyFailure returns what a client is told of a body that could not be read as a document;
// other errors as they are.
func bodyFailure(err error) error {
	var bad *docbody.Error
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
	return &failure{status, string(bad.Code), bad.Reason}
}

// newEdit returns a document as an edit, without its attachments. rev is the revision that
// the request says it has, which may be empty; a replicated one has its history, or at
// least that.
func newEdit(doc *docbody.Document, rev string, replicated bool) (docstore.Edit, error) {
	edit := docstore.Edit{ID: doc.ID, Deleted: doc.Deleted, Body: doc.Body}
	switch {
	case replicated && doc.Revisions != nil:
		edit.Pos, edit.Path = doc.Revisions.Start, doc.Revisions.IDs
		return edit, nil
	case rev == "" && replicated:
		return edit, badRequest("When `new_edits: false`, the document needs `_rev` or `_revisions` specified")
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
		return rev, badRequest("Invalid rev format")
	}
	return rev, nil
}
