package replicator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// objectText is the text of a JSON object, which is to be changed without being
// written anew.
type objectText struct {
	text  []byte
	spans []memberSpan
	last  map[string]int // of several members with one name, the one that counts
}

// memberSpan is where a member stands in a text.
type memberSpan struct {
	name       string
	start, end int // from the quote that begins its name to behind its value
	value      int // where its value begins
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
	i := skipSpace(text, 0)
	if text[i] != '{' {
		return nil, &ParseError{Reason: notDocument}
	}
	o := &objectText{text: text, last: map[string]int{}}
	for i = skipSpace(text, i+1); text[i] != '}'; i = skipSpace(text, i) {
		if text[i] == ',' {
			i++
			continue
		}
		span := memberSpan{start: i}
		i = skipString(text, i)
		span.name = memberName(text[span.start:i])
		span.value = skipSpace(text, skipSpace(text, i)+1) // behind the colon
		i = skipValue(text, span.value)
		span.end = i
		o.last[span.name] = len(o.spans)
		o.spans = append(o.spans, span)
	}
	return o, nil
}

// fields returns some of the members, for parsing.
func (o *objectText) fields(names ...string) *fields {
	f := &fields{values: map[string]json.RawMessage{}, first: &firstError{}}
	for _, name := range names {
		if i, there := o.last[name]; there {
			f.values[name] = o.text[o.spans[i].value:o.spans[i].end]
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
	if len(o.spans) > 0 {
		lead = o.text[:o.spans[0].start]
	}
	out := bytes.NewBuffer(make([]byte, 0, len(o.text)+1024))
	for i, span := range o.spans {
		between := o.text[end:span.start]
		end = span.end
		value, changes := values[span.name]
		if changes && (value == nil || i != o.last[span.name]) {
			continue
		}
		if lead != nil {
			between, lead = lead, nil
		}
		if !changes {
			value = o.text[span.value:span.end]
		}
		out.Write(between)
		out.Write(o.text[span.start:span.value])
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

// These go over a text that is valid JSON; i is where something begins, and what
// they return is where it has ended.

func skipSpace(text []byte, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\t' || text[i] == '\r' || text[i] == '\n') {
		i++
	}
	return i
}

func skipString(text []byte, i int) int {
	for i++; text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return i + 1
}

func skipValue(text []byte, i int) int {
	depth := 0
	for {
		switch text[i] {
		case '"':
			i = skipString(text, i)
		case '{', '[':
			depth++
			i++
		case '}', ']':
			depth--
			i++
		case ',', ':', ' ', '\t', '\r', '\n': // inside an object or an array
			i++
		default:
			for i < len(text) && strings.IndexByte(",:]} \t\r\n", text[i]) < 0 {
				i++
			}
		}
		if depth == 0 {
			return i
		}
	}
}

func memberName(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	var name string
	if err := json.Unmarshal(quoted, &name); err != nil {
		panic(fmt.Sprintf("replicator: a member's name in valid JSON: %v", err))
	}
	return name
}

// encodeJSON returns the JSON form of a text, or null.
func encodeJSON[T string | *string | DocumentState](value T) json.RawMessage {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(fmt.Sprintf("replicator: encoding a text: %v", err))
	}
	return bytes.TrimSpace(b.Bytes())
}
