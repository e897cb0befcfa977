package couch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// AttachmentReader is an attachment's bytes, as they travel: compressed, if the attachment has an
// Encoding. It fails if there are fewer of them, or more, than the document announced.
type AttachmentReader struct {
	Attachment

	r    io.Reader
	left int64 // of the announced size; negative if that is not known
	end  func() error
}

// NewAttachmentReader returns the attachment a with the bytes of r.
func NewAttachmentReader(a Attachment, r io.Reader) *AttachmentReader {
	return &AttachmentReader{Attachment: a, r: r, left: a.size()}
}

// Read reads the attachment's bytes.
func (a *AttachmentReader) Read(p []byte) (int, error) {
	if a.left == 0 {
		return 0, a.overrun()
	}
	if a.left > 0 && int64(len(p)) > a.left {
		p = p[:a.left]
	}
	n, err := a.r.Read(p)
	if a.left > 0 {
		a.left -= int64(n)
	}
	if err == io.EOF && a.left > 0 {
		err = fmt.Errorf("%d bytes are missing: %w", a.left, io.ErrUnexpectedEOF)
	}
	if err == io.EOF && a.left == 0 {
		err = nil // the next call finds the end
	}
	if err != nil && err != io.EOF {
		err = fmt.Errorf("attachment %q: %w", a.Name, err)
	}
	return n, err
}

// overrun makes sure that there are no more bytes than announced.
func (a *AttachmentReader) overrun() error {
	var one [1]byte
	n, err := io.ReadFull(a.r, one[:])
	switch {
	case n > 0:
		err = fmt.Errorf("attachment %q: %w: more than the announced %d bytes", a.Name, ErrMalformed, a.size())
	case err != io.EOF:
		err = fmt.Errorf("attachment %q: %w", a.Name, err)
	}
	return err
}

// Close gives up what was not read. Only what [Database.Attachment] returned needs it.
func (a *AttachmentReader) Close() error {
	if a.end == nil {
		return nil
	}
	return a.end()
}

// Attachment asks for one attachment of a document's revision. about is what the document says of it;
// its Length is checked, and its Encoding ignored: the bytes come as they are without one.
func (d *Database) Attachment(ctx context.Context, id, rev string, about Attachment) (*AttachmentReader, error) {
	return d.attachment(ctx, id, rev, about, false)
}

func (d *Database) attachment(ctx context.Context, id, rev string, about Attachment, noSlot bool) (*AttachmentReader, error) {
	p, err := d.stream(ctx, &request{
		method: http.MethodGet,
		path:   docPath(id) + "/" + escapeSegment(about.Name),
		query:  url.Values{"rev": {rev}},
		accept: "*/*", identity: true, noSlot: noSlot,
	})
	if err != nil {
		return nil, err
	}
	if encoding := p.header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		p.Close()
		return nil, p.fail(fmt.Errorf("%w: attachment %q comes as %s, which was not asked for",
			ErrMalformed, about.Name, excerpt(encoding)))
	}
	about.Encoding, about.EncodedLength = "", -1
	a := NewAttachmentReader(about, &explained{p})
	a.end = p.Close
	return a, nil
}

// explained is an answer's body whose errors name the request.
type explained struct{ p *response }

func (e *explained) Read(b []byte) (int, error) {
	n, err := e.p.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = e.p.fail(err)
	}
	return n, err
}
