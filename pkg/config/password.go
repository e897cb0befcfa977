package config

import (
	"regexp"
	"strings"
)

// PasswordRule is what a new password must be like.
type PasswordRule struct {
	Matches *regexp.Regexp // somewhere in the password
	Reason  string         // for the user whose password does not match; may be empty
}

// A string of Erlang, of which only the escapes of a backslash and of a quotation mark are accepted: others are most
// likely meant for the regular expression, and Erlang reads them as control characters.
const erlangString = `"((?:[^"\\]|\\["\\])*)"`

var (
	passwordRule = regexp.MustCompile(
		`^\s*(?:` + erlangString + `|\{\s*` + erlangString + `\s*(?:,\s*` + erlangString + `\s*)?\})\s*`)
	unescapeErlang = strings.NewReplacer(`\\`, `\`, `\"`, `"`)
)

// passwordRules accepts CouchDB's list of regular expressions, each alone or in a tuple with a reason. The
// expressions have Go's syntax, which has no look-around.
func passwordRules() kind[[]PasswordRule] {
	return kind[[]PasswordRule]{
		want: `a list such as [{".{10,}", "a password has 10 characters or more"}, "[0-9]"], with \\ for a backslash`,
		parse: func(text string) ([]PasswordRule, bool) {
			found, ok := erlangList(text, passwordRule)
			var rules []PasswordRule
			for _, m := range found {
				matches, err := regexp.Compile(unescapeErlang.Replace(m[1] + m[2]))
				if err != nil {
					return nil, false
				}
				rules = append(rules, PasswordRule{matches, unescapeErlang.Replace(m[3])})
			}
			return rules, ok
		},
	}
}
