package redact

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// minLength is the least length in bytes of a secret. Shorter ones are part of many words, and
	// masking those would reveal the secret.
	minLength = 4
	// minLong is the length in bytes from which on a secret is not part of a text by chance.
	minLong = 16
)

// Set is a set of known secrets, to be masked in texts. The zero value is empty. A Set is
// immutable and safe for concurrent use.
//
// A secret may also be a word of a text by chance: with the password "pass", the text "Name or
// *****word is incorrect" would reveal it. So there are two methods. [Set.Said] is for what a
// server said, before it becomes part of another text, and leaves it out if masking reveals a
// secret. [Set.Text] is for texts that were composed, and masks only what cannot be there by
// chance.
//
// The secrets are behind a function so that printing a Set never shows them: fmt does not call
// the methods of unexported fields, and follows pointers for verbs that do not fit.
type Set struct{ of func() known }

type known struct {
	plain []string // as they are
	spelt []string // in all spellings, the longest first
	shown []string // texts whose parts are no secrets to a reader
}

func (s Set) known() known {
	if s.of == nil {
		return known{}
	}
	return s.of()
}

// With returns the set with more secrets. It ignores secrets of less than four bytes. Thousands of runs keep sets, most of
// which have the same secrets for several endpoints: a set has each once, and no room for more.
func (s Set) With(secrets ...string) Set {
	now := s.known()
	before := len(now.plain)
	now.plain, now.spelt = slices.Clone(now.plain), slices.Clone(now.spelt)
	for _, secret := range secrets {
		if len(secret) >= minLength && !slices.Contains(now.plain, secret) {
			now.plain = append(now.plain, secret)
			now.spelt = append(now.spelt, spellings(secret)...)
		}
	}
	if len(now.plain) == before {
		return s
	}
	slices.SortFunc(now.spelt, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	now.spelt = slices.Clone(slices.Compact(now.spelt))
	return Set{func() known { return now }}
}

// Beside returns the set for texts that are shown beside others, such as a user name and the URL
// of a database. A secret that is part of one of these is not masked in composed texts, because
// that would show that it is one.
func (s Set) Beside(shown ...string) Set {
	now := s.known()
	shown = slices.DeleteFunc(slices.Clone(shown), func(text string) bool {
		return len(text) < minLength || slices.Contains(now.shown, text)
	})
	if len(shown) == 0 {
		return s
	}
	now.shown = slices.Concat(now.shown, shown)
	return Set{func() known { return now }}
}

// WithBasic returns the set with a password, and with its basic authentication token, however
// short the password is.
func (s Set) WithBasic(username, password string) Set {
	return s.With(password, BasicToken(username, password))
}

// WithHeader returns the set with the value of a header, unless the header never has secrets. The
// values of cookies, and the part after a scheme such as Bearer, are added too.
func (s Set) WithHeader(name, value string) Set {
	name = strings.ToLower(name)
	if slices.Contains(harmless, name) {
		return s
	}
	secrets := []string{value}
	if _, rest, found := strings.Cut(value, " "); found {
		secrets = append(secrets, strings.TrimSpace(rest))
	}
	if name == "cookie" {
		for pair := range strings.SplitSeq(value, ";") {
			_, part, _ := strings.Cut(pair, "=")
			secrets = append(secrets, strings.TrimSpace(part))
		}
	}
	return s.With(secrets...)
}

// harmless are headers without secrets, whose values appear in many texts.
var harmless = []string{
	"accept", "accept-charset", "accept-encoding", "accept-language", "cache-control", "connection", "content-type",
	"expect", "host", "user-agent",
}

// BasicToken returns the part of an Authorization header after "Basic ".
func BasicToken(username, password string) string {
	return base64.StdEncoding.EncodeToString([]byte(username + ":" + password))
}

// spellings returns the forms in which servers repeat a secret: plain, and escaped for URLs, JSON
// and HTML.
func spellings(secret string) []string {
	list := []string{
		secret, url.QueryEscape(secret), url.PathEscape(secret), html.EscapeString(secret),
		strings.TrimPrefix(url.UserPassword("", secret).String(), ":"),
	}
	for _, escape := range []bool{false, true} {
		var b strings.Builder
		encoder := json.NewEncoder(&b)
		encoder.SetEscapeHTML(escape)
		if encoder.Encode(secret) == nil { // a string can be encoded
			list = append(list, strings.Trim(strings.TrimSpace(b.String()), `"`))
		}
	}
	return list
}

// Text returns a composed text with the secrets masked, and with the passwords in its URLs masked.
// It masks a secret of less than 16 bytes only where it is a whole word, and never one that is a
// word of a language, or part of a text that is shown beside ([Set.Beside]): that may be there by
// chance. In a text that ends in "...", the beginning of a secret before that is masked too.
func (s Set) Text(text string) string { return Text(s.mask(text)) }

// Said returns what a server said with the secrets masked, as [Set.Text] does. If a secret
// remains, or the beginning of one before "...", all of the text is masked.
func (s Set) Said(text string) string {
	text = s.mask(text)
	if s.remains(text) {
		return Mask
	}
	return Text(text)
}

func (s Set) mask(text string) string {
	all := s.known()
	spelt := slices.DeleteFunc(slices.Clone(all.spelt), all.byChance)
	for _, secret := range spelt {
		text = maskSecret(text, secret)
	}
	if start, cut := strings.CutSuffix(text, "..."); cut {
		if length := startLength(start, spelt); length > 0 {
			text = start[:len(start)-length] + Mask + "..."
		}
	}
	plain := unescape(text)
	if plain == text {
		return text
	}
	for _, secret := range all.plain {
		if !all.byChance(secret) && maskSecret(plain, secret) != plain {
			return Mask // in another spelling
		}
	}
	return text
}

// remains reports whether a secret is anywhere in text, or the beginning of one before "...".
func (s Set) remains(text string) bool {
	all := s.known()
	within := func(secret string) bool { return strings.Contains(text, secret) }
	if slices.ContainsFunc(all.spelt, within) {
		return true
	}
	if start, cut := strings.CutSuffix(text, "..."); cut && startLength(start, all.spelt) > 0 {
		return true
	}
	text = unescape(text)
	return slices.ContainsFunc(all.plain, within)
}

// byChance reports whether a secret may be a word of a composed text: it is one of a language, such
// as "pass" or "Password", or part of a text that is shown beside.
func (k known) byChance(secret string) bool {
	if slices.ContainsFunc(k.shown, func(text string) bool { return strings.Contains(text, secret) }) {
		return true
	}
	if len(secret) >= minLong || strings.ContainsFunc(secret, func(r rune) bool { return !unicode.IsLetter(r) }) {
		return false
	}
	_, first := utf8.DecodeRuneInString(secret)
	rest := secret[first:]
	return rest == strings.ToLower(rest) || secret == strings.ToUpper(secret)
}

// maskSecret masks a secret in text: a long one anywhere, another where it is a whole word.
func maskSecret(text, secret string) string {
	if len(secret) >= minLong {
		return strings.ReplaceAll(text, secret, Mask)
	}
	var b strings.Builder
	from := 0 // the bytes before it are written
	for at := 0; ; {
		i := strings.Index(text[at:], secret)
		if i < 0 {
			b.WriteString(text[from:])
			return b.String()
		}
		start, end := at+i, at+i+len(secret)
		before, _ := utf8.DecodeLastRuneInString(text[:start])
		after, _ := utf8.DecodeRuneInString(text[end:])
		if inWord(before) || inWord(after) {
			at = start + 1
			continue
		}
		b.WriteString(text[from:start] + Mask)
		at, from = end, end
	}
}

func inWord(r rune) bool { return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r)) }

