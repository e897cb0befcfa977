package jsontext

import (
	"strings"
	"unicode/utf8"
)

// Cut returns at most limit bytes of a text, in whole characters. U+FFFD replaces what is not UTF-8, which JSON cannot have.
func Cut(text string, limit int) string {
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	if len(text) <= limit {
		return text
	}
	for !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}
