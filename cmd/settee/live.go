package main

import (
	"context"

	"github.com/rs/zerolog"

	"settee/pkg/config"
	"settee/replicator"
	"settee/replicator/jobs"
)

// follow calls do with the configuration, now and after each change, until ctx ends.
func (n *node) follow(ctx context.Context, do func(*config.Config)) {
	for ctx.Err() == nil {
		changed := n.live.Changed()
		do(n.live.Current())
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// followLevel sets the level of the log to the configuration's.
func (n *node) followLevel(ctx context.Context) {
	n.follow(ctx, func(cfg *config.Config) { zerolog.SetGlobalLevel(config.LogLevel.Get(cfg)) })
}

// reload reads the files of the configuration again on each signal.
func (n *node) reload(ctx context.Context) {
	for {
		select {
		case <-n.reloads:
		case <-ctx.Done():
			return
		}
		if err := n.live.Reload(); err != nil {
			n.log.Error().Err(err).Msg("the configuration files cannot be used, and the values that were read before stay in force")
			continue
		}
		n.log.Info().Msg("the configuration files were read again")
	}
}

// parseOptions returns what the configuration says of the endpoints of replications.
func parseOptions(cfg *config.Config) replicator.ParseOptions {
	return replicator.ParseOptions{
		EndpointProtocols: config.ValidEndpointProtocols.Get(cfg), ProxyProtocols: config.ValidProxyProtocols.Get(cfg),
	}
}

func jobSettings(cfg *config.Config) jobs.Settings {
	return jobs.Settings{
		MaxHistory:      config.MaxHistory.Get(cfg),
		TransientMaxAge: config.TransientJobMaxAge.Get(cfg),
		StuckAfter:      config.StuckAfter.Get(cfg),
		UpdateDocs:      config.UpdateDocs.Get(cfg),
	}
}
