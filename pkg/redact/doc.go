// Package redact takes secrets out of what is printed: the one place that decides what of a URL,
// a header or a server's words may be seen in logs, errors, listings and stored reasons.
//
// There are three ways, for three kinds of text:
//
//   - [Text] masks the passwords in all URLs of a text, whatever it is. Texts that are made of
//     foreign errors go through it, and so does, as the last line of defence, every line that is
//     logged ([Writer]).
//   - A [Set] masks secrets that are known: the passwords, headers and cookies of a request, in
//     what its server said of it, in any of the spellings that servers echo.
//   - Types that hold secrets print themselves with [Format], and say nothing of the secrets,
//     whatever the verb. Where their JSON has secrets, that is for storing, and named so.
//
// Each masks too much rather than too little.
package redact

import (
	"fmt"
	"io"
)

// Mask stands where a secret was.
const Mask = "*****"

// Format is for the Format methods of types that hold secrets: it writes text for every verb, and
// goText for %#v. That the types have a String method is not enough: other verbs do not ask for it.
func Format(f fmt.State, verb rune, text, goText string) {
	if verb == 'v' && f.Flag('#') {
		text = goText
	}
	_, _ = io.WriteString(f, text)
}
