package selector

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"settee/pkg/jsontext"
)

// Normal returns a selector as CouchDB's query engine normalises it, which replication ids cover:
//
//   - Several members of one object become an $and of objects with one member, in their order. A
//     bare value becomes $eq.
//   - Each field's name, joined with the names above it by dots, stands directly above an operator.
//   - $not and $nor are pushed to the values, where most operators have an opposite.
//
// $and keeps the order of the members it was made of. Therefore selectors with another order of
// keys have different normal forms, as in CouchDB.
//
// Normal accepts more than [Parse], because a source may be a CouchDB: $text, any regular
// expression, any name of a field, and any depth. It keeps no reference to text. Its errors are of
// type *Error.
func Normal(text json.RawMessage) (json.RawMessage, error) {
	r := reader{text: true}
	root, err := r.read(text)
	switch {
	case err != nil:
		return nil, err
	case root == nil:
		return json.RawMessage("{}"), nil
	case r.written > maxNormalNames:
		return nil, tooLarge("The field names of the normalised selector have more than %d bytes.", maxNormalNames)
	}
	return root.appendJSON(nil), nil
}

// condition is a part of a selector: an operator with its argument, and the field that it applies to.
type condition struct {
	operator string
	field    string      // joined with the names above it; "" is the document, or the element of a quantifier
	parts    []condition // of $and, $or and $nor; one of $not, $elemMatch, $allMatch and $keyMapMatch
	arg      value       // of every other operator
	negated  bool        // a $not stands between the field and the operator
}

// normal returns the condition with its negations pushed to the values. This defines what they mean
// for a missing field: not (a = 1) becomes a != 1, which requires a. Negations below $elemMatch,
// $allMatch and $keyMapMatch stay where they are.
func (c condition) normal() (condition, error) {
	switch c.operator {
	case "$not":
		return c.parts[0].opposite()
	case "$nor":
		return c.each("$and", condition.opposite)
	case "$and", "$or":
		return c.each(c.operator, condition.normal)
	}
	return c, nil
}

// opposites maps an operator to the operator with the same argument that negates it.
var opposites = map[string]string{
	"$lt": "$gte", "$gte": "$lt",
	"$lte": "$gt", "$gt": "$lte",
	"$eq": "$ne", "$ne": "$eq",
	"$in": "$nin", "$nin": "$in",
}

// opposite returns the normal form of the condition's negation.
func (c condition) opposite() (condition, error) {
	switch c.operator {
	case "$not":
		return c.parts[0].normal()
	case "$nor":
		return c.each("$or", condition.normal)
	case "$and":
		return c.each("$or", condition.opposite)
	case "$or":
		return c.each("$and", condition.opposite)
	case "$text":
		return c, &Error{Name: "invalid_selector", Reason: "$text must not be negated."}
	case "$exists":
		c.arg = boolean(c.arg.kind() != kindTrue)
		return c, nil
	}
	if opposite, has := opposites[c.operator]; has {
		c.operator = opposite
	} else {
		c.negated = true
	}
	return c, nil
}

// each returns a combination of what step makes of the parts.
func (c condition) each(operator string, step func(condition) (condition, error)) (condition, error) {
	parts := make([]condition, len(c.parts))
	for i, part := range c.parts {
		var err error
		if parts[i], err = step(part); err != nil {
			return condition{}, err
		}
	}
	return condition{operator: operator, parts: parts}, nil
}

func (c condition) appendJSON(b []byte) []byte {
	switch c.operator {
	case "$and", "$or", "$nor":
		b = append(append(b, `{"`...), c.operator+`":[`...)
		for i, part := range c.parts {
			if i > 0 {
				b = append(b, ',')
			}
			b = part.appendJSON(b)
		}
		return append(b, "]}"...)
	case "$not":
		return append(c.parts[0].appendJSON(append(b, `{"$not":`...)), '}')
	case "$text":
		return append(append(append(b, `{"$default":{"$text":`...), c.arg.literal()...), "}}"...)
	}
	name, err := jsontext.Encode(c.field)
	if err != nil {
		panic(fmt.Sprintf("selector: encoding a text: %v", err))
	}
	b = append(append(append(b, '{'), name...), ':')
	end := "}}"
	if c.negated {
		b, end = append(b, `{"$not":`...), "}}}"
	}
	b = append(append(b, `{"`...), c.operator+`":`...)
	if c.parts != nil {
		b = c.parts[0].appendJSON(b)
	} else {
		b = append(b, c.arg.literal()...)
	}
	return append(b, end...)
}

// reader reads a selector as conditions, and counts them against the limits.
type reader struct {
	text bool // whether $text may be used

	nodes     int
	nameBytes int // of fields, each with the names above it
	written   int // bytes of the names above operators
	deepest   int // levels
}

// read returns the normal form of a selector, or nil if it is empty.
func (r *reader) read(text json.RawMessage) (*condition, error) {
	if len(text) > MaxBytes {
		return nil, tooLarge("Selector has more than %d bytes.", MaxBytes)
	}
	v, err := decode(bytes.Clone(text))
	if err != nil {
		return nil, &Error{Name: "bad_request", Reason: err.Error()}
	}
	if v.kind() != kindObject {
		return nil, &Error{Name: "invalid_selector_json", Reason: "Selector must be a JSON object, not: " + excerpt(v)}
	}
	if v.entry().next == v.index+1 {
		return nil, nil
	}
	c, err := r.value(v, position{})
	if err != nil {
		return nil, err
	}
	if c, err = c.normal(); err != nil {
		return nil, err
	}
	switch c.operator {
	case "$and", "$or", "$text":
	default:
		if c.field == "" {
			return nil, &Error{Name: "invalid_selector", Reason: "One or more conditions is missing a field name."}
		}
	}
	return &c, nil
}

