package couch

import (
	"html"
	"mime"
	"strings"
	"unicode"
	"unicode/utf8"
)

// excerpt makes one short printable line of what a server said.
func excerpt(s string) string {
	const most = 200
	s = strings.ToValidUTF8(s, "?")
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool {
		// Characters of no width can turn the line around on the reader's screen.
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

// plainText is the text of an error's body: of a page, which proxies send, what a reader would see.
func plainText(contentType string, body []byte) string {
	text := string(body)
	media, _, _ := mime.ParseMediaType(contentType)
	if !strings.Contains(media, "html") && !strings.HasPrefix(strings.TrimSpace(text), "<") {
		return text
	}
	shown := withoutMarkup(text, "head", "script", "style")
	if strings.TrimSpace(shown) == "" {
		shown = withoutMarkup(text, "script", "style") // there may be a title
	}
	return html.UnescapeString(shown)
}

// withoutMarkup puts a space in place of each tag, of each comment, and of some elements as a whole.
func withoutMarkup(page string, elements ...string) string {
	lower := strings.ToLower(page)
	if len(lower) != len(page) { // some letters change their length with their case
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
