package couch

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"unicode"

	"settee/pkg/redact"
)

const (
	// maxPouchDocument is the size in bytes of the largest document that PouchDB Server takes in a
	// multipart body: to a larger one it never answers.
	maxPouchDocument = 2 << 20
	// maxKept is how many bytes of a body are kept while it is sent, so that a small one can be sent
	// again although its attachments come from a stream.
	maxKept = 64 << 10
)

// AttachmentSource hands out attachments one by one, and io.EOF after the last one. An attachment is
// read before the next one is asked for. [Leaf] is one.
type AttachmentSource interface {
	NextAttachment() (*AttachmentReader, error)
}

// PutMultipart writes a revision as it is (new_edits=false), together with those of its attachments
// that it says follow. source hands them out in the order in which the document names them, and is not
// touched if there are none. Each is streamed: none is ever in memory.
//
// The write is repeated after an error only while what was sent of it is small; for larger ones the
// caller starts over, with a new source. An error of source is returned as it is, with the attachment's
// name in front; all others are of the database that was written to.
//
// PouchDB Server is spared what it does not understand, see attachedBody.
func (d *Database) PutMultipart(ctx context.Context, doc Document, source AttachmentSource) error {
	body, content, err := d.attachedBody(doc, source)
	if err != nil {
		return err
	}
	err = d.fetch(ctx, &request{
		method: http.MethodPut, path: docPath(doc.ID), query: url.Values{"new_edits": {"false"}},
		content: content, body: body,
	}, maxInfo, func(answer []byte) error { return putAnswer(doc, answer, d.hidden) })
	if broken := body.sourceError(); broken != nil && err != nil {
		return broken
	}
	return err
}

// putAnswer finds a refusal in the answer to a write. CouchDB's is an object that says that it was done; that
// of PouchDB Server is an array, as if it were of _bulk_docs.
func putAnswer(doc Document, answer []byte, hidden redact.Set) error {
	answer = bytes.TrimSpace(answer)
	if !json.Valid(answer) {
		return fmt.Errorf("%w: the answer to a write is not JSON", ErrMalformed)
	}
	e, refused := docError(answer)
	switch {
	case isArray(answer):
		all, err := readRefused(bytes.NewReader(answer))
		if err != nil || len(all) == 0 {
			return err
		}
		e = &all[0]
	case saysWritten(answer):
		return nil
	case !refused:
		return fmt.Errorf("%w: the answer to a write does not say that it was done", ErrMalformed)
	}
	e.ID, e.Rev = doc.ID, doc.Rev
	return e.redacted(hidden)
}

// saysWritten reports whether an answer says that a document was written. A gateway may answer 200 and have written
// nothing.
func saysWritten(answer []byte) bool {
	var said struct {
		OK    bool   `json:"ok"`
		Rev   string `json:"rev"`
		Error string `json:"error"`
	}
	return json.Unmarshal(answer, &said) == nil && said.Error == "" && (said.OK || said.Rev != "")
}

// attachedBody makes the body of a document with its attachments.
//
// It is multipart/related. Where CouchDB counts the parts, PouchDB Server goes by their names, and
// decodes these as browsers encode them; a name that does not survive that, or a document above
// maxPouchDocument, goes there as plain JSON with the attachments in base64. Nor does it know encodings:
// what is compressed is decompressed for it.
func (d *Database) attachedBody(doc Document, source AttachmentSource) (*streamedBody, string, error) {
	pouch := d.express.Load()
	if pouch {
		var err error
		if doc, err = doc.decoded(); err != nil {
			return nil, "", err
		}
		source = decodedSource{source}
	}
	about, err := doc.Attachments()
	if err != nil {
		return nil, "", err
	}
	inline := pouch && len(doc.Body) > maxPouchDocument
	follow := about[:0]
	for _, a := range about {
		if a.Follows {
			follow = append(follow, a)
			inline = inline || pouch && !fitsPouchPart(a)
		}
	}
	body := &streamedBody{source: source, attachments: follow}
	switch {
	case len(follow) == 0:
		body.between = [][]byte{doc.Body}
		return body, jsonType, nil
	case inline:
		body.inline(doc)
		return body, jsonType, nil
	}
	boundary := rand.Text()
	body.multipart(doc, boundary)
	return body, `multipart/related; boundary="` + boundary + `"`, nil
}

