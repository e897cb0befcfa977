package main

import (
	"context"
	"os"
	"sync"

	"github.com/rs/zerolog"

	"settee/pkg/config"
	"settee/replicator/jobs"
)

// follow keeps the configuration up to date until ctx ends, and reads its files again with
// each signal.
func follow(ctx context.Context, live *config.Live, reloads <-chan os.Signal, log zerolog.Logger) {
	var following sync.WaitGroup
	following.Go(func() { _ = live.Run(ctx) }) // it ends by ctx: the store is closed later
	following.Go(func() { followLevel(ctx, live) })
	following.Go(func() { reload(ctx, live, reloads, log) })
	following.Wait()
}

// followLevel keeps the level of what is logged what the configuration says.
func followLevel(ctx context.Context, live *config.Live) {
	for ctx.Err() == nil {
		changed := live.Changed()
		zerolog.SetGlobalLevel(config.LogLevel.Get(live.Current()))
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// reload reads the files of the configuration again on each signal.
func reload(ctx context.Context, live *config.Live, signals <-chan os.Signal, log zerolog.Logger) {
	for {
		select {
		case <-signals:
		case <-ctx.Done():
			return
		}
		if err := live.Reload(); err != nil {
			log.Error().Err(err).Msg("the files of the configuration cannot be used, and what they said before stays")
			continue
		}
		log.Info().Msg("the files of the configuration were read again")
	}
}

func jobSettings(cfg *config.Config) jobs.Settings {
	return jobs.Settings{
		MaxHistory:      config.MaxHistory.Get(cfg),
		TransientMaxAge: config.TransientJobMaxAge.Get(cfg),
		UpdateDocs:      config.UpdateDocs.Get(cfg),
	}
}
