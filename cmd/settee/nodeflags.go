package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"settee/cmd/settee/internal/console"
	"settee/cmd/settee/internal/credentials"
	"settee/cmd/settee/internal/remote"
	"settee/pkg/config"
	"settee/replicator"
)

// nodeVariable is the environment variable with the URL of a node.
const nodeVariable = "SETTEE_URL"

// nodeFlags are the flags of the commands that ask a node about its jobs.
type nodeFlags struct {
	configFlags
	credentialFlags
	url string
}

func (f *nodeFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.url, "url", "", "the URL of a node; by default what the variable "+nodeVariable+" says")
	f.configFlags.registerStoreless(cmd)
	f.credentialFlags.register(cmd)
}

// nodeHelp is the part of a command's help about the node that it asks.
func nodeHelp() string {
	return "The node is the one that --url or the variable " + nodeVariable + " names.\n\n" + credentialsHelp(credentials.Node)
}

// ask calls do with the node. The context ends at SIGINT and SIGTERM, and the exit status is then 130 or 143.
func (f *nodeFlags) ask(cmd *cobra.Command, do func(context.Context, *console.Node) error) error {
	at, warn := f.url, true
	if at == "" {
		at, warn = os.Getenv(nodeVariable), false // other users cannot read the environment
	}
	if at == "" {
		return usage(cmd, errors.New("which node? Say --url, or set the variable "+nodeVariable))
	}
	cfg, warnings, err := f.load()
	if err != nil {
		return err
	}
	for _, w := range warnings {
		cmd.PrintErrln("settee: warning:", w.String())
	}
	finder := f.finder(cmd, cfg)
	if !warn {
		finder.Warn = func(string) {}
	}
	if at, err = finder.URL(cmd.Context(), credentials.Node, at); err != nil {
		return err
	}
	outbound := newConnections(func() *config.Config { return cfg }, newLog(cmd.ErrOrStderr(), zerolog.WarnLevel))
	defer outbound.pool.Close()
	server, err := remote.Connect("settee", at, outbound.transport(replicator.Endpoint{}, nil))
	if err != nil {
		return usage(cmd, err)
	}
	ctx, unwatch := stopOnSignal(cmd.Context())
	defer unwatch()
	err = do(ctx, &console.Node{Server: server})
	switch {
	case err != nil && ctx.Err() != nil:
		return stopped(ctx, nil)
	case remote.IsStatus(err, http.StatusUnauthorized):
		return errors.New(strings.TrimSuffix(err.Error(), ".") + ": see --help for where user and password come from")
	}
	return err
}

// widthOf returns the width of the terminal that a command writes to, or 0 if it does not write to one.
func widthOf(cmd *cobra.Command) int {
	width, _ := sizeOf(cmd)
	return width
}

// sizeOf returns the width and the height of the terminal that a command writes to, or zeros.
func sizeOf(cmd *cobra.Command) (width, height int) {
	file := terminal(cmd.OutOrStdout())
	if file == nil {
		return 0, 0
	}
	width, height, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0, 0
	}
	return width, height
}
