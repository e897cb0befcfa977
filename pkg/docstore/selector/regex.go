package selector

import (
	"errors"
	"io"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// pattern is a $regex: a value matches if each part does what it must.
type pattern []*part

type part struct {
	source       string
	instructions int            // that expr has, or more
	expr         *regexp.Regexp // nil until all of a selector's expressions were counted
	must         bool           // match, or not match
}

var (
	lookaround    = regexp.MustCompile(`\(\?<?[=!]`)
	errLookaround = errors.New("of lookaround, only lookahead right behind a leading ^ is supported")
)

// parsePattern reads a regular expression in Perl's syntax. It compiles nothing.
func parsePattern(expr string) (pattern, error) {
	expr = widen(expr)
	whole, err := parseExpr(conjunct{expr, true})
	if err == nil {
		return pattern{whole}, nil
	}
	conjuncts, ok := splitLookahead(expr)
	if !ok {
		if lookaround.MatchString(expr) {
			err = errLookaround
		}
		return nil, err
	}
	var p pattern
	for _, c := range conjuncts {
		part, err := parseExpr(c)
		if err != nil {
			return nil, err
		}
		p = append(p, part)
	}
	return p, nil
}

func (p pattern) matches(w *work, s string) bool {
	for _, part := range p {
		if part.matches(w, s) != part.must {
			return false
		}
	}
	return true
}

// matches says whether the expression matches somewhere in a value. Each of its
// instructions looks at each byte once at most: where that is much, the value is
// handed out byte by byte, so that what is not read need not be paid, and the
// match can end at any of them.
func (p *part) matches(w *work, s string) bool {
	const little = 1 << 16 // steps
	if all := p.instructions * (len(s) + 1); all <= little {
		w.spend(all)
		return p.expr.MatchString(widen(s))
	}
	matched := p.expr.MatchReader(&metered{work: w, rest: s, price: p.instructions})
	w.spend(0) // the reader may have ended early
	return matched
}

// metered reads the bytes of a value as characters, as widen does. Each costs the
// same number of steps. When no steps are left, the value ends.
type metered struct {
	work  *work
	rest  string
	price int
}

var _ io.RuneReader = (*metered)(nil)

// ReadRune implements io.RuneReader.
func (m *metered) ReadRune() (r rune, size int, err error) {
	if m.rest == "" || !m.work.take(m.price) {
		return 0, 0, io.EOF
	}
	r, m.rest = rune(m.rest[0]), m.rest[1:]
	return r, 1, nil
}

// widen makes each byte of a string a character of its own, as CouchDB's
// regular expressions see it.
func widen(s string) string {
	ascii := true
	for i := range len(s) {
		ascii = ascii && s[i] < utf8.RuneSelf
	}
	if ascii {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) * 2)
	for i := range len(s) {
		b.WriteRune(rune(s[i]))
	}
	return b.String()
}

// parseExpr reads what package regexp can express. A $ that stands for the end
// of the text also stands for a newline there.
func parseExpr(c conjunct) (*part, error) {
	tree, err := syntax.Parse(c.expr, syntax.Perl)
	if err != nil {
		return nil, err
	}
	if replaceDollar(tree) {
		c.expr = tree.String()
	}
	const frame = 2 // a program begins with a failure and ends with a match
	return &part{source: c.expr, instructions: frame + instructions(tree), must: c.must}, nil
}

// instructions is how many instructions an expression is compiled to at most.
// What repeats is compiled as often as it may, or must, repeat. The tree of an
// expression is bounded by its length, the numbers are not: package syntax takes
// 1,000 repetitions, nested ones together.
func instructions(tree *syntax.Regexp) int {
	inner := 0
	for _, sub := range tree.Sub {
		inner += instructions(sub)
	}
	switch tree.Op {
	case syntax.OpLiteral:
		return max(1, len(tree.Rune))
	case syntax.OpCapture, syntax.OpStar:
		return inner + 2
	case syntax.OpAlternate:
		return inner + len(tree.Sub)
	case syntax.OpRepeat:
		return max(tree.Min, tree.Max, 1)*(inner+1) + 1
	default:
		return inner + 1
	}
}