// decoded returns the document with its compressed attachments announced as plain ones.
func (d Document) decoded() (Document, error) {
	return d.withAttachments(func(a Attachment, object []byte) ([]byte, error) {
		if !a.Follows || a.Encoding == "" {
			return object, nil
		}
		// The digest is that of the compressed bytes.
		return withoutMembers(object, "", "encoding", "encoded_length", "digest"), nil
	})
}

// decodedSource decompresses attachments.
type decodedSource struct{ AttachmentSource }

func (s decodedSource) NextAttachment() (*AttachmentReader, error) {
	a, err := s.AttachmentSource.NextAttachment()
	if err != nil || a.Encoding == "" {
		return a, err
	}
	if a.Encoding != "gzip" {
		return nil, fmt.Errorf("attachment %q: %w: its encoding is %s", a.Name, ErrMalformed, excerpt(a.Encoding))
	}
	plain, err := gzip.NewReader(a)
	if err != nil {
		return nil, fmt.Errorf("attachment %q: decompressing it: %w", a.Name, err)
	}
	about := a.Attachment
	about.Encoding, about.EncodedLength, about.Digest = "", -1, "" // of the compressed bytes, which a checks
	return NewAttachmentReader(about, plain), nil
}

// fitsPouchPart reports whether an attachment's name and type survive PouchDB Server's reading of a
// part's headers, from which it takes both.
func fitsPouchPart(a Attachment) bool {
	for _, trap := range []string{`"`, `\`, "%22", "&#"} {
		if strings.Contains(a.Name, trap) {
			return false
		}
	}
	for _, text := range []string{a.Name, a.ContentType} {
		if text == "" || text != strings.TrimSpace(text) || text != headerValue(text) {
			return false
		}
	}
	return true
}

// headerValue makes text fit for a header.
func headerValue(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '_'
		}
		return r
	}, text)
}

// streamedBody is a request's body that is made while it is sent: the pieces of between, and an
// attachment after each but the last.
type streamedBody struct {
	source      AttachmentSource
	attachments []Attachment
	between     [][]byte
	base64      bool // the attachments' bytes are written in base64

	mu       sync.Mutex
	closed   bool   // the exchange is over
	kept     []byte // what was sent, while it is small
	outgrown bool   // it was not small enough to be kept
	replay   int    // how much of kept this try has sent
	at       int    // index in between
	piece    io.Reader
	err      error // of source
}

// multipart makes the body of parts: the document, and a part for each attachment. CouchDB takes an
// attachment's name and type from the document, by the order of the parts.
func (s *streamedBody) multipart(doc Document, boundary string) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "--%s\r\nContent-Type: application/json\r\n\r\n", boundary)
	b.Write(doc.Body)
	for _, a := range s.attachments {
		fmt.Fprintf(&b, "\r\n--%s\r\nContent-Disposition: attachment; filename=\"%s\"\r\nContent-Type: %s\r\n",
			boundary, strings.ReplaceAll(headerValue(a.Name), `"`, "_"), headerValue(a.ContentType))
		if size := a.size(); size >= 0 {
			fmt.Fprintf(&b, "Content-Length: %d\r\n", size)
		}
		if a.Encoding != "" {
			fmt.Fprintf(&b, "Content-Encoding: %s\r\n", headerValue(a.Encoding))
		}
		b.WriteString("\r\n")
		s.between = append(s.between, b.Bytes())
		b = bytes.Buffer{}
	}
	fmt.Fprintf(&b, "\r\n--%s--", boundary)
	s.between = append(s.between, b.Bytes())
}

// inline makes a JSON body with the attachments in base64.
func (s *streamedBody) inline(doc Document) {
	s.base64 = true
	span := doc.attachments
	rest := append([]byte(nil), doc.Body[:span.start]...)
	separator := byte('{')
	// The document was read just before: it has no error left.
	_ = doc.eachAttachment(func(a Attachment, name, object []byte) error {
		rest = append(append(append(rest, separator), name...), ':')
		separator = ','
		if !a.Follows {
			rest = append(rest, object...)
			return nil
		}
		object = withoutMembers(object, `"data":"`, "follows", "length", "data")
		s.between = append(s.between, append(rest, object[:len(object)-1]...))
		rest = []byte(`"}`)
		return nil
	})
	s.between = append(s.between, append(append(rest, '}'), doc.Body[span.end:]...))
}

