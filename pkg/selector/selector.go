package selector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// A Selector is a parsed selector.
type Selector struct {
	root node // nil matches every document
}

// Match reports whether a document matches. The document is a JSON object, including _id, _rev
// and other metadata that the selector may use; otherwise Match returns an error. The empty
// selector matches without reading the document.
//
// Match returns [ErrTooMuchWork] if it takes more than [MaxSteps]. If ctx ends, it soon returns
// the cause.
func (s *Selector) Match(ctx context.Context, doc json.RawMessage) (bool, error) {
	if s.root == nil {
		return true, nil
	}
	v, err := decode(doc)
	if err != nil {
		return false, fmt.Errorf("matching a document: %w", err)
	}
	if v.kind() != kindObject {
		return false, errors.New("matching a document: not a JSON object")
	}
	matched, err := newWork(ctx).do(s.root, v)
	if err != nil {
		return false, fmt.Errorf("matching a document: %w", err)
	}
	return matched, nil
}

// An Error says why a text is not a valid selector. Name and Reason are the "error" and "reason"
// of CouchDB's response from _find, with status 400. Its response from _changes has the reason
// and the error "bad_request". Where CouchDB's reason shows a value as an Erlang term, this one
// has its JSON text. $regex or $beginsWith without a string is a bad_arg, not an invalid_operator
// as in CouchDB.
//
//	bad_arg                an operator's argument has the wrong type
//	invalid_operator       the operator is unknown
//	not_supported          the operator is not implemented: $where, $text and the geometric ones
//	invalid_field_name     a field's name has an empty part, such as "a..b"
//	invalid_selector       a condition without a field, more than 100 levels of fields and operators,
//	                       or more than another limit of this package
//	invalid_selector_json  the selector is not an object
//	bad_request            the text is not JSON in UTF-8
type Error struct {
	Name   string
	Reason string
	// Want is what the argument of an operator must be, such as "an array", if Name is bad_arg.
	Want string
}

// Error returns the name and the reason.
func (e *Error) Error() string { return e.Name + ": " + e.Reason }

func badArg(operator string, arg value, want string) *Error {
	return &Error{Name: "bad_arg", Reason: fmt.Sprintf("Bad argument for operator %s: %s", operator, excerpt(arg)), Want: want}
}

// excerpt returns the beginning of a value's text, for a reason.
func excerpt(v value) string {
	const limit = 200 // bytes
	text := v.literal()
	if len(text) <= limit {
		return string(text)
	}
	end := limit
	for text[end]&0xc0 == 0x80 { // inside a character
		end--
	}
	return string(text[:end]) + "..."
}
