package main

import (
	"context"
	"errors"
	"fmt"

	"settee/frontend/accounts"
)

// errNoAdmin is returned when a frontend would start without a server administrator.
var errNoAdmin = errors.New("this store has no server administrator. Name one with the environment variables COUCHDB_USER and " +
	"COUCHDB_PASSWORD, with NAME = PASSWORD in the section [admins] of a file (--config; settee password prints one), or with --set admins/NAME=PASSWORD; " +
	"or start the node once on a terminal, where it creates one and prints the password")

// openAccounts opens the accounts. If the store has no server administrator, it creates one and prints the password on the terminal.
// Without a terminal it returns errNoAdmin.
func (n *node) openAccounts(ctx context.Context) (err error) {
	n.accounts, err = accounts.Open(ctx, accounts.Options{
		Store: n.db, Prefix: accountsPrefix, Sealer: n.keys, Documents: n.docs, Config: n.live, Log: n.log,
	})
	if err != nil {
		return fmt.Errorf("opening the accounts: %w", err)
	}
	if n.accounts.HasAdmin() {
		return nil
	}
	if n.screen == nil {
		return errNoAdmin
	}
	password, err := n.accounts.MakeAdmin(ctx)
	if err != nil {
		return fmt.Errorf("creating an administrator: %w", err)
	}
	if password != "" { // if empty, another node was faster and has printed it
		_, err = fmt.Fprintf(n.screen, "\nThis store had no server administrator. It has one now:\n\n    name      %s\n    password  %s\n\n"+
			"The password is not shown again. To change it:\n"+
			"    curl -u %s -X PUT http://.../_node/_local/_config/admins/%s -d '\"PASSWORD\"'\n\n",
			accounts.FirstAdmin, password, accounts.FirstAdmin, accounts.FirstAdmin)
	}
	return err
}
