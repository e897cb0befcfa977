package docstore

import (
	"crypto/md5"
	"encoding/hex"
	"slices"
	"sync"

	"settee/pkg/docstore/internal/revtree"
	"settee/pkg/erlterm"
)

// newRev returns the revision that replaces parent, which is zero for none. CouchDB 3.5 gives the same id to
// the same content: the MD5 of the Erlang term
//
//	[Deleted, Position, ID, Body, [{Name, Type, MD5}, ...]]
//
// Position and ID are the parent's, or 0. The body is what CouchDB's JSON decoder makes of it. The attachments are in
// reverse order, and the MD5 covers the stored bytes. CouchDB compresses attachments of some types when it stores
// them; settee does not, so an edit of such attachments has another id there. If the edit creates a document again after
// its deletion, each attachment is {undefined, undefined, undefined}.
//
// salt is hashed, too. It may be nil.
func newRev(parent Rev, again, deleted bool, body []byte, attachments []Attachment, salt []byte) Rev {
	pooled := terms.Get().(*[]byte)
	term := slices.Grow((*pooled)[:0], len(body)+len(body)/4) // mostly enough
	term = appendRevTerm(term, parent, again, deleted, body, attachments)
	term = append(term, salt...)
	sum := md5.Sum(term)
	if cap(term) <= maxPooledTerm {
		*pooled = term
		terms.Put(pooled)
	}
	return Rev{parent.Pos + 1, hex.EncodeToString(sum[:])}
}

var terms = sync.Pool{New: func() any { return new([]byte) }}

// maxPooledTerm is the size in bytes up to which the buffer of a term is kept for the next one.
const maxPooledTerm = 64 << 10

func appendRevTerm(b []byte, parent Rev, again, deleted bool, body []byte, attachments []Attachment) []byte {
	b = erlterm.AppendList(append(b, erlterm.Version), 5)
	b = erlterm.AppendBool(b, deleted)
	b = erlterm.AppendInteger(b, parent.Pos)
	if parent == (Rev{}) {
		b = erlterm.AppendInteger(b, 0)
	} else {
		raw, _ := revtree.Raw(parent.ID)
		b = erlterm.AppendBinary(b, raw)
	}
	b = erlterm.AppendJSON(b, body)
	if len(attachments) > 0 {
		b = erlterm.AppendList(b, len(attachments))
		for _, a := range slices.Backward(attachments) {
			b = erlterm.AppendTuple(b, 3)
			if again {
				b = erlterm.AppendAtom(erlterm.AppendAtom(erlterm.AppendAtom(b, "undefined"), "undefined"), "undefined")
				continue
			}
			b = erlterm.AppendBinary(b, a.Name)
			b = erlterm.AppendBinary(b, a.Type)
			b = erlterm.AppendBinary(b, a.MD5[:])
		}
	}
	return erlterm.AppendNil(erlterm.AppendNil(b))
}
