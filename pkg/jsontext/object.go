package jsontext

import "bytes"

// Object walks over the members of an object whose text was not checked before, and checks them on the way. More text
// may follow the object.
//
//	o := WalkObject(b)
//	for o.Name() && o.Check() {
//		use(o.Key, b[o.Value:o.End])
//	}
//	end := o.Over()
type Object struct {
	Member // the current one

	text []byte
	next int // the index of the next member, or of the bracket that ends the object
	bad  int // NotJSON or NotWhole if the text is wrong, otherwise 0
}

// WalkObject returns a walk over the object at the beginning of b.
func WalkObject(b []byte) Object {
	o := Object{text: b, next: PastBlank(b, PastBlank(b, 0)+1)}
	if o.next == len(b) {
		o.bad = NotWhole
	}
	return o
}

// Name goes to the next member, and returns false after the last one, or where the text is wrong. The caller has to
// call Check or Pass before it calls Name again.
func (o *Object) Name() bool {
	b, i := o.text, o.next
	switch {
	case o.bad != 0 || b[i] == '}':
		return false
	case b[i] != '"':
		return o.fail(NotJSON)
	}
	end := checkString(b, i+1)
	if end < 0 {
		return o.fail(end)
	}
	o.Start, o.KeyEnd, o.Key = i, end, b[i+1:end-1]
	if i = PastBlank(b, end); i == len(b) {
		return o.fail(NotWhole)
	}
	if b[i] != ':' {
		return o.fail(NotJSON)
	}
	o.Value = PastBlank(b, i+1)
	if bytes.IndexByte(o.Key, '\\') >= 0 {
		text, _ := String(b[o.Start:o.KeyEnd])
		o.Key = []byte(text)
	}
	return true
}

// Special is Name for the next member whose name begins with an underscore or with an escape, which may stand for an
// underscore. It checks the members that it skips.
func (o *Object) Special() bool {
	if o.bad == 0 && o.text[o.next] != '}' {
		switch next, found := walk(o.text, o.next, 0, true); {
		case next < 0:
			return o.fail(next)
		case found:
			o.next = next
		default:
			o.next = next - 1
		}
	}
	return o.Name()
}

// Check checks the value of the current member, and returns false if it is wrong.
func (o *Object) Check() bool { return o.Pass(checkValue(o.text, o.Value, 1)) }

// Pass is Check for a value that the caller has checked: end is the index after it, or NotJSON or NotWhole.
func (o *Object) Pass(end int) bool {
	if end < 0 {
		return o.fail(end)
	}
	o.End = end
	i := PastBlank(o.text, end)
	switch {
	case i == len(o.text):
		return o.fail(NotWhole)
	case o.text[i] == ',':
		if i = PastBlank(o.text, i+1); i == len(o.text) {
			return o.fail(NotWhole)
		}
		if o.text[i] == '}' {
			return o.fail(NotJSON)
		}
	case o.text[i] != '}':
		return o.fail(NotJSON)
	}
	o.next = i
	return true
}

func (o *Object) fail(bad int) bool {
	o.bad = bad
	return false
}

// Over returns the index after the object, or NotJSON or NotWhole if the text is wrong. It is called after Name has
// returned false.
func (o *Object) Over() int {
	if o.bad != 0 {
		return o.bad
	}
	return o.next + 1
}
