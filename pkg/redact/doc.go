// Package redact removes secrets from texts. It decides which parts of a URL, a header or a
// server's response may appear in logs, errors, listings and stored reasons.
//
// There are three ways, for three kinds of text:
//
//   - [Text] masks the passwords in all URLs of any text. Error texts from other
//     systems go through it, and so does, as a last defence, every line that is
//     logged ([Writer]).
//   - A [Set] masks known secrets: the passwords, headers and cookies of a request,
//     in whatever spelling a server repeats them. What the server said is masked before it
//     becomes part of another text, because masking a word that everybody expects there would
//     tell the secret.
//   - Types with secrets print themselves with [Format], without the secrets for
//     every verb. A JSON form with secrets is only for storing, and named so.
//
// Each masks too much rather than too little.
package redact

import (
	"fmt"
	"io"
)

// Mask replaces a secret.
const Mask = "*****"

// Format implements fmt.Formatter for types with secrets: it writes text for every verb, and
// goText for %#v. A String method is not enough, because some verbs do not call it.
func Format(f fmt.State, verb rune, text, goText string) {
	if verb == 'v' && f.Flag('#') {
		text = goText
	}
	_, _ = io.WriteString(f, text)
}
