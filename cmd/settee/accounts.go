package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rs/zerolog"

	"settee/frontend/accounts"
	"settee/pkg/config"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/sealed"
)

// errNoAdmin is returned when a frontend would start without a server administrator.
var errNoAdmin = errors.New("this store has no server administrator. Name one with the environment variables COUCHDB_USER and " +
	"COUCHDB_PASSWORD, with NAME = PASSWORD in the section [admins] of a file (--config; settee password prints one), or with --set admins/NAME=PASSWORD; " +
	"or start the node once on a terminal, where it creates one and prints the password")

// openAccounts opens the accounts of a frontend. If the store has no server administrator, it creates one and prints
// the password on the terminal. Without a terminal it returns errNoAdmin.
func openAccounts(
	ctx context.Context, db kv.Database, keys *sealed.Keys, docs *docstore.Store, live *config.Live, screen io.Writer, log zerolog.Logger,
) (*accounts.Accounts, error) {
	known, err := accounts.Open(ctx, accounts.Options{
		Store: db, Prefix: accountsPrefix, Sealer: keys, Documents: docs, Config: live, Log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("opening the accounts: %w", err)
	}
	if known.HasAdmin() {
		return known, nil
	}
	if screen == nil {
		return nil, errNoAdmin
	}
	password, err := known.MakeAdmin(ctx)
	if err != nil {
		return nil, fmt.Errorf("creating an administrator: %w", err)
	}
	if password != "" { // if empty, another node was faster and has printed it
		_, err = fmt.Fprintf(screen, "\nThis store had no server administrator. It has one now:\n\n    name      %s\n    password  %s\n\n"+
			"The password is not shown again. To change it:\n"+
			"    curl -u %s -X PUT http://.../_node/_local/_config/admins/%s -d '\"PASSWORD\"'\n\n",
			accounts.FirstAdmin, password, accounts.FirstAdmin, accounts.FirstAdmin)
	}
	return known, err
}