// startLength returns the length of the beginning of a secret at the end of text, or 0.
func startLength(text string, secrets []string) int {
	for _, secret := range secrets {
		for n := len(secret) - 1; n >= minLength; n-- {
			if strings.HasSuffix(text, secret[:n]) {
				return n
			}
		}
	}
	return 0
}

// Has reports whether text contains one of the secrets, in upper or lower case.
func (s Set) Has(text string) bool {
	if s.remains(text) {
		return true
	}
	text = strings.ToLower(text)
	return slices.ContainsFunc(s.known().spelt, func(secret string) bool { return strings.Contains(text, strings.ToLower(secret)) })
}

// Format writes the number of secrets for every verb.
func (s Set) Format(f fmt.State, verb rune) {
	text := fmt.Sprintf("%d secrets", len(s.known().plain))
	Format(f, verb, text, "redact.Set("+text+")")
}

// unescape decodes percent-escapes, and leaves invalid ones.
func unescape(text string) string {
	if !strings.Contains(text, "%") {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			if plain, err := url.PathUnescape(text[i : i+3]); err == nil {
				b.WriteString(plain)
				i += 2
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// Error returns err if [Set.Text] does not change its text. Otherwise it returns an error with the
// masked text that wraps err. The wrapped error must not be printed.
func (s Set) Error(err error) error {
	if err == nil {
		return nil
	}
	return Replaced(err, s.Text(err.Error()))
}

// Replaced returns err if text is its text. Otherwise it returns an error with this text that wraps
// err. The wrapped error must not be printed.
func Replaced(err error, text string) error {
	if text == err.Error() {
		return err
	}
	return &redacted{text, err}
}

type redacted struct {
	text string
	err  error
}

func (r *redacted) Error() string { return r.text }
func (r *redacted) Unwrap() error { return r.err }
