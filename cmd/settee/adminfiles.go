package main

import (
	"context"
	"strings"

	"github.com/rs/zerolog"

	"settee/frontend/accounts"
	"settee/pkg/config"
)

// hashAdmins puts hashes in the place of passwords that the files of the configuration have in
// [admins] in plain text, now and when the configuration changes, until ctx ends. They are those of
// the store: every node that reads such a file takes the same sessions.
func hashAdmins(ctx context.Context, live *config.Live, known *accounts.Accounts, files []string, log zerolog.Logger) {
	said := ""
	for ctx.Err() == nil {
		changed := live.Changed()
		if err := hashAdminsOnce(ctx, live.Current(), known, files, log); err != nil && ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			log.Warn().Str("reason", strings.ReplaceAll(said, "\n", "; ")).
				Msg("passwords of [admins] stay in plain text in the configuration's files")
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

func hashAdminsOnce(
	ctx context.Context, cfg *config.Config, known *accounts.Accounts, files []string, log zerolog.Logger,
) error {
	hashed, err := known.HashedAdmins(ctx, cfg)
	if err != nil {
		return err
	}
	var replacements []config.Replacement
	for name, was := range config.Admins.Get(cfg) {
		if hash, plain := hashed[name]; plain {
			replacements = append(replacements, config.Replacement{Section: "admins", Key: name, Was: was, Text: hash})
		}
	}
	if len(replacements) == 0 {
		return nil
	}
	changed, err := config.ReplaceInFiles(files, replacements)
	for _, file := range changed {
		log.Info().Str("file", file).Msg("passwords of [admins] were in plain text in this file, and are hashed now")
	}
	return err
}
