package selector

import (
	"errors"
	"io"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// pattern is a $regex. It matches if each part does what must says.
type pattern []*part

type part struct {
	source       string
	instructions int            // an upper bound of the instructions of expr
	expr         *regexp.Regexp // nil until all expressions of the selector are counted
	must         bool           // whether it must match, or must not
}

var (
	lookaround    = regexp.MustCompile(`\(\?<?[=!]`)
	errLookaround = errors.New("lookaround is only supported as lookahead directly after a leading ^")
)

// parsePattern parses a regular expression in Perl's syntax, without compiling it.
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

// matches reports whether the expression matches somewhere in a value. Each instruction reads
// each byte at most once. If that may be expensive, the value is read byte by byte, so that only
// bytes that are read cost steps and the match can end at any byte.
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

// metered reads the bytes of a value as characters, as widen returns them. Each costs the same
// number of steps. The value ends when no steps are left.
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

// widen makes each byte of a string a character, because CouchDB's regular expressions match
// bytes.
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

// parseExpr parses an expression for package regexp. A $ for the end of the text also matches
// before a newline at the end.
func parseExpr(c conjunct) (*part, error) {
	tree, err := syntax.Parse(c.expr, syntax.Perl)
	if err != nil {
		return nil, err
	}
	if replaceDollar(tree) {
		c.expr = tree.String()
	}
	const frame = 2 // the failure at the start and the match at the end of a program
	return &part{source: c.expr, instructions: frame + instructions(tree), must: c.must}, nil
}

// instructions returns an upper bound of the number of instructions that an expression compiles
// to. Repeated parts are compiled as often as they repeat. The length of an expression bounds its
// tree but not the number of repetitions, which package syntax bounds by 1,000.
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

// classCost is what Unicode classes add to the length of an expression: each expands to hundreds
// of ranges when it is parsed.
func classCost(expr string) int {
	const cost = 1000
	return cost * (strings.Count(expr, `\p`) + strings.Count(expr, `\P`))
}

// replaceDollar replaces each $ by an optional newline and the end of the text, and reports
// whether there was any. That differs from Perl only if the expression goes on to match the
// newline.
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

// leadingAnchor matches the start of an expression that matches only at the beginning of the
// text, so not with the flag m.
var leadingAnchor = regexp.MustCompile(`^((?:\(\?[isU]+\))?)(?:\^|\\A)`)

// splitLookahead splits an expression that begins with an anchor and lookahead into conjuncts.
// All of them are anchored, so the expression matches if each positive lookahead and the rest
// match, and no negative lookahead does.
func splitLookahead(expr string) (conjuncts []conjunct, ok bool) {
	anchor := leadingAnchor.FindStringSubmatch(expr)
	if anchor == nil || strings.Contains(expr, `\Q`) { // parentheses may be quoted
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
	// ^(?!a)b|c is ^(?!a)b or c, which is not a conjunction.
	if _, alternation, closed := closing(rest, 0); len(conjuncts) == 0 || closed || alternation {
		return nil, false
	}
	return append(conjuncts, conjunct{flags + "^(?:" + rest + ")", true}), true
}

// closing returns the index of the parenthesis that closes the group around expr[i:], and whether
// that group has an alternation before it. ok is false if there is no such parenthesis.
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

// classEnd returns the index of the bracket that closes the character class at expr[i].
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
