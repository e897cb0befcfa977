package redact

import (
	"regexp"
	"strings"
)

// userinfo matches from the scheme to the last @ of a URL, because a password that was not
// escaped may have any character. It does not match a URL without a host (pebble:///a@b).
var userinfo = regexp.MustCompile(`(?s)://[^/].*@`)

// Whole returns a text that is one value, such as a setting. If it is a URL, mask replaces the
// part before its host; in a text with several URLs, all up to the last host.
func Whole(text, mask string) string { return userinfo.ReplaceAllLiteralString(text, "://"+mask+"@") }

// Text returns text with the passwords in its URLs masked: in "http://adm:secret@host/db" the
// part "secret" becomes five asterisks, and in "http://token@host/db" the part "token". It is for
// error texts, which quote URLs in many ways, and masks too much rather than too little. A text
// without user names and passwords does not change.
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
			end = 1 // the end of a URL is one byte
			b.WriteString(text[:end])
		default:
			maskWord(&b, text[:end])
		}
		text = text[end:]
	}
	return b.String()
}

const schemeEnd = "://"

// maskWord writes a word to b, with the URLs in it masked.
func maskWord(b *strings.Builder, word string) {
	lastAt := strings.LastIndexByte(word, '@')
	from := 0 // the bytes before it are written
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
	// A port that is not a number is part of a password with a slash.
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
