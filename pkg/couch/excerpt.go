package couch

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// excerpt converts a server's text into one short printable line.
func excerpt(s string) string {
	const most = 200
	s = strings.ToValidUTF8(s, "?")
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool {
		// Format characters can change the direction of the line.
		return unicode.IsSpace(r) || unicode.IsControl(r) || unicode.Is(unicode.Cf, r)
	}), " ")
	if len(s) <= most {
		return s
	}
	cut := most
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}

// quote is what a server sent, as a part of an error, so that its secrets can be masked before the secrets of the rest.
type quote string

// Error returns the text.
func (q quote) Error() string { return string(q) }

func quoted(text string) quote { return quote(excerpt(text)) }
