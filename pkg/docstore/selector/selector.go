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

// Match says whether a document matches. The document is a JSON object, with
// its _id, _rev and whatever else of its metadata the selector may ask for; it
// is an error if it is none. The empty selector does not look at it.
//
// A match that takes more than [MaxSteps] ends with [ErrTooMuchWork], and one
// whose context ends soon ends with that context's cause.
func (s *Selector) Match(ctx context.Context, doc json.RawMessage) (bool, error) {
	if s.root == nil {
		return true, nil
	}
	v, err := decode(doc)
	if err != nil {
		return false, fmt.Errorf("matching a document: %w", err)
	}
	if v.kind() != kindObject {
		return false, errors.New("matching a document: it is no JSON object")
	}
	matched, err := newWork(ctx).do(s.root, v)
	if err != nil {
		return false, fmt.Errorf("matching a document: %w", err)
	}
	return matched, nil
}

// An Error says why a text is no selector. Name and Reason are the "error" and
// "reason" of CouchDB's answer from _find, whose status is 400; its answer from
// _changes has the reason and the error "bad_request". Where CouchDB's reason
// shows a value as an Erlang term, this one has its JSON text; and $regex or
// $beginsWith with no string is a bad_arg, not an invalid_operator.
//
//	bad_arg                an operator's argument is of the wrong kind
//	invalid_operator       there is no such operator
//	not_supported          an operator that is known and not implemented: $where, $text and those of geometry
//	invalid_field_name     a field's name has an empty part, as "a..b" has
//	invalid_selector       a condition without a field, more than 100 levels of fields and operators,
//	                       or more than one of the limits of this package
//	invalid_selector_json  the selector is no object
//	bad_request            the text is no JSON in UTF-8
type Error struct {
	Name   string
	Reason string
}

// Error is the name and the reason.
func (e *Error) Error() string { return e.Name + ": " + e.Reason }

func badArg(operator string, arg value) *Error {
	return &Error{"bad_arg", fmt.Sprintf("Bad argument for operator %s: %s", operator, excerpt(arg))}
}

// excerpt is the beginning of a value's text, for a reason.
func excerpt(v value) string {
	const most = 200 // bytes
	text := v.literal()
	if len(text) <= most {
		return string(text)
	}
	end := most
	for text[end]&0xc0 == 0x80 { // inside a character
		end--
	}
	return string(text[:end]) + "..."
}
