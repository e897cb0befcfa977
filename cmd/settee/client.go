package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"settee/cmd/settee/internal/credentials"
	"settee/cmd/settee/internal/remote"
	"settee/pkg/config"
	"settee/replicator"
	"settee/replicator/scheduler"
	"settee/replicator/worker"
)

// statusTimeout is the timeout of the request that finds out whether a server wants credentials.
const statusTimeout = 30 * time.Second

// clientFlags are the flags of the commands that make requests to servers whose URLs they are given.
type clientFlags struct {
	configFlags
	credentials string
}

func (f *clientFlags) register(cmd *cobra.Command) {
	f.registerStoreless(cmd)
	cmd.Flags().StringVar(&f.credentials, "credentials", "",
		"a file with users and passwords, in the syntax of ~/.netrc, that only its owner can read")
}

// credentialsHelp is the part of a command's help about credentials for the places of its URLs.
func credentialsHelp(places ...credentials.Place) string {
	var names []string
	others := ""
	for _, p := range places {
		user, password := p.Variables()
		names = append(names, user+" and "+password)
		if p == credentials.Source {
			others = "Credentials of all kinds, such as API keys, come from " + p.Auth() + " and\n" +
				credentials.Target.Auth() + ": what `auth` of a replication document has, a JSON object.\n\n"
		}
	}
	return "Users and passwords come from the first of these that has them for a URL: the URL, the file of\n" +
		"--credentials, the environment (" + strings.Join(names, ",\n") + "),\n" +
		"~/.netrc or the file that NETRC names, and, on a terminal, a question. A URL can have the user\n" +
		"alone, as in https://user@example.org/. Every local user can read a password that is in a URL.\n\n" + others
}

// client is what a command makes requests with.
type client struct {
	cmd      *cobra.Command
	cfg      *config.Config
	finder   *credentials.Finder
	outbound *connections
}

// open reads the configuration, and prints its warnings. The caller calls close.
func (f *clientFlags) open(cmd *cobra.Command) (*client, error) {
	cfg, warnings, err := f.load()
	if err != nil {
		return nil, err
	}
	c := &client{cmd: cmd, cfg: cfg}
	for _, w := range warnings {
		c.warn(w.String())
	}
	c.outbound = newConnections(func() *config.Config { return cfg }, newLog(cmd.ErrOrStderr(), zerolog.WarnLevel))
	home, _ := os.UserHomeDir() // without one there is no ~/.netrc
	c.finder = &credentials.Finder{File: f.credentials, Getenv: os.Getenv, Home: home, Warn: c.warn, Status: c.status}
	if in := terminal(cmd.InOrStdin()); in != nil {
		c.finder.Terminal = asker{in, cmd.ErrOrStderr()}
	}
	return c, nil
}

func (c *client) close() { c.outbound.pool.Close() }

func (c *client) warn(text string) { c.cmd.PrintErrln("settee: warning:", text) }

// transport returns the transport for requests that belong to no replication.
func (c *client) transport() http.RoundTripper {
	return c.outbound.transport(replicator.Endpoint{}, nil)
}

// connect returns the server at a URL, with the credentials for its place. name says in errors which server it is.
func (c *client) connect(name string, place credentials.Place, at string) (*remote.Server, error) {
	at, err := c.finder.URL(c.cmd.Context(), place, at)
	if err != nil {
		return nil, err
	}
	server, err := remote.Connect(name, at, c.transport())
	if err != nil {
		return nil, usage(c.cmd, err)
	}
	return server, nil
}

// status returns the status that a server answers a GET without credentials with.
func (c *client) status(ctx context.Context, url string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	answer, err := c.transport().RoundTrip(request)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}

// endpoints returns the source and the target of a command line with their credentials, as a document has them.
func (c *client) endpoints(args []string) (source, target any, err error) {
	if source, err = c.finder.Endpoint(c.cmd.Context(), credentials.Source, args[0]); err != nil {
		return nil, nil, err
	}
	target, err = c.finder.Endpoint(c.cmd.Context(), credentials.Target, args[1])
	return source, target, err
}

// workerSettings returns the settings of the worker for a replication by this process. It checks the replication, and prints its warnings.
func (c *client) workerSettings(replication *replicator.Replication) (settings worker.Config, err error) {
	for _, text := range replication.Warnings() {
		c.warn(text)
	}
	if err := replication.Check(parseOptions(c.cfg)); err != nil {
		return settings, usage(c.cmd, err)
	}
	settings = c.requestSettings()
	settings.ServerUUID, err = foregroundUUID(c.cfg)
	return settings, err
}

// requestSettings returns the settings of the worker for requests by this process.
func (c *client) requestSettings() worker.Config {
	settings := scheduler.WorkerConfig(c.cfg)
	settings.Transport, settings.UserAgent = c.outbound.transport, cmp.Or(config.UserAgent.Get(c.cfg), userAgent())
	return settings
}

// foregroundUUID returns the server uuid for the replication ids of this command: the configured one, or one that
// depends only on the host name, so that a later run finds the checkpoints.
func foregroundUUID(cfg *config.Config) (string, error) {
	if id := config.UUID.Get(cfg); id != "" {
		return id, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("making the server uuid from the name of this host: %w", err)
	}
	sum := sha256.Sum256([]byte("settee replicate on " + host))
	return hex.EncodeToString(sum[:16]), nil
}
