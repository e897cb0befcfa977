package selector

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp/syntax"
)

// Compare compares two JSON texts by CouchDB's collation, the order of view keys. Invalid JSON sorts before all JSON.
func Compare(a, b json.RawMessage) int {
	x, errA := decode(a)
	y, errB := decode(b)
	switch {
	case errA != nil && errB != nil:
		return bytes.Compare(a, b)
	case errA != nil:
		return -1
	case errB != nil:
		return 1
	}
	return unlimited().compare(collation, x, y)
}

// Steps returns the steps of a match.
func (s *Selector) Steps(doc json.RawMessage) (int64, error) {
	v, err := decode(doc)
	if err != nil {
		return 0, err
	}
	w := unlimited()
	before := w.left
	_, err = w.do(s.root, v)
	return before - w.left, err
}

// MatchWithin is Match with another limit of steps.
func (s *Selector) MatchWithin(ctx context.Context, steps int64, doc json.RawMessage) (bool, error) {
	v, err := decode(doc)
	if err != nil {
		return false, err
	}
	w := newWork(ctx)
	w.left = steps
	return w.do(s.root, v)
}

// Instructions returns the counted and the actual number of instructions of an expression.
func Instructions(expr string) (counted, compiled int, err error) {
	parts, err := parsePattern(expr)
	if err != nil {
		return 0, 0, err
	}
	for _, part := range parts {
		tree, err := syntax.Parse(part.source, syntax.Perl)
		if err != nil {
			return 0, 0, err
		}
		prog, err := syntax.Compile(tree.Simplify())
		if err != nil {
			return 0, 0, err
		}
		counted += part.instructions
		compiled += len(prog.Inst)
	}
	return counted, compiled, nil
}
