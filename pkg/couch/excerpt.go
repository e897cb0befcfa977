package couch

import (
	"fmt"
	"settee/pkg/jsontext"
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
	return jsontext.Cut(s, most) + "..."
}

// shortened returns a text of this client's own, such as an id, so that what follows it in an error is seen.
func shortened(s string) string {
	const most = 300
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > most-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return fmt.Sprintf("%s... (%d bytes)", s[:cut], len(s))
}

// quote is what a server sent, as a part of an error, so that its secrets can be masked before the secrets of the rest.
type quote string

// Error returns the text.
func (q quote) Error() string { return string(q) }

func quoted(text string) quote { return quote(excerpt(text)) }
