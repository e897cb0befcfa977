package selector

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// maxDepth bounds the levels of fields and operators, and with them the time
// that a selector of some length takes to parse and to match. Values that are
// compared may nest deeper.
const maxDepth = 100

// Parse reads a selector. It keeps no reference to the text. Its errors are of
// type *Error.
func Parse(text json.RawMessage) (*Selector, error) {
	v, err := decode(bytes.Clone(text))
	if err != nil {
		return nil, &Error{"bad_request", err.Error()}
	}
	if v.kind() != kindObject {
		return nil, &Error{"invalid_selector_json", "Selector must be a JSON object, not: " + excerpt(v)}
	}
	if len(v.members()) == 0 {
		return &Selector{}, nil
	}
	root, err := parse(v, path{}, 0)
	if err != nil {
		return nil, err
	}
	root = settle(root)
	if f, ok := root.(field); ok && f.path.name == "" {
		return nil, &Error{"invalid_selector", "One or more conditions is missing a field name."}
	}
	return &Selector{root: root}, nil
}

// parse reads what stands below a field: a selector, operators, or a value.
func parse(v value, at path, depth int) (node, error) {
	if depth > maxDepth {
		return nil, &Error{"invalid_selector", fmt.Sprintf("Selector is nested more than %d levels deep.", maxDepth)}
	}
	if v.kind() != kindObject {
		return field{at, equal(v)}, nil
	}
	members := v.members()
	switch len(members) {
	case 0:
		return field{at, equal(v)}, nil
	case 1:
		return parseMember(members[0], at, depth)
	}
	all := make(allOf, 0, len(members))
	for _, m := range members {
		n, err := parseMember(m, at, depth)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

// parseMember reads one member of an object: an operator with its argument, or
// a field with its condition.
func parseMember(m member, at path, depth int) (node, error) {
	if !strings.HasPrefix(m.key, "$") {
		below, err := at.join(m.key)
		if err != nil {
			return nil, err
		}
		return parse(m.value, below, depth+1)
	}
	switch m.key {
	case "$and", "$or", "$nor":
		return parseCombination(m, at, depth)
	case "$not":
		if m.value.kind() != kindObject {
			return nil, badArg(m.key, m.value)
		}
		n, err := parse(m.value, at, depth+1)
		return not{n}, err
	case "$elemMatch", "$allMatch", "$keyMapMatch":
		return parseQuantifier(m, at, depth)
	}
	cond, err := parseCondition(m.key, m.value)
	if err != nil {
		return nil, err
	}
	return field{at, cond}, nil
}

func parseCombination(m member, at path, depth int) (node, error) {
	if m.value.kind() != kindArray {
		return nil, badArg(m.key, m.value)
	}
	var subs []node
	for e := range m.value.elements {
		n, err := parse(e, at, depth+1)
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

// parseQuantifier reads $elemMatch and the like. Their selector is about an
// element, so paths begin anew in it.
func parseQuantifier(m member, at path, depth int) (node, error) {
	if m.value.kind() != kindObject {
		return nil, badArg(m.key, m.value)
	}
	sub, err := parse(m.value, path{}, depth+1)
	if err != nil {
		return nil, err
	}
	switch m.key {
	case "$elemMatch":
		return field{at, elemMatch{sub}}, nil
	case "$allMatch":
		return field{at, allMatch{sub}}, nil
	default:
		return field{at, keyMapMatch{sub}}, nil
	}
}

// parseCondition reads an operator that is about a single value.
func parseCondition(operator string, arg value) (node, error) {
	switch operator {
	case "$lt":
		return comparison{arg: arg, less: true}, nil
	case "$lte":
		return comparison{arg: arg, less: true, equal: true}, nil
	case "$eq":
		return equal(arg), nil
	case "$ne":
		return comparison{arg: arg, less: true, greater: true}, nil
	case "$gte":
		return comparison{arg: arg, equal: true, greater: true}, nil
	case "$gt":
		return comparison{arg: arg, greater: true}, nil
	case "$where", "$geoWithin", "$geoIntersects", "$near", "$nearSphere", "$text":
		return nil, &Error{"not_supported", "Unsupported operator: " + operator}
	}
	read, known := conditions[operator]
	if !known {
		return nil, &Error{"invalid_operator", "Invalid operator: " + operator}
	}
	return read(operator, arg)
}

func equal(arg value) node { return comparison{arg: arg, equal: true} }

// conditions reads the operators whose argument must be of some kind.
var conditions = map[string]func(operator string, arg value) (node, error){
	"$in":         parseIn,
	"$nin":        parseIn,
	"$all":        parseAll,
	"$exists":     parseExists,
	"$type":       parseType,
	"$size":       parseSize,
	"$mod":        parseMod,
	"$regex":      parseRegex,
	"$beginsWith": parseBeginsWith,
}

func parseIn(operator string, arg value) (node, error) {
	if arg.kind() != kindArray {
		return nil, badArg(operator, arg)
	}
	return in{args: arg.list(), negated: operator == "$nin"}, nil
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
	return ofType(arg.str()), nil
}

func parseSize(operator string, arg value) (node, error) {
	if arg.kind() != kindNumber || !isInteger(arg.literal()) {
		return nil, badArg(operator, arg)
	}
	n, err := strconv.ParseInt(string(arg.literal()), 10, 64)
	if err != nil && n > 0 {
		n = math.MaxInt64 // no array is that long, nor longer
	}
	if n < 0 {
		return nil, badArg(operator, arg)
	}
	return ofSize(n), nil
}

func parseMod(operator string, arg value) (node, error) {
	const mostDigits = 1000 // reading more takes too long
	if arg.kind() != kindArray || arg.length() != 2 {
		return nil, badArg(operator, arg)
	}
	var numbers [2]big.Int
	for i, e := range arg.list() {
		text := e.literal()
		if e.kind() != kindNumber || !isInteger(text) || len(text) > mostDigits {
			return nil, badArg(operator, arg)
		}
		numbers[i].SetString(string(text), 10)
	}
	if numbers[0].Sign() == 0 {
		return nil, badArg(operator, arg)
	}
	return mod{divisor: &numbers[0], remainder: &numbers[1]}, nil
}

func parseRegex(operator string, arg value) (node, error) {
	if arg.kind() != kindString {
		return nil, badArg(operator, arg)
	}
	p, err := compilePattern(arg.str())
	if err != nil {
		bad := badArg(operator, arg)
		bad.Reason += " (" + err.Error() + ")"
		return nil, bad
	}
	return matching{p}, nil
}

func parseBeginsWith(operator string, arg value) (node, error) {
	if arg.kind() != kindString {
		return nil, badArg(operator, arg)
	}
	return beginsWith(arg.str()), nil
}
