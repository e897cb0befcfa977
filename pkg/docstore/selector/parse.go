package selector

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"
)

// Parse parses a selector. It keeps no reference to text. Its errors are of type *Error.
func Parse(text json.RawMessage) (*Selector, error) {
	if len(text) > MaxBytes {
		return nil, tooLarge("Selector has more than %d bytes.", MaxBytes)
	}
	v, err := decode(bytes.Clone(text))
	if err != nil {
		return nil, &Error{"bad_request", err.Error()}
	}
	if v.kind() != kindObject {
		return nil, &Error{"invalid_selector_json", "Selector must be a JSON object, not: " + excerpt(v)}
	}
	p := parser{free: unlimited()}
	if len(p.free.members(v)) == 0 {
		return &Selector{}, nil
	}
	root, err := p.parse(v, position{})
	if err != nil {
		return nil, err
	}
	root = pushNegations(root)
	if f, ok := root.(field); ok && f.path.name == "" {
		return nil, &Error{"invalid_selector", "One or more conditions is missing a field name."}
	}
	// Compile only after all expressions were counted.
	for _, part := range p.parts {
		if part.expr, err = regexp.Compile(part.source); err != nil {
			return nil, &Error{"bad_arg", "Bad argument for operator $regex: " + err.Error()}
		}
	}
	return &Selector{root: root}, nil
}

// parser counts the parts of a selector against the limits.
type parser struct {
	free         *work // without a limit, because the selector is small
	nodes        int
	nameBytes    int // of fields
	exprBytes    int // of expressions
	instructions int
	parts        []*part // of expressions, not compiled yet
}

// node counts a part of the selector.
func (p *parser) node() error {
	if p.nodes++; p.nodes > MaxNodes {
		return tooLarge("Selector has more than %d fields and operators.", MaxNodes)
	}
	return nil
}

// position is a position in a selector.
type position struct {
	path  path
	depth int
	outer order // of inner fields, except _id
}

// order returns the order of the conditions on the field.
func (at position) order() order {
	if at.path.name == "_id" {
		return termOrder
	}
	return at.outer
}

// below returns the next level on the same field.
func (at position) below() position {
	at.depth++
	return at
}

// field returns the next level on an inner field.
func (p *parser) field(at position, name string) (position, error) {
	var err error
	if at.path, err = at.path.join(name); err != nil {
		return at, err
	}
	if p.nameBytes += len(at.path.name); p.nameBytes > MaxBytes {
		return at, tooLarge("The field names of the selector have more than %d bytes, each with those above it.", MaxBytes)
	}
	return at.below(), nil
}

