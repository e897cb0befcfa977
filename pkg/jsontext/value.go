package jsontext

import (
	"bytes"
	"encoding/json"
	"iter"
	"unicode/utf8"
)

// The functions of this file read texts that are known to be valid.

// Member is a member of an object. Its indices count the object's bytes.
type Member struct {
	Key        []byte // the name, without its quotes and escapes
	Start, End int    // from the key's quote to the end of the value
	KeyEnd     int    // after the quote that ends the key
	Value      int    // the index of the value
}

// Members yields the members of an object.
func Members(object []byte) iter.Seq[Member] {
	return func(yield func(Member) bool) {
		o := WalkObject(object)
		for o.Name() && o.Pass(valueEnd(object, o.Value)) && yield(o.Member) {
			continue
		}
	}
}

// Elements yields the elements of an array, each with the index in array at which it begins.
func Elements(array []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		for i := PastBlank(array, PastBlank(array, 0)+1); array[i] != ']'; {
			end := valueEnd(array, i)
			if !yield(i, array[i:end]) {
				return
			}
			if i = PastBlank(array, end); array[i] == ',' {
				i = PastBlank(array, i+1)
			}
		}
	}
}

// IsObject reports whether text is an object.
func IsObject(text []byte) bool {
	i := PastBlank(text, 0)
	return i < len(text) && text[i] == '{'
}

// String returns the text of a string, and false if raw is another value. raw has no white space around it.
func String(raw []byte) (text string, is bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), true
	}
	var escaped string // a variable of its own: it is allocated
	err := json.Unmarshal(raw, &escaped)
	return escaped, err == nil
}

// AppendString appends the text of a string, in UTF-8.
func AppendString(b, raw []byte) []byte {
	for i := 1; ; {
		escape := bytes.IndexByte(raw[i:], '\\')
		if escape < 0 {
			return append(b, raw[i:len(raw)-1]...)
		}
		b = append(b, raw[i:i+escape]...)
		r, size := decodeEscape(raw[i+escape:], AnySurrogates)
		b = utf8.AppendRune(b, r)
		i += escape + size
	}
}

// IsArray reports whether text is an array.
func IsArray(text []byte) bool {
	i := PastBlank(text, 0)
	return i < len(text) && text[i] == '['
}

// Strings returns the elements of an array of strings, and false if raw is another value.
func Strings(raw []byte) (texts []string, are bool) {
	if !IsArray(raw) {
		return nil, false
	}
	for _, element := range Elements(raw) {
		text, is := String(element)
		if !is {
			return nil, false
		}
		texts = append(texts, text)
	}
	return texts, true
}

// Token is a number, a string, a word, or a bracket. Commas and colons are not tokens.
type Token struct {
	Kind       byte // the first byte: '{', '}', '[', ']', '"', 't', 'f', 'n'; '0' for every number
	Start, End int  // in the text
}

// Tokens reads the tokens of a text, one by one. The names of members are tokens like other strings.
type Tokens struct {
	text []byte
	at   int
}

// ReadTokens returns the tokens of a text.
func ReadTokens(text []byte) *Tokens { return &Tokens{text: text} }

// Next returns the next token, and false after the last.
func (t *Tokens) Next() (Token, bool) {
	for t.at < len(t.text) && (isBlank(t.text[t.at]) || t.text[t.at] == ',' || t.text[t.at] == ':') {
		t.at++
	}
	if t.at == len(t.text) {
		return Token{}, false
	}
	token := Token{Kind: t.text[t.at], Start: t.at}
	switch token.Kind {
	case '{', '}', '[', ']':
		token.End = t.at + 1
	case '"':
		token.End = stringEnd(t.text, t.at+1)
	default:
		token.End = bareEnd(t.text, t.at)
		if token.Kind == '-' || isDigit(token.Kind) {
			token.Kind = '0'
		}
	}
	t.at = token.End
	return token, true
}
