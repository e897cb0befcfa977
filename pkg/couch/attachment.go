package couch

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"strings"

	"settee/pkg/jsontext"
	"settee/pkg/outbound"
)

// AttachmentReader reads an attachment's bytes as transferred: compressed if the attachment has an Encoding. It fails
// if their number differs from the size in the document, and with [ErrDigest] instead of io.EOF if they do not match
// the digest. [AttachmentReader.LeaveDigest] switches the latter off.
type AttachmentReader struct {
	Attachment

	r    io.Reader
	left int64 // of the announced size; negative if unknown
	end  func() error
	// explain, if not nil, adds to an error what was being read.
	explain func(error) error
	// expect, if not nil, is told how many bytes are left.
	expect func(bytes int64)
	// otherSize, if not nil, is called if the bytes end too early or too late.
	otherSize func()

	sum  []byte    // from the digest
	hash hash.Hash // of the bytes read; nil if there is nothing to compare with
}

// ChecksDigest returns the name of an attachment that the database compares with its digest when [Database.PutMultipart] writes
// the document. If they do not match, the database refuses the document. So the caller need not compare them: see
// [AttachmentReader.LeaveDigest]. It must compare all other attachments.
//
// CouchDB and settee compare the bytes as transferred, compressed or not, before the document is visible. Like this package
// they ignore digests other than MD5. If the bytes do not match, settee and CouchDB 1 answer 400 content_md5_mismatch. CouchDB 2
// and 3 answer 500 unknown_error, which can mean anything, and leave a process that takes what else comes over the connection,
// except after the last attachment. PutMultipart repeats a small document after such an answer. So the attachment is the last
// one that follows, in a document that is too large for that, of known size.
func (d *Database) ChecksDigest(doc Document) (attachment string, ok bool) {
	if !d.couchDB.Load() && !d.settee.Load() || d.express.Load() {
		return "", false
	}
	all, err := doc.Attachments()
	if err != nil {
		return "", false
	}
	var last Attachment
	var size int64
	for _, a := range all {
		if a.Follows {
			last = a
			size += max(0, a.size())
		}
	}
	return last.Name, last.size() >= 0 && size > maxKept
}

// NewAttachmentReader returns an AttachmentReader for the attachment a with the bytes of r. It checks only digests of
// CouchDB's kind (MD5).
func NewAttachmentReader(a Attachment, r io.Reader) *AttachmentReader {
	reader := &AttachmentReader{Attachment: a, r: r, left: a.size()}
	if sum, ok := md5Sum(a.Digest); ok {
		reader.sum, reader.hash = sum, md5.New()
	}
	return reader
}

// md5Sum returns the sum in a digest of CouchDB's kind. CouchDB says "md5-" for attachments older than its digests.
func md5Sum(digest string) (sum []byte, ok bool) {
	text, ok := strings.CutPrefix(digest, "md5-")
	if !ok {
		return nil, false
	}
	sum, err := base64.StdEncoding.DecodeString(text)
	return sum, err == nil && len(sum) == md5.Size
}

// LeaveDigest makes the reader not compare the bytes with the digest. It must be called before Read. See
// [Database.ChecksDigest].
func (a *AttachmentReader) LeaveDigest() { a.hash = nil }

// Read reads the attachment's bytes.
func (a *AttachmentReader) Read(p []byte) (int, error) {
	n, err := a.read(p)
	if err != nil && err != io.EOF && a.explain != nil {
		err = a.explain(err)
	}
	return n, err
}

func (a *AttachmentReader) read(p []byte) (int, error) {
	if a.left == 0 {
		return 0, a.overrun()
	}
	if a.left > 0 && int64(len(p)) > a.left {
		p = p[:a.left]
	}
	n, err := a.r.Read(p)
	if a.hash != nil {
		_, _ = a.hash.Write(p[:n]) // never fails
	}
	if a.left > 0 {
		a.left -= int64(n)
		if a.expect != nil {
			a.expect(a.left)
		}
	}
	if err == io.EOF && a.left > 0 {
		a.hasOtherSize()
		err = fmt.Errorf("%d bytes are missing: %w", a.left, io.ErrUnexpectedEOF)
	}
	if err == io.EOF && a.left == 0 {
		err = nil // the next call finds the end
	}
	if err == io.EOF {
		err = a.check()
	}
	if err != nil && err != io.EOF && !errors.Is(err, ErrDigest) {
		err = fmt.Errorf("attachment %q: %w", a.Name, err)
	}
	return n, err
}

