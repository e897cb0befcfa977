package migrate

import (
	"regexp"
	"strings"
)

// Portion selects documents of each database for a call. The zero Portion selects all.
type Portion struct {
	ids   *regexp.Regexp // nil means all
	limit int            // 0 means all
}

// NewPortion returns the Portion of the documents whose ids match a pattern, in which * means any text and ? any
// character. An empty pattern matches all ids. limit is the most documents of a database that a call stops, or
// that a plan looks at; 0 means all.
func NewPortion(pattern string, limit int) Portion {
	p := Portion{limit: limit}
	if pattern != "" {
		text := strings.NewReplacer(`\*`, `.*`, `\?`, `.`).Replace(regexp.QuoteMeta(pattern))
		p.ids = regexp.MustCompile(`(?s)^` + text + `$`)
	}
	return p
}

// selects reports whether a document is selected, if the limit allows it.
func (p Portion) selects(id string) bool { return p.ids == nil || p.ids.MatchString(id) }

// rest returns how many of n documents may be taken, after taken ones.
func (p Portion) rest(taken, n int) int {
	if p.limit == 0 {
		return n
	}
	return min(n, max(0, p.limit-taken))
}
