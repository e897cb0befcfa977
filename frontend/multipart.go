package frontend

import (
	"crypto/rand"
	"encoding/hex"
	"io"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"settee/pkg/docstore"
)

const (
	mixedType   = "multipart/mixed"
	relatedType = "multipart/related"
)

// newBoundary returns 32 hexadecimal digits that no content has by chance.
func newBoundary() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// related is a document as multipart/related: its JSON, and a part for each content that
// is sent, as it is stored.
type related struct {
	doc      *docstore.Document
	show     shown
	contents contents
	sent     []docstore.Attachment
	boundary string
}

// newRelated returns a document of which at least one content is sent.
func newRelated(doc *docstore.Document, show shown, c contents) *related {
	return &related{doc, show, c, c.sent(doc), newBoundary()}
}

func (p *related) respond(w http.ResponseWriter, r *http.Request) error {
	var size counter
	skip := func(_ io.Writer, attachment docstore.Attachment) error {
		size += counter(attachment.StoredLength)
		return nil
	}
	if err := p.write(&size, skip); err != nil {
		return err
	}
	setLength(w, int64(size))
	return sendBody(w, r, p.contentType(), func(out *stream) error { return p.write(out, p.contents.copy) })
}

func (p *related) contentType() string { return relatedType + `; boundary="` + p.boundary + `"` }

// write writes the document, and content writes its contents.
func (p *related) write(to io.Writer, content func(io.Writer, docstore.Attachment) error) error {
	a := &appender{to: to}
	delimiter := "\r\n--" + p.boundary
	a.raw(delimiter[len("\r\n"):]).raw("\r\nContent-Type: application/json\r\n\r\n").document(p.doc, p.show).raw(delimiter)
	for _, attachment := range p.sent {
		a.raw("\r\nContent-Disposition: ").raw(disposition(attachment.Name))
		a.raw("\r\nContent-Type: ").raw(headerText(attachment.Type))
		a.raw("\r\nContent-Length: ").number(attachment.StoredLength)
		if attachment.Encoding != "" {
			a.raw("\r\nContent-Encoding: ").raw(headerText(attachment.Encoding))
		}
		a.raw("\r\n\r\n")
		if a.err == nil {
			a.err = content(to, attachment)
		}
		a.raw(delimiter)
	}
	return a.raw("--").err
}

// disposition returns the Content-Disposition of an attachment (RFC 6266). As in CouchDB the file
// name is between quotes, in UTF-8. Quotes and backslashes in it are escaped, and control
// characters are replaced. What readers may not understand so is also in the form of RFC 8187.
func disposition(name string) string {
	plain := headerText(name)
	text := `attachment; filename="` + quotedPairs.Replace(plain) + `"`
	isASCII := !strings.ContainsFunc(plain, func(c rune) bool { return c > unicode.MaxASCII })
	if plain == name && isASCII {
		return text
	}
	return text + "; filename*=UTF-8''" + strings.ReplaceAll(url.QueryEscape(name), "+", "%20")
}

var quotedPairs = strings.NewReplacer(`"`, `\"`, `\`, `\\`)

// headerText returns what a header of a part may hold of a text that a client chose.
func headerText(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return '_'
		}
		return c
	}, text)
}
