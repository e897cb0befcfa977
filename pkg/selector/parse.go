package selector

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strconv"
)

// Parse parses a selector. It keeps no reference to text. Its errors are of type *Error.
func Parse(text json.RawMessage) (*Selector, error) {
	r := reader{}
	normal, err := r.read(text)
	if err != nil {
		return nil, err
	}
	if r.deepest > maxDepth {
		return nil, tooLarge("Selector is nested more than %d levels deep.", maxDepth)
	}
	if normal == nil {
		return &Selector{}, nil
	}
	c := compiler{free: unlimited()}
	root, err := c.compile(*normal, collation)
	if err != nil {
		return nil, err
	}
	// Compile only after all expressions were counted.
	for _, part := range c.parts {
		if part.expr, err = regexp.Compile(part.source); err != nil {
			return nil, &Error{Name: "bad_arg", Reason: "Bad argument for operator $regex: " + err.Error()}
		}
	}
	return &Selector{root: root}, nil
}

// compiler makes nodes of conditions. It counts regular expressions against the limits.
type compiler struct {
	free         *work // without a limit, because the selector is small
	exprBytes    int   // of expressions
	instructions int
	parts        []*part // of expressions, not compiled yet
}

// compile makes a node of a condition. outer is the order of all fields except _id.
func (c *compiler) compile(from condition, outer order) (node, error) {
	switch from.operator {
	case "$and":
		nodes, err := c.all(from.parts, outer)
		return allOf(nodes), err
	case "$or":
		nodes, err := c.all(from.parts, outer)
		return anyOf(nodes), err
	case "$nor":
		nodes, err := c.all(from.parts, outer)
		if len(nodes) == 0 {
			return allOf(nil), err
		}
		return not{anyOf(nodes)}, err
	case "$not":
		n, err := c.compile(from.parts[0], outer)
		return not{n}, err
	}
	path, err := parsePath(from.field)
	if err != nil {
		return nil, err
	}
	if path.name == "_id" {
		outer = termOrder
	}
	n, err := c.onValue(from, outer)
	if err != nil {
		return nil, err
	}
	if from.negated {
		n = not{n}
	}
	return field{path, n}, nil
}

func (c *compiler) all(parts []condition, outer order) ([]node, error) {
	nodes := make([]node, len(parts))
	for i, part := range parts {
		var err error
		if nodes[i], err = c.compile(part, outer); err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

// onValue makes a node of an operator on the value of a field. The reader has checked the type of
// its argument.
func (c *compiler) onValue(from condition, o order) (node, error) {
	arg := from.arg
	switch from.operator {
	case "$elemMatch", "$allMatch", "$keyMapMatch":
		return c.quantifier(from, o)
	case "$lt":
		return comparison{order: o, arg: arg, less: true}, nil
	case "$lte":
		return comparison{order: o, arg: arg, less: true, equal: true}, nil
	case "$eq":
		return comparison{order: o, arg: arg, equal: true}, nil
	case "$ne":
		return comparison{order: o, arg: arg, less: true, greater: true}, nil
	case "$gte":
		return comparison{order: o, arg: arg, equal: true, greater: true}, nil
	case "$gt":
		return comparison{order: o, arg: arg, greater: true}, nil
	case "$in", "$nin":
		n := newIn(o, arg)
		n.negated = from.operator == "$nin"
		return n, nil
	case "$all":
		return containsAll(arg.list()), nil
	case "$exists":
		return exists(arg.kind() == kindTrue), nil
	case "$type":
		return ofType(c.free.str(arg)), nil
	case "$size":
		n, err := strconv.ParseInt(string(arg.literal()), 10, 64)
		if err != nil {
			n = math.MaxInt64 // no array is that long
		}
		return ofSize(n), nil
	case "$mod":
		return compileMod(arg)
	case "$regex":
		return c.regex(arg)
	case "$beginsWith":
		return beginsWith(c.free.str(arg)), nil
	}
	panic("selector: no node for operator " + from.operator)
}

func (c *compiler) quantifier(from condition, o order) (node, error) {
	sub, err := c.compile(from.parts[0], o)
	if err != nil {
		return nil, err
	}
	switch from.operator {
	case "$elemMatch":
		return elemMatch{sub}, nil
	case "$allMatch":
		return allMatch{sub}, nil
	default:
		return keyMapMatch{sub}, nil
	}
}

func compileMod(arg value) (node, error) {
	const want = "an array of two integers, the first one not 0"
	var numbers [2]big.Int
	for i, e := range arg.list() {
		text := e.literal()
		if len(bytes.TrimPrefix(text, []byte("-"))) > MaxDigits {
			bad := badArg("$mod", arg, want)
			bad.Reason += fmt.Sprintf(" (an integer of more than %d digits)", MaxDigits)
			return nil, bad
		}
		numbers[i].SetString(string(text), 10)
	}
	if numbers[0].Sign() == 0 {
		return nil, badArg("$mod", arg, want)
	}
	return mod{divisor: &numbers[0], remainder: &numbers[1]}, nil
}

func (c *compiler) regex(arg value) (node, error) {
	expr := c.free.str(arg)
	if c.exprBytes += len(expr) + classCost(expr); c.exprBytes > MaxInstructions {
		return nil, tooLarge("The $regex expressions of the selector have more than %d bytes together.", MaxInstructions)
	}
	parts, err := parsePattern(expr)
	if err != nil {
		bad := badArg("$regex", arg, "a regular expression")
		bad.Reason += " (" + err.Error() + ")"
		return nil, bad
	}
	for _, part := range parts {
		c.instructions += part.instructions
	}
	if c.instructions > MaxInstructions {
		return nil, tooLarge("The $regex expressions of the selector have more than %d instructions together.", MaxInstructions)
	}
	c.parts = append(c.parts, parts...)
	return matching{parts}, nil
}
