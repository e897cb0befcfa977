package selector

import (
	"context"
	"encoding/json"
	"regexp/syntax"
)

// Steps returns what a match took.
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

// MatchWithin is Match with a budget of its own.
func (s *Selector) MatchWithin(ctx context.Context, steps int64, doc json.RawMessage) (bool, error) {
	v, err := decode(doc)
	if err != nil {
		return false, err
	}
	w := newWork(ctx)
	w.left = steps
	return w.do(s.root, v)
}

// Instructions returns how many instructions an expression counts as, and how
// many it has.
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