// overrun checks that there are no more bytes than announced.
func (a *AttachmentReader) overrun() error {
	var one [1]byte
	n, err := io.ReadFull(a.r, one[:])
	switch {
	case n > 0:
		a.hasOtherSize()
		err = fmt.Errorf("attachment %q: %w: more than the announced %d bytes", a.Name, ErrMalformed, a.size())
	case err != io.EOF:
		err = fmt.Errorf("attachment %q: %w", a.Name, err)
	default:
		return a.check()
	}
	return err
}

func (a *AttachmentReader) hasOtherSize() {
	if a.otherSize != nil {
		a.otherSize()
	}
}

// check returns io.EOF if the bytes match the digest.
func (a *AttachmentReader) check() error {
	if a.hash != nil && !bytes.Equal(a.hash.Sum(nil), a.sum) {
		return fmt.Errorf("attachment %q: %w, %w", a.Name, ErrDigest, quoted(a.Digest))
	}
	return io.EOF
}

// Close abandons the unread bytes. Only a reader returned by [Database.Attachment] must be closed.
func (a *AttachmentReader) Close() error {
	if a.end == nil {
		return nil
	}
	return a.end()
}

// Attachment requests one attachment of a document's revision. about describes it as in the document. Its Length is
// checked. Its Encoding is ignored, because the server sends the bytes uncompressed. Its digest is checked only without
// an Encoding, since it covers the stored bytes. CouchDB gives the Encoding only with att_encoding_info.
func (d *Database) Attachment(ctx context.Context, id, rev string, about Attachment) (*AttachmentReader, error) {
	return d.attachment(ctx, id, rev, about.uncompressed(), false)
}

// uncompressed returns the description of the uncompressed bytes. The digest is of the compressed ones.
func (a Attachment) uncompressed() Attachment {
	if a.Encoding != "" {
		a.Encoding, a.EncodedLength, a.Digest = "", -1, ""
	}
	return a
}

// attachment requests an attachment in the encoding of about, which is empty or gzip. If the server, or a proxy before
// it, does not send the bytes as they are stored, attachment fails, or its reader does, and sets unpacks: so later
// leaves describe their attachments as uncompressed.
func (d *Database) attachment(ctx context.Context, id, rev string, about Attachment, noSlot bool) (*AttachmentReader, error) {
	compressed, encoding := about.Encoding != "", cmp.Or(about.Encoding, identityEncoding)
	p, err := d.stream(ctx, &request{
		method: http.MethodGet,
		path:   docPath(id) + "/" + escapeSegment(about.Name),
		query:  url.Values{"rev": {rev}},
		accept: "*/*", encoding: encoding, noSlot: noSlot, flow: new(outbound.Flow),
	})
	if err != nil {
		return nil, err
	}
	if got := cmp.Or(p.header.Get("Content-Encoding"), identityEncoding); got != encoding {
		if compressed {
			d.unpacks.Store(true)
		}
		p.Close()
		return nil, p.fail(fmt.Errorf("%w: attachment %q comes as %w, which was not asked for",
			ErrMalformed, about.Name, quoted(got)))
	}
	a := NewAttachmentReader(about, &explained{p})
	a.end, a.expect = p.Close, p.expect
	if compressed {
		a.otherSize = func() { d.unpacks.Store(true) } // a proxy has compressed them anew
	}
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

// CheckInline returns an error unless the bytes of all attachments are in the document's body, uncompressed, and match
// their digests. The error is [ErrDigest] if they do not match, and otherwise errNotInline.
func (d Document) CheckInline() error {
	return d.eachAttachment(func(a Attachment, _, object []byte) error {
		want, ok := md5Sum(a.Digest)
		if !a.Inline || a.Stub || a.Follows || a.Encoding != "" || !ok {
			return fmt.Errorf("attachment %q: %w", a.Name, errNotInline)
		}
		for m := range jsontext.Members(object) {
			if string(m.Key) != "data" {
				continue
			}
			sum := md5.New()
			n, err := io.Copy(sum, base64.NewDecoder(base64.StdEncoding, textReader(object[m.Value:m.End])))
			if err != nil || a.Length >= 0 && n != a.Length || !bytes.Equal(sum.Sum(nil), want) {
				return fmt.Errorf("attachment %q: %w, %w", a.Name, ErrDigest, quoted(a.Digest))
			}
		}
		return nil
	})
}

// textReader reads the text of a JSON string. For another value it reads bytes that are not base64.
func textReader(raw []byte) io.Reader {
	if end := len(raw) - 1; end > 0 && raw[0] == '"' && jsontext.PastPlain(raw, 1) == end {
		return bytes.NewReader(raw[1:end]) // the usual spelling is not copied
	}
	if text, is := jsontext.String(raw); is {
		return strings.NewReader(text)
	}
	return bytes.NewReader([]byte{0})
}

var errNotInline = errors.New("its bytes are not in the document")
