package databases

import (
	"context"
	"io"
	"net/http"

	"settee/frontend/internal/web"
	"settee/pkg/budget"
	"settee/pkg/docstore"
)

const (
	// largeBody is the size in bytes from which on the body of a document is sent from the store in pieces. What a smaller
	// one needs is part of the cost of a connection.
	largeBody = 32 << 10
	// pieceCost is the number of bytes of memory that a request takes to send a large body: a piece, and its copies.
	pieceCost = 512 << 10
	// pageCost is the same for a page of documents, and the pieces of a large one.
	pageCost = 2 << 20
	// rowsCost is the same for a page of rows without documents.
	rowsCost = 256 << 10
	// contentCost is the same for a content of an attachment.
	contentCost = 2 << 20
	// wholeCost is the number of bytes of memory that one byte of a document costs that has to be in memory as a whole: its
	// body, its JSON, and the copies of a function or of a transaction.
	wholeCost = 4
)

// documentCost returns the number of bytes of memory that sending a document takes, with the contents of its attachments
// or without.
func documentCost(doc *docstore.Document, contents bool) int64 {
	switch {
	case contents && len(doc.Attachments) > 0:
		return contentCost
	case doc.Size >= largeBody:
		return pieceCost
	}
	return 0
}

// bodies reads the large bodies of the documents of a database.
type bodies struct {
	ctx context.Context
	db  *docstore.Database
}

// writeMembers writes the members of a document's body on one line: clients read listings and feeds line by line. Each
// begins after before, which is not written if there is no member.
func (b bodies) writeMembers(to io.Writer, doc *docstore.Document, before string) error {
	if doc.Body == nil && doc.Size > 0 {
		members := &memberWriter{to: to, before: before}
		_, err := io.Copy(members, b.db.ReadBody(b.ctx, doc))
		return contentFailure(err)
	}
	members := bodyMembers(doc.Body)
	if len(members) == 0 {
		return nil
	}
	if _, err := io.WriteString(to, before); err != nil {
		return err
	}
	_, err := to.Write(members)
	return err
}

// memberWriter writes what is between the braces of a JSON object that is written to it, without the white space between
// its tokens.
type memberWriter struct {
	to     io.Writer
	before string // written before the first member
	begun  bool
	depth  int
	quoted bool // within a string
	escape bool // after a backslash in a string
	out    []byte
}

// Write implements io.Writer.
func (m *memberWriter) Write(text []byte) (int, error) {
	m.out = m.out[:0]
	for _, c := range text {
		if m.keeps(c) {
			m.out = append(m.out, c)
		}
	}
	if len(m.out) == 0 {
		return len(text), nil
	}
	if !m.begun {
		m.begun = true
		if _, err := io.WriteString(m.to, m.before); err != nil {
			return 0, err
		}
	}
	_, err := m.to.Write(m.out)
	return len(text), err
}

// keeps reports whether the next byte is part of a member.
func (m *memberWriter) keeps(c byte) bool {
	if m.quoted {
		m.quoted = c != '"' || m.escape
		m.escape = c == '\\' && !m.escape
		return true
	}
	switch c {
	case ' ', '\t', '\r', '\n':
		return false
	case '"':
		m.quoted = true
	case '{', '[':
		m.depth++
		return m.depth > 1
	case '}', ']':
		m.depth--
		return m.depth > 0
	}
	return true
}

// load reads the body of a document that was read without it, for a reader that needs all of it. The caller gives back the
// bytes that are returned when it has dropped the document.
func (b bodies) load(memory web.Memory, doc *docstore.Document) (bytes int64, err error) {
	if doc.Body != nil || doc.Size == 0 {
		return 0, nil
	}
	bytes = doc.Size * wholeCost
	if err := memory.Take(b.ctx, bytes, budget.Most); err != nil {
		return 0, err
	}
	body := make([]byte, doc.Size)
	if _, err := io.ReadFull(b.db.ReadBody(b.ctx, doc), body); err != nil {
		memory.Give(bytes)
		return 0, contentFailure(err)
	}
	doc.Body = body
	return bytes, nil
}

// takeMemory takes memory for a request until it ends.
func takeMemory(r *http.Request, bytes int64) error {
	return web.MemoryOf(r).Take(r.Context(), bytes, budget.All)
}