// position is a position in a selector.
type position struct {
	field string // joined with the names above it
	depth int
}

// below returns the next level on the same field.
func (at position) below() position { return position{at.field, at.depth + 1} }

// node counts a field, an operator, or an element.
func (r *reader) node() error {
	if r.nodes++; r.nodes > MaxNodes {
		return tooLarge("Selector has more than %d fields and operators.", MaxNodes)
	}
	return nil
}

// value reads the value of a field: a selector, operators, or a value.
func (r *reader) value(v value, at position) (condition, error) {
	r.deepest = max(r.deepest, at.depth)
	if v.kind() != kindObject {
		return r.condition("$eq", v, at), nil
	}
	members := unlimited().members(v)
	switch len(members) {
	case 0:
		return r.condition("$eq", v, at), nil
	case 1:
		return r.member(members[0], at)
	}
	all := condition{operator: "$and", parts: make([]condition, 0, min(len(members), MaxNodes))}
	for _, m := range members {
		c, err := r.member(m, at)
		if err != nil {
			return condition{}, err
		}
		all.parts = append(all.parts, c)
	}
	return all, nil
}

func (r *reader) condition(operator string, arg value, at position) condition {
	r.written += len(at.field)
	return condition{operator: operator, field: at.field, arg: arg}
}

// member reads one member of an object: an operator with its argument, or a field with its
// condition.
func (r *reader) member(m member, at position) (condition, error) {
	if err := r.node(); err != nil {
		return condition{}, err
	}
	if !strings.HasPrefix(m.key, "$") {
		below := at.below()
		if below.field = m.key; at.field != "" {
			below.field = at.field + "." + m.key
		}
		if r.nameBytes += len(below.field); r.nameBytes > MaxBytes {
			return condition{}, tooLarge("The field names of the selector have more than %d bytes, each with those above it.", MaxBytes)
		}
		return r.value(m.value, below)
	}
	switch m.key {
	case "$and", "$or", "$nor":
		return r.combination(m, at)
	case "$not", "$elemMatch", "$allMatch", "$keyMapMatch":
		return r.inner(m, at)
	case "$text", "$default":
		if r.text {
			return r.textSearch(m, at)
		}
	}
	if err := checkArgument(m.key, m.value); err != nil {
		return condition{}, err
	}
	return r.condition(m.key, m.value, at), nil
}

func (r *reader) combination(m member, at position) (condition, error) {
	if m.value.kind() != kindArray {
		return condition{}, badArg(m.key, m.value, "an array")
	}
	all := condition{operator: m.key}
	for e := range m.value.elements {
		if err := r.node(); err != nil {
			return condition{}, err
		}
		c, err := r.value(e, at.below())
		if err != nil {
			return condition{}, err
		}
		all.parts = append(all.parts, c)
	}
	return all, nil
}

// inner reads the operators with one selector. In $elemMatch, $allMatch and $keyMapMatch the names
// of fields begin at the element.
func (r *reader) inner(m member, at position) (condition, error) {
	if m.value.kind() != kindObject {
		return condition{}, badArg(m.key, m.value, "an object")
	}
	c, below := condition{operator: m.key}, at.below()
	if m.key != "$not" {
		c, below.field = r.condition(m.key, value{}, at), ""
	}
	sub, err := r.value(m.value, below)
	c.parts = []condition{sub}
	return c, err
}

// textSearch reads $text, which CouchDB's normal form has as {"$default": {"$text": …}}.
func (r *reader) textSearch(m member, at position) (condition, error) {
	misplaced := &Error{Name: "invalid_selector", Reason: "$text must be at the top of the selector."}
	arg := m.value
	if m.key == "$default" {
		if arg.kind() != kindObject {
			return condition{}, misplaced
		}
		members := unlimited().members(arg)
		if len(members) != 1 || members[0].key != "$text" {
			return condition{}, misplaced
		}
		arg = members[0].value
	}
	switch arg.kind() {
	case kindNull, kindArray, kindObject:
		return condition{}, badArg("$text", arg, "a string, a number or a boolean")
	}
	if at.field != "" {
		return condition{}, misplaced
	}
	return r.condition("$text", arg, at), nil
}

// checkArgument checks the argument of an operator that contains no selectors.
func checkArgument(operator string, arg value) error {
	ok, want := true, ""
	switch operator {
	case "$lt", "$lte", "$eq", "$ne", "$gte", "$gt":
	case "$in", "$nin", "$all":
		ok, want = arg.kind() == kindArray, "an array"
	case "$exists":
		ok, want = arg.kind() == kindTrue || arg.kind() == kindFalse, "a boolean"
	case "$type", "$regex", "$beginsWith":
		ok, want = arg.kind() == kindString, "a string"
	case "$mod":
		ok, want = arg.kind() == kindArray, "an array of two integers"
		if ok {
			numbers := arg.list()
			ok = len(numbers) == 2 && numbers[0].isInteger() && numbers[1].isInteger()
		}
	case "$size":
		ok, want = arg.isInteger() && (arg.literal()[0] != '-' || string(arg.literal()) == "-0"), "an integer of 0 or more"
	case "$where", "$geoWithin", "$geoIntersects", "$near", "$nearSphere", "$text":
		return &Error{Name: "not_supported", Reason: "Unsupported operator: " + operator}
	default:
		return &Error{Name: "invalid_operator", Reason: "Invalid operator: " + operator}
	}
	if !ok {
		return badArg(operator, arg, want)
	}
	return nil
}