// classCost is what the classes of Unicode's characters in an expression add to
// its length: each has up to some hundred ranges as soon as it is parsed.
func classCost(expr string) int {
	const cost = 1000
	return cost * (strings.Count(expr, `\p`) + strings.Count(expr, `\P`))
}

// replaceDollar replaces each $ by an optional newline and the end of the text,
// which differs from Perl's only where the expression goes on to match that
// newline. It says whether there was any.
func replaceDollar(tree *syntax.Regexp) bool {
	if tree.Op == syntax.OpEndText && tree.Flags&syntax.WasDollar != 0 {
		end, err := syntax.Parse(`\n?\z`, syntax.Perl)
		if err != nil {
			panic(err) // the expression is a constant
		}
		*tree = *end
		return true
	}
	found := false
	for _, sub := range tree.Sub {
		found = replaceDollar(sub) || found
	}
	return found
}

// conjunct is the source of a part.
type conjunct struct {
	expr string
	must bool
}

// leadingAnchor is the beginning of an expression that matches at the
// beginning of the text only: not one with the flag m.
var leadingAnchor = regexp.MustCompile(`^((?:\(\?[isU]+\))?)(?:\^|\\A)`)

// splitLookahead takes an expression that begins with an anchor and lookahead
// apart. As all of it looks at the text's beginning, it matches if each
// positive lookahead and the rest match there and no negative one does.
func splitLookahead(expr string) (conjuncts []conjunct, ok bool) {
	anchor := leadingAnchor.FindStringSubmatch(expr)
	if anchor == nil || strings.Contains(expr, `\Q`) { // a quoted parenthesis is none
		return nil, false
	}
	flags, rest := anchor[1], expr[len(anchor[0]):]
	for strings.HasPrefix(rest, "(?=") || strings.HasPrefix(rest, "(?!") {
		end, _, ok := closing(rest, len("(?="))
		if !ok {
			return nil, false
		}
		conjuncts = append(conjuncts, conjunct{flags + "^(?:" + rest[len("(?="):end] + ")", rest[2] == '='})
		rest = rest[end+1:]
	}
	// ^(?!a)b|c is ^(?!a)b or c, which is no conjunction.
	if _, alternation, closed := closing(rest, 0); len(conjuncts) == 0 || closed || alternation {
		return nil, false
	}
	return append(conjuncts, conjunct{flags + "^(?:" + rest + ")", true}), true
}

// closing returns where the parenthesis is that closes the group in which
// expr[i:] stands, and whether there is an alternation at that group's level
// before it. Without such a parenthesis it is not ok.
func closing(expr string, i int) (end int, alternation, ok bool) {
	depth := 0
	for ; i < len(expr); i++ {
		switch expr[i] {
		case '\\':
			i++
		case '[':
			i = classEnd(expr, i)
		case '(':
			depth++
		case ')':
			if depth == 0 {
				return i, alternation, true
			}
			depth--
		case '|':
			alternation = alternation || depth == 0
		}
	}
	return i, alternation, false
}

// classEnd returns where the bracket is that closes the character class at
// expr[i].
func classEnd(expr string, i int) int {
	i++
	if strings.HasPrefix(expr[i:], "^") {
		i++
	}
	named := true // there may be a [:name:]
	for first := i; i < len(expr); i++ {
		switch {
		case expr[i] == '\\':
			i++
		case named && strings.HasPrefix(expr[i:], "[:"):
			n := strings.Index(expr[i:], ":]")
			if named = n >= 0; named {
				i += n + 1
			}
		case expr[i] == ']' && i > first:
			return i
		}
	}
	return i
}
