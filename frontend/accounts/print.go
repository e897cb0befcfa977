package accounts

import (
	"fmt"

	"settee/pkg/redact"
)

// Format writes a constant for every verb, because the accounts hold the secret of sessions.
func (a *Accounts) Format(f fmt.State, verb rune) {
	redact.Format(f, verb, "accounts", "accounts.Accounts(...)")
}

// Format writes the id of the document for every verb, because the body may have a password.
func (w Write) Format(f fmt.State, verb rune) {
	text := fmt.Sprintf("write of %q", w.ID)
	redact.Format(f, verb, text, "accounts.Write("+text+")")
}
