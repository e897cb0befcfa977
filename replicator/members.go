package replicator

import (
	"bytes"
	"encoding/json"
	"fmt"

	"settee/pkg/jsontext"
)

// objectText is the text of a JSON object, which is to be changed without being
// written anew.
type objectText struct {
	text    []byte
	members []jsontext.Member
	last    map[string]int // of several members with one name, the one that counts
}

// edit says what a member is to be; a value of nil takes it away.
type edit struct {
	name  string
	value json.RawMessage
}

// splitObject finds the members of a document. The error is the *ParseError that
// parsing it would give.
func splitObject(text []byte) (*objectText, error) {
	if !validJSON(text) {
		return nil, errInvalidJSON()
	}
	if !jsontext.IsObject(text) {
		return nil, &ParseError{Reason: notDocument}
	}
	return newObjectText(text), nil
}

// newObjectText is splitObject for a text that is known to be an object.
func newObjectText(text []byte) *objectText {
	o := &objectText{text: text, last: map[string]int{}}
	for m := range jsontext.Members(text) {
		o.last[string(m.Key)] = len(o.members)
		o.members = append(o.members, m)
	}
	return o
}

// fields returns some of the members, for parsing.
func (o *objectText) fields(names ...string) *fields {
	f := newFields(map[string]json.RawMessage{})
	for _, name := range names {
		if i, there := o.last[name]; there {
			f.values[name] = o.text[o.members[i].Value:o.members[i].End]
		}
	}
	return f
}

// edited returns the text with some members changed, and with every other byte as
// it was. A member that is there already is changed in its place; new ones come
// last, in the order of the edits. An edited member is left only once.
func (o *objectText) edited(edits []edit) []byte {
	values := make(map[string]json.RawMessage, len(edits))
	for _, e := range edits {
		values[e.name] = e.value
	}
	// What stands before the first member stays before the first one that is left;
	// what stands between two goes with the second.
	end := bytes.IndexByte(o.text, '{') + 1
	lead := o.text[:end]
	if len(o.members) > 0 {
		lead = o.text[:o.members[0].Start]
	}
	out := bytes.NewBuffer(make([]byte, 0, len(o.text)+1024))
	for i, m := range o.members {
		between := o.text[end:m.Start]
		end = m.End
		value, changes := values[string(m.Key)]
		if changes && (value == nil || i != o.last[string(m.Key)]) {
			continue
		}
		if lead != nil {
			between, lead = lead, nil
		}
		if !changes {
			value = o.text[m.Value:m.End]
		}
		out.Write(between)
		out.Write(o.text[m.Start:m.Value])
		out.Write(value)
	}
	for _, e := range edits {
		if _, there := o.last[e.name]; there || e.value == nil {
			continue
		}
		between := []byte(",")
		if lead != nil {
			between, lead = lead, nil
		}
		fmt.Fprintf(out, "%s%s:%s", between, encodeJSON(e.name), e.value)
	}
	out.Write(lead)
	out.Write(o.text[end:])
	return out.Bytes()
}

// encodeJSON returns the JSON form of a text, or null.
func encodeJSON[T string | *string | DocumentState](value T) json.RawMessage {
	text, err := jsontext.Encode(value)
	if err != nil {
		panic(fmt.Sprintf("replicator: encoding a text: %v", err))
	}
	return text
}