// open begins the body, or repeats what was sent of it before it goes on.
func (s *streamedBody) open() (io.Reader, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = false
	s.replay = 0
	return s, s.length()
}

// length is the body's size in bytes, or -1 if an attachment's is not known.
func (s *streamedBody) length() int64 {
	var total int64
	for _, piece := range s.between {
		total += int64(len(piece))
	}
	for _, a := range s.attachments {
		size := a.size()
		if size < 0 {
			return -1
		}
		if s.base64 {
			size = int64(base64.StdEncoding.EncodedLen(int(size)))
		}
		total += size
	}
	return total
}

func (s *streamedBody) again() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.outgrown && s.err == nil
}

// done waits for a Read that is under way, and lets no other begin.
func (s *streamedBody) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

func (s *streamedBody) sourceError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

var errExchangeOver = errors.New("the exchange is over")

// Read reads the body of one try.
func (s *streamedBody) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		if s.err == nil && s.sentAll() {
			return 0, io.EOF // an answer may come before the transport has looked for the end
		}
		return 0, errExchangeOver
	}
	if s.replay < len(s.kept) {
		n := copy(p, s.kept[s.replay:])
		s.replay += n
		return n, nil
	}
	n, err := s.make(p)
	if s.outgrown = s.outgrown || len(s.kept)+n > maxKept; s.outgrown {
		s.kept, s.replay = nil, 0
	} else {
		s.kept = append(s.kept, p[:n]...)
		s.replay = len(s.kept)
	}
	return n, err
}

// sentAll reports whether all of the body was read.
func (s *streamedBody) sentAll() bool {
	if s.replay < len(s.kept) || s.at <= 2*len(s.attachments) {
		return false
	}
	last, ok := s.piece.(*bytes.Reader)
	return s.piece == nil || ok && last.Len() == 0
}

// make makes the next bytes of the body.
func (s *streamedBody) make(p []byte) (int, error) {
	for {
		if s.piece == nil {
			if s.at == 2*len(s.attachments)+1 {
				return 0, io.EOF
			}
			if s.err != nil {
				return 0, s.err
			}
			if s.piece, s.err = s.nextPiece(); s.err != nil {
				return 0, s.err
			}
			s.at++
		}
		n, err := s.piece.Read(p)
		if err == io.EOF {
			s.piece = nil
			err = nil
		}
		if err != nil {
			s.err = err
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// nextPiece returns the piece with the number at: those between attachments are even.
func (s *streamedBody) nextPiece() (io.Reader, error) {
	if s.at%2 == 0 {
		return bytes.NewReader(s.between[s.at/2]), nil
	}
	want := s.attachments[s.at/2]
	a, err := s.source.NextAttachment()
	switch {
	case err == io.EOF:
		return nil, fmt.Errorf("attachment %q was announced and does not come: %w", want.Name, io.ErrUnexpectedEOF)
	case err != nil:
		return nil, fmt.Errorf("attachment %q: %w", want.Name, err)
	case a.Name != want.Name || a.size() != want.size() || a.Encoding != want.Encoding:
		return nil, fmt.Errorf("%w: attachment %q (%d bytes) where %q (%d bytes) was announced",
			ErrMalformed, a.Name, a.size(), want.Name, want.size())
	}
	if s.base64 {
		return &base64Reader{r: a}, nil
	}
	return a, nil
}

// base64Reader encodes what it reads.
type base64Reader struct {
	r       io.Reader
	raw     [3 << 10]byte
	encoded [4 << 10]byte
	out     []byte // of encoded, not yet read
	err     error  // of r
}

func (b *base64Reader) Read(p []byte) (int, error) {
	for len(b.out) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		var n int
		n, b.err = io.ReadFull(b.r, b.raw[:])
		if b.err == io.ErrUnexpectedEOF {
			b.err = io.EOF // the last, shorter piece; what was cut off says more than that
		}
		base64.StdEncoding.Encode(b.encoded[:], b.raw[:n])
		b.out = b.encoded[:base64.StdEncoding.EncodedLen(n)]
	}
	n := copy(p, b.out)
	b.out = b.out[n:]
	return n, nil
}
