package main

import (
	"context"
	"strings"

	"settee/pkg/config"
)

// hashAdmins replaces plain-text passwords in [admins] of the configuration files by hashes, now and after each change
// of the configuration, until ctx ends. The hashes come from the store, so all nodes that read the same file accept the
// same sessions.
func (n *node) hashAdmins(ctx context.Context) {
	said := ""
	n.follow(ctx, func(cfg *config.Config) {
		if err := n.hashAdminsOf(ctx, cfg); err != nil && ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			n.log.Warn().Str("reason", strings.ReplaceAll(said, "\n", "; ")).
				Msg("passwords of [admins] stay in plain text in the configuration files")
		}
	})
}

func (n *node) hashAdminsOf(ctx context.Context, cfg *config.Config) error {
	hashed, err := n.accounts.HashedAdmins(ctx, cfg)
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
	changed, err := config.ReplaceInFiles(n.files, replacements)
	for _, file := range changed {
		n.log.Info().Str("file", file).Msg("passwords of [admins] were in plain text in this file and are hashed now")
	}
	return err
}
