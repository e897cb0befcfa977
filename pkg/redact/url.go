package redact

import (
	"regexp"
	"strings"
)

// userinfo is what stands between the scheme and the host of a URL. It reaches to the
// last @, since a password that was not escaped may hold any character; a URL without
// a host (pebble:///a@b) has none.
var userinfo = regexp.MustCompile(`(?s)://[^/].*@`)

// Whole returns a text that is one value, such as a setting: if that is a URL, with mask
// for all that stands before its host, or before the last of several.
func Whole(text, mask string) string { return userinfo.ReplaceAllLiteralString(text, "://"+mask+"@") }

// Text returns text with the passwords in its URLs masked: in
// "http://adm:secret@host/db" the part "secret" becomes five asterisks, and in
// "http://token@host/db" the part "token" does. It is meant for error texts,
// which quote URLs in many ways, and masks too much rather than too little. A
// text without user names and passwords comes back as it is.
func Text(text string) string {
	if !strings.Contains(text, schemeEnd) {
		return text
	}
	var b strings.Builder
	for text != "" {
		end := strings.IndexFunc(text, endsURL)
		switch {
		case end < 0:
			maskWord(&b, text)
			return b.String()
		case end == 0:
			end = 1 // what ends a URL is one byte long
			b.WriteString(text[:end])
		default:
			maskWord(&b, text[:end])
		}
		text = text[end:]
	}
	return b.String()
}

const schemeEnd = "://"

// maskWord writes a word, which may have URLs in it, to b.
func maskWord(b *strings.Builder, word string) {
	lastAt := strings.LastIndexByte(word, '@')
	from := 0 // what is before it is written
	for from <= lastAt {
		i := strings.Index(word[from:], schemeEnd)
		if i < 0 {
			break
		}
		start := from + i + len(schemeEnd)
		b.WriteString(word[from:start])
		from = start
		if at := userinfoEnd(word, start, lastAt); at >= 0 {
			b.WriteString(maskUserinfo(word[start:at]))
			from = at
		}
	}
	b.WriteString(word[from:])
}

// userinfoEnd returns the index of the @ that ends the user name and password
// which begin at start, or -1. lastAt is the last @ of the word.
func userinfoEnd(word string, start, lastAt int) int {
	authority := word[start:]
	if end := strings.IndexAny(authority, "/?#"); end >= 0 {
		authority = authority[:end]
	}
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		return start + at
	}
	// What stands where a port does but is no number is a password with a slash
	// in it.
	colon := strings.IndexByte(authority, ':')
	if colon >= 0 && authority[0] != '[' && !isNumber(authority[colon+1:]) && lastAt >= start {
		return lastAt
	}
	return -1
}

func endsURL(r rune) bool {
	return r <= ' ' || strings.ContainsRune("\"`<>", r)
}

func isNumber(text string) bool {
	return strings.Trim(text, "0123456789") == ""
}

func maskUserinfo(userinfo string) string {
	if user, _, found := strings.Cut(userinfo, ":"); found {
		return user + ":" + Mask
	}
	return Mask
}