// parse parses the value of a field: a selector, operators, or a value.
func (p *parser) parse(v value, at position) (node, error) {
	if at.depth > maxDepth {
		return nil, tooLarge("Selector is nested more than %d levels deep.", maxDepth)
	}
	if v.kind() != kindObject {
		return field{at.path, at.equal(v)}, nil
	}
	members := p.free.members(v)
	switch len(members) {
	case 0:
		return field{at.path, at.equal(v)}, nil
	case 1:
		return p.parseMember(members[0], at)
	}
	all := make(allOf, 0, min(len(members), MaxNodes))
	for _, m := range members {
		n, err := p.parseMember(m, at)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

// parseMember parses one member of an object: an operator with its argument, or a field with its
// condition.
func (p *parser) parseMember(m member, at position) (node, error) {
	if err := p.node(); err != nil {
		return nil, err
	}
	if !strings.HasPrefix(m.key, "$") {
		below, err := p.field(at, m.key)
		if err != nil {
			return nil, err
		}
		return p.parse(m.value, below)
	}
	switch m.key {
	case "$and", "$or", "$nor":
		return p.parseCombination(m, at)
	case "$not":
		if m.value.kind() != kindObject {
			return nil, badArg(m.key, m.value)
		}
		n, err := p.parse(m.value, at.below())
		return not{n}, err
	case "$elemMatch", "$allMatch", "$keyMapMatch":
		return p.parseQuantifier(m, at)
	}
	cond, err := p.parseCondition(m.key, m.value, at)
	if err != nil {
		return nil, err
	}
	return field{at.path, cond}, nil
}

func (p *parser) parseCombination(m member, at position) (node, error) {
	if m.value.kind() != kindArray {
		return nil, badArg(m.key, m.value)
	}
	var subs []node
	for e := range m.value.elements {
		if err := p.node(); err != nil {
			return nil, err
		}
		n, err := p.parse(e, at.below())
		if err != nil {
			return nil, err
		}
		subs = append(subs, n)
	}
	switch {
	case m.key == "$or":
		return anyOf(subs), nil
	case m.key == "$nor" && len(subs) > 0:
		return not{anyOf(subs)}, nil
	default:
		return allOf(subs), nil
	}
}

// parseQuantifier parses $elemMatch, $allMatch and $keyMapMatch. Paths in their selector begin at
// the element.
func (p *parser) parseQuantifier(m member, at position) (node, error) {
	if m.value.kind() != kindObject {
		return nil, badArg(m.key, m.value)
	}
	sub, err := p.parse(m.value, position{depth: at.depth + 1, outer: at.order()})
	if err != nil {
		return nil, err
	}
	switch m.key {
	case "$elemMatch":
		return field{at.path, elemMatch{sub}}, nil
	case "$allMatch":
		return field{at.path, allMatch{sub}}, nil
	default:
		return field{at.path, keyMapMatch{sub}}, nil
	}
}

// parseCondition parses an operator on a single value.
func (p *parser) parseCondition(operator string, arg value, at position) (node, error) {
	o := at.order()
	switch operator {
	case "$lt":
		return comparison{order: o, arg: arg, less: true}, nil
	case "$lte":
		return comparison{order: o, arg: arg, less: true, equal: true}, nil
	case "$eq":
		return at.equal(arg), nil
	case "$ne":
		return comparison{order: o, arg: arg, less: true, greater: true}, nil
	case "$gte":
		return comparison{order: o, arg: arg, equal: true, greater: true}, nil
	case "$gt":
		return comparison{order: o, arg: arg, greater: true}, nil
	case "$in", "$nin":
		if arg.kind() != kindArray {
			return nil, badArg(operator, arg)
		}
		n := newIn(o, arg)
		n.negated = operator == "$nin"
		return n, nil
	case "$regex":
		return p.parseRegex(operator, arg)
	case "$where", "$geoWithin", "$geoIntersects", "$near", "$nearSphere", "$text":
		return nil, &Error{"not_supported", "Unsupported operator: " + operator}
	}
	read, known := conditions[operator]
	if !known {
		return nil, &Error{"invalid_operator", "Invalid operator: " + operator}
	}
	return read(operator, arg)
}

func (at position) equal(arg value) node { return comparison{order: at.order(), arg: arg, equal: true} }

// conditions parses the operators whose argument must have a certain type.
var conditions = map[string]func(operator string, arg value) (node, error){
	"$all":        parseAll,
	"$exists":     parseExists,
	"$type":       parseType,
	"$size":       parseSize,
	"$mod":        parseMod,
	"$beginsWith": parseBeginsWith,
}

func parseAll(operator string, arg value) (node, error) {
	if arg.kind() != kindArray {
		return nil, badArg(operator, arg)
	}
	return containsAll(arg.list()), nil
}

func parseExists(operator string, arg value) (node, error) {
	switch arg.kind() {
	case kindTrue:
		return exists(true), nil
	case kindFalse:
		return exists(false), nil
	default:
		return nil, badArg(operator, arg)
	}
}

func parseType(operator string, arg value) (node, error) {
	if arg.kind() != kindString {
		return nil, badArg(operator, arg)
	}
	return ofType(unlimited().str(arg)), nil
}

func parseSize(operator string, arg value) (node, error) {
	if arg.kind() != kindNumber || !isInteger(arg.literal()) {
		return nil, badArg(operator, arg)
	}
	n, err := strconv.ParseInt(string(arg.literal()), 10, 64)
	if err != nil && n > 0 {
		n = math.MaxInt64 // no array is that long
	}
	if n < 0 {
		return nil, badArg(operator, arg)
	}
	return ofSize(n), nil
}

func parseMod(operator string, arg value) (node, error) {
	if arg.kind() != kindArray || arg.length() != 2 {
		return nil, badArg(operator, arg)
	}
	var numbers [2]big.Int
	for i, e := range arg.list() {
		text := e.literal()
		if e.kind() != kindNumber || !isInteger(text) {
			return nil, badArg(operator, arg)
		}
		if len(bytes.TrimPrefix(text, []byte("-"))) > MaxDigits {
			bad := badArg(operator, arg)
			bad.Reason += fmt.Sprintf(" (an integer of more than %d digits)", MaxDigits)
			return nil, bad
		}
		numbers[i].SetString(string(text), 10)
	}
	if numbers[0].Sign() == 0 {
		return nil, badArg(operator, arg)
	}
	return mod{divisor: &numbers[0], remainder: &numbers[1]}, nil
}

func (p *parser) parseRegex(operator string, arg value) (node, error) {
	if arg.kind() != kindString {
		return nil, badArg(operator, arg)
	}
	expr := p.free.str(arg)
	if p.exprBytes += len(expr) + classCost(expr); p.exprBytes > MaxInstructions {
		return nil, tooLarge("The $regex expressions of the selector have more than %d bytes together.", MaxInstructions)
	}
	parts, err := parsePattern(expr)
	if err != nil {
		bad := badArg(operator, arg)
		bad.Reason += " (" + err.Error() + ")"
		return nil, bad
	}
	for _, part := range parts {
		p.instructions += part.instructions
	}
	if p.instructions > MaxInstructions {
		return nil, tooLarge("The $regex expressions of the selector have more than %d instructions together.", MaxInstructions)
	}
	p.parts = append(p.parts, parts...)
	return matching{parts}, nil
}

func parseBeginsWith(operator string, arg value) (node, error) {
	if arg.kind() != kindString {
		return nil, badArg(operator, arg)
	}
	return beginsWith(unlimited().str(arg)), nil
}
