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

// leastLength is that of the secrets that are looked for. A shorter one is part of many words:
// to replace it there would give it away.
const leastLength = 4

// Set is secrets that are known, to be masked in what others say. The zero value has none. A Set
// never changes, and may be used by any number of goroutines.
//
// It prints as nothing of them: that takes a function, since fmt asks no unexported field of a
// struct for its form, and follows pointers where a verb does not fit.
type Set struct{ of func() known }

type known struct {
	plain []string // as they are
	spelt []string // in all spellings that are looked for, the longest first
}

func (s Set) known() known {
	if s.of == nil {
		return known{}
	}
	return s.of()
}

// With returns the set with some more secrets. Those of less than four bytes are left out.
func (s Set) With(secrets ...string) Set {
	secrets = slices.DeleteFunc(slices.Clone(secrets), func(secret string) bool { return len(secret) < leastLength })
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

// WithBasic returns the set with a password, and with what basic authentication makes of it and
// the user's name, however short the password is.
func (s Set) WithBasic(username, password string) Set {
	return s.With(password, BasicToken(username, password))
}

// WithHeader returns the set with the value of a header. Of those that say no more than what a
// client is or takes there is no secret; of cookies, and behind a scheme such as Bearer, the parts
// are secrets too.
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

// harmless are headers that have no secrets, and values that many texts have.
var harmless = []string{
	"accept", "accept-charset", "accept-encoding", "accept-language", "cache-control", "connection", "content-type",
	"expect", "host", "user-agent",
}

// BasicToken is what follows "Basic " in an Authorization header.
func BasicToken(username, password string) string {
	return base64.StdEncoding.EncodeToString([]byte(username + ":" + password))
}

// spellings are how servers repeat a secret: as it is, in URLs, in JSON, in HTML.
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

// Text returns text with the secrets masked, and with the passwords in its URLs masked. Where a
// text was cut, and ends in "...", what is left of a secret before that is masked, too.
func (s Set) Text(text string) string { return Text(s.hide(text)) }

func (s Set) hide(text string) string {
	for _, secret := range s.known().spelt {
		text = strings.ReplaceAll(text, secret, Mask)
	}
	if start, cut := strings.CutSuffix(text, "..."); cut {
		text = s.hideStart(start) + "..."
	}
	if s.among(unescape(text)) {
		return Mask // in a spelling that nobody thought of
	}
	return text
}

// hideStart masks the beginning of a secret that text ends with.
func (s Set) hideStart(text string) string {
	for _, secret := range s.known().spelt {
		for n := len(secret) - 1; n >= leastLength; n-- {
			if start, found := strings.CutSuffix(text, secret[:n]); found {
				return start + Mask
			}
		}
	}
	return text
}

// Has reports whether text has one of the secrets, in upper or lower case.
func (s Set) Has(text string) bool {
	if s.hide(text) != text {
		return true
	}
	text = strings.ToLower(text)
	return slices.ContainsFunc(s.known().spelt, func(secret string) bool { return strings.Contains(text, strings.ToLower(secret)) })
}

// Format writes how many secrets there are, for every verb.
func (s Set) Format(f fmt.State, verb rune) {
	text := fmt.Sprintf("%d secrets", len(s.known().plain))
	Format(f, verb, text, "redact.Set("+text+")")
}

func (s Set) among(text string) bool {
	return slices.ContainsFunc(s.known().plain, func(secret string) bool { return strings.Contains(text, secret) })
}

// unescape undoes percent-encoding where there is any, and leaves what is none.
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

// Error returns err as it is if its text has no secret. Otherwise the text is masked; what err
// wraps can be found still, and must not be printed.
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
