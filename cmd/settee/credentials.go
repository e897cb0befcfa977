package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"settee/cmd/settee/internal/credentials"
	"settee/pkg/config"
	"settee/replicator"
)

// statusTimeout is the timeout of the request that finds out whether a server wants credentials.
const statusTimeout = 30 * time.Second

// credentialFlags are the flags of the commands that take URLs.
type credentialFlags struct {
	credentials string
}

func (f *credentialFlags) register(cmd *cobra.Command) {
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

// finder returns what finds the credentials for the URLs of a command. cfg is for the request that asks a server
// whether it wants credentials.
func (f *credentialFlags) finder(cmd *cobra.Command, cfg *config.Config) *credentials.Finder {
	home, _ := os.UserHomeDir() // without one there is no ~/.netrc
	finder := &credentials.Finder{
		File: f.credentials, Getenv: os.Getenv, Home: home,
		Warn: func(text string) { cmd.PrintErrln("settee: warning:", text) },
		Status: func(ctx context.Context, url string) (int, error) {
			return statusOf(ctx, cfg, cmd.ErrOrStderr(), url)
		},
	}
	if in, ok := cmd.InOrStdin().(*os.File); ok && term.IsTerminal(int(in.Fd())) {
		finder.Terminal = asker{in, cmd.ErrOrStderr()}
	}
	return finder
}

// statusOf returns the status that a server answers a GET without credentials with.
func statusOf(ctx context.Context, cfg *config.Config, log io.Writer, url string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	outbound := newConnections(func() *config.Config { return cfg }, newLog(log, zerolog.WarnLevel))
	defer outbound.pool.Close()
	answer, err := outbound.transport(replicator.Endpoint{}, nil).RoundTrip(request)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}

// asker asks questions on a terminal.
type asker struct {
	in  *os.File
	out io.Writer
}

func (a asker) Ask(question string) (string, error) {
	if _, err := io.WriteString(a.out, question); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(a.in).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("reading from the terminal: %w", err)
	}
	return strings.TrimRight(line, "\r\n"), nil
}

func (a asker) AskSecret(question string) (string, error) { return askSecret(a.in, a.out, question) }
