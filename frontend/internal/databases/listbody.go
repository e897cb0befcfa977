package databases

import (
	"bytes"
	"net/http"

	"settee/frontend/internal/web"
	"settee/pkg/jsontext"
)

// maxListBody is the size of the largest body of a request for many documents, in bytes: some hundred thousand ids.
// The body is in memory while the documents are sent.
const maxListBody = 8 << 20

// readListBody reads the body of a request for many documents: a JSON object.
func (e *Endpoints) readListBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	limit := web.Limit{Bytes: maxListBody, Words: " (of a list of documents; longer ones can be asked for in several requests)"}
	text, err := web.ReadNeededJSON(w, r, e.Settings.Current(), limit)
	if err != nil {
		return nil, err
	}
	return bytes.TrimSpace(text), web.RequireObject(text)
}

// readList is readListBody for a body with a list as its member name. missing and other are the reasons that a body
// without the member, or with another value in it, is refused with.
func (e *Endpoints) readList(w http.ResponseWriter, r *http.Request, name, missing, other string) (*jsonList, error) {
	body, err := e.readListBody(w, r)
	if err != nil {
		return nil, err
	}
	reason := missing
	var list *jsonList
	for m := range jsontext.Members(body) {
		if string(m.Key) == name {
			list, _ = newJSONList(body[m.Value:m.End])
			reason = other
		}
	}
	if list == nil {
		return nil, web.BadRequest(reason)
	}
	return list, nil
}

// jsonList is a JSON list of which only the ends of its elements are kept.
type jsonList struct {
	text []byte
	ends []int32
}

// newJSONList returns the elements of a JSON value that is known to be valid, and false if
// it is no list.
func newJSONList(text []byte) (*jsonList, bool) {
	if len(text) == 0 || text[0] != '[' {
		return nil, false
	}
	list := &jsonList{text: text}
	for at, element := range jsontext.Elements(text) {
		list.ends = append(list.ends, int32(at+len(element)))
	}
	return list, true
}

func (l *jsonList) len() int { return len(l.ends) }

// at returns an element, which is part of the text.
func (l *jsonList) at(i int) []byte {
	begin := int32(1) // behind the bracket
	if i > 0 {
		begin = l.ends[i-1]
	}
	return bytes.TrimLeft(l.text[begin:l.ends[i]], ", \t\r\n")
}
