package main

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"settee/cmd/settee/internal/console"
	"settee/cmd/settee/internal/credentials"
	"settee/cmd/settee/internal/remote"
)

// nodeVariable is the environment variable with the URL of a node.
const nodeVariable = "SETTEE_URL"

// nodeFlags are the flags of the commands that ask a node about its jobs.
type nodeFlags struct {
	clientFlags
	url string
}

func (f *nodeFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.url, "url", "", "the URL of a node; by default what the variable "+nodeVariable+" says")
	f.clientFlags.register(cmd)
}

// nodeHelp is the part of a command's help about the node that it asks.
func nodeHelp() string {
	return "The node is the one that --url or the variable " + nodeVariable + " names.\n\n" + credentialsHelp(credentials.Node)
}

// ask calls do with the node, as asking does.
func (f *nodeFlags) ask(cmd *cobra.Command, do func(context.Context, *console.Node) error) error {
	c, node, err := f.open(cmd)
	if err != nil {
		return err
	}
	defer c.close()
	return asking(cmd, func(ctx context.Context) error { return do(ctx, node) })
}

// open returns the node, and the client that asks it. The caller closes the client.
func (f *nodeFlags) open(cmd *cobra.Command) (*client, *console.Node, error) {
	at := cmp.Or(f.url, os.Getenv(nodeVariable))
	if at == "" {
		return nil, nil, usage(cmd, errors.New("which node? Say --url, or set the variable "+nodeVariable))
	}
	c, err := f.clientFlags.open(cmd)
	if err != nil {
		return nil, nil, err
	}
	if f.url == "" {
		c.finder.Warn = func(string) {} // other users cannot read the environment
	}
	server, err := c.connect("settee", credentials.Node, at)
	if err != nil {
		c.close()
		return nil, nil, err
	}
	return c, &console.Node{Server: server}, nil
}

// asking calls do, which asks a node. The context ends at SIGINT and SIGTERM, and the exit status is then 130 or 143.
func asking(cmd *cobra.Command, do func(context.Context) error) error {
	ctx, unwatch := stopOnSignal(cmd.Context())
	defer unwatch()
	err := do(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return stopped(ctx, nil)
	case remote.IsStatus(err, http.StatusUnauthorized):
		return errors.New(strings.TrimSuffix(err.Error(), ".") + ": see --help for where user and password come from")
	}
	return err
}

// outputOf returns the output of a command, as of now.
func outputOf(cmd *cobra.Command, asJSON bool) console.Output {
	width, _ := sizeOf(cmd)
	return console.Output{Out: cmd.OutOrStdout(), Width: width, Now: time.Now(), JSON: asJSON}
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
