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
)

// minLength is the least length in bytes of a secret. Shorter ones are part of many words, and
// masking those would reveal the secret.
const minLength = 4

// Set is a set of known secrets, to be masked in texts. The zero value is empty. A Set is
// immutable and safe for concurrent use.
//
// The secrets are behind a function so that printing a Set never shows them: fmt does not call
// the methods of unexported fields, and follows pointers for verbs that do not fit.
type Set struct{ of func() known }

type known struct {
	plain []string // as they are
	spelt []string // in all spellings, the longest first
}

func (s Set) known() known {
	if s.of == nil {
		return known{}
	}
	return s.of()
}

// With returns the set with more secrets. It ignores secrets of less than four bytes.
func (s Set) With(secrets ...string) Set {
	secrets = slices.DeleteFunc(slices.Clone(secrets), func(secret string) bool { return len(secret) < minLength })
	if len(secrets) == 0 {
		return s
	}
	plain, spelt := slices.Clone(s.known().plain), slices.Clone(s.known().spelt)
	for _, secret := range secrets {
		plain = append(plain, secret)
		spelt = append(spelt, spellings(secret)...)
	}
	slices.SortFunc(spelt, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	now := known{plain, slices.Compact(spelt)}
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

// Text returns text with the secrets masked, and with the passwords in its URLs masked. In a text
// that ends in "...", the beginning of a secret before that is masked too.
func (s Set) Text(text string) string { return Text(s.hide(text)) }

func (s Set) hide(text string) string {
	for _, secret := range s.known().spelt {
		text = strings.ReplaceAll(text, secret, Mask)
	}
	if start, cut := strings.CutSuffix(text, "..."); cut {
		text = s.hideStart(start) + "..."
	}
	if s.among(unescape(text)) {
		return Mask // in another spelling
	}
	return text
}

// hideStart masks the beginning of a secret at the end of text.
func (s Set) hideStart(text string) string {
	for _, secret := range s.known().spelt {
		for n := len(secret) - 1; n >= minLength; n-- {
			if start, found := strings.CutSuffix(text, secret[:n]); found {
				return start + Mask
			}
		}
	}
	return text
}

// Has reports whether text contains one of the secrets, in upper or lower case.
func (s Set) Has(text string) bool {
	if s.hide(text) != text {
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

func (s Set) among(text string) bool {
	return slices.ContainsFunc(s.known().plain, func(secret string) bool { return strings.Contains(text, secret) })
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

// Error returns err if its text has no secret. Otherwise it returns an error with the text masked
// that wraps err. The wrapped error must not be printed.
func (s Set) Error(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if masked := s.Text(text); masked != text {
		return &redacted{masked, err}
	}
	return err
}

type redacted struct {
	text string
	err  error
}

func (r *redacted) Error() string { return r.text }
func (r *redacted) Unwrap() error { return r.err }
