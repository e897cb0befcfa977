package couch

import (
	"html"
	"mime"
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

// plainText returns the text of an error's body, without the markup of a page such as proxies send.
func plainText(contentType string, body []byte) string {
	text := string(body)
	media, _, _ := mime.ParseMediaType(contentType)
	if !strings.Contains(media, "html") && !strings.HasPrefix(strings.TrimSpace(text), "<") {
		return text
	}
	shown := withoutMarkup(text, "head", "script", "style")
	if strings.TrimSpace(shown) == "" {
		shown = withoutMarkup(text, "script", "style") // the title may have text
	}
	return html.UnescapeString(shown)
}

// withoutMarkup replaces each tag, each comment and the named elements with a space.
func withoutMarkup(page string, elements ...string) string {
	lower := strings.ToLower(page)
	if len(lower) != len(page) { // some letters change their length in lower case
		lower = page
	}
	var text strings.Builder
	for at := 0; at < len(page); {
		tag := strings.IndexByte(page[at:], '<')
		if tag < 0 {
			text.WriteString(page[at:])
			break
		}
		text.WriteString(page[at : at+tag])
		text.WriteByte(' ')
		at += tag
		end := ">"
		if strings.HasPrefix(page[at:], "<!--") {
			end = "-->"
		}
		for _, name := range elements {
			if rest, ok := strings.CutPrefix(lower[at:], "<"+name); ok && strings.IndexAny(rest, "> \t\r\n/") == 0 {
				end = "</" + name + ">"
			}
		}
		length := strings.Index(lower[at:], end)
		if length < 0 {
			break // it is cut off
		}
		at += length + len(end)
	}
	return text.String()
}
