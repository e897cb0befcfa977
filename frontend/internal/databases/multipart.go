package databases

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"settee/frontend/internal/web"
	"settee/pkg/docstore"
)

const (
	mixedType   = "multipart/mixed"
	relatedType = "multipart/related"
)

// related is a document as multipart/related: its JSON, and a part for each content that is sent, as it is stored.
type related struct {
	doc      *docstore.Document
	show     shown
	contents contents
	sent     []docstore.Attachment
	boundary string
}

// newRelated returns a document with the contents that are sent.
func newRelated(doc *docstore.Document, show shown, c contents) *related {
	return &related{doc, show, c, c.sent(doc), web.NewUUID()}
}

func (p *related) respond(w http.ResponseWriter, r *http.Request) error {
	var size web.Counter
	skip := func(_ io.Writer, attachment docstore.Attachment) error {
		size += web.Counter(attachment.StoredLength)
		return nil
	}
	if err := p.write(&size, skip); err != nil {
		return err
	}
	web.SetLength(w, int64(size))
	return web.SendBody(w, r, p.contentType(), func(out *web.Stream) error { return p.write(out, p.contents.copy) })
}

func (p *related) contentType() string { return relatedType + `; boundary="` + p.boundary + `"` }

// write writes the document, and calls content for each of its contents.
func (p *related) write(to io.Writer, content func(io.Writer, docstore.Attachment) error) error {
	a := &web.Appender{To: to}
	delimiter := "\r\n--" + p.boundary
	a.Raw(delimiter[len("\r\n"):]).Raw("\r\nContent-Type: application/json\r\n\r\n")
	p.show.document(a, p.doc).Raw(delimiter)
	for _, attachment := range p.sent {
		a.Raw("\r\nContent-Disposition: ").Raw(disposition(attachment.Name))
		a.Raw("\r\nContent-Type: ").Raw(headerText(attachment.Type))
		a.Raw("\r\nContent-Length: ").Number(attachment.StoredLength)
		if attachment.Encoding != "" {
			a.Raw("\r\nContent-Encoding: ").Raw(headerText(attachment.Encoding))
		}
		a.Raw("\r\n\r\n").Do(func(to io.Writer) error { return content(to, attachment) }).Raw(delimiter)
	}
	return a.Raw("--").Err
}

// writePart appends the document as a part of a larger body. With contents the part is multipart/related, and has the
// given headers. Without, it is JSON.
func (p *related) writePart(a *web.Appender, headers string) *web.Appender {
	if len(p.sent) == 0 {
		return p.show.document(a.Raw("\r\nContent-Type: application/json\r\n\r\n"), p.doc)
	}
	return a.Raw(headers).Raw("\r\n\r\n").Do(func(to io.Writer) error { return p.write(to, p.contents.copy) })
}

// disposition returns the Content-Disposition of an attachment (RFC 6266). As in CouchDB the file name is quoted,
// in UTF-8. Quotes and backslashes in it are escaped, and control characters are replaced. A name that readers may
// misunderstand is also there in the form of RFC 8187.
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

// headerText returns a text that a client chose as the value of a header.
func headerText(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return '_'
		}
		return c
	}, text)
}
