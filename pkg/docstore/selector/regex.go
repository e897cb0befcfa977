package selector

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// pattern is a compiled $regex: a value matches if each part does what it must.
type pattern []part

type part struct {
	expr *regexp.Regexp
	must bool // match, or not match
}

var (
	lookaround    = regexp.MustCompile(`\(\?<?[=!]`)
	errLookaround = errors.New("of lookaround, only lookahead right behind a leading ^ is supported")
)

// compilePattern reads a regular expression in Perl's syntax.
func compilePattern(expr string) (pattern, error) {
	expr = widen(expr)
	whole, err := compileExpr(expr)
	if err == nil {
		return pattern{{whole, true}}, nil
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
		compiled, err := compileExpr(c.expr)
		if err != nil {
			return nil, err
		}
		p = append(p, part{compiled, c.must})
	}
	return p, nil
}

func (p pattern) matches(s string) bool {
	s = widen(s)
	for _, part := range p {
		if part.expr.MatchString(s) != part.must {
			return false
		}
	}
	return true
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

// compileExpr compiles what package regexp can express. A $ that stands for
// the end of the text also stands for a newline there.
func compileExpr(expr string) (*regexp.Regexp, error) {
	tree, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil, err
	}
	if replaceDollar(tree) {
		expr = tree.String()
	}
	return regexp.Compile(expr)
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
	for first := i; i < len(expr); i++ {
		switch {
		case expr[i] == '\\':
			i++
		case strings.HasPrefix(expr[i:], "[:"):
			if n := strings.Index(expr[i:], ":]"); n >= 0 {
				i += n + 1
			}
		case expr[i] == ']' && i > first:
			return i
		}
	}
	return i
}
