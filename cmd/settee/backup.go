package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"settee/cmd/settee/internal/credentials"
	"settee/pkg/config"
	"settee/pkg/kv/pebblekv"
	"settee/pkg/redact"
	"settee/replicator"
)

func newBackup() *cobra.Command {
	var flags configFlags
	var from credentialFlags
	cmd := &cobra.Command{
		Use:   "backup NODE FILE",
		Short: "Back up the store of a running node into a file",
		Long: "backup asks the node at the URL NODE for its store as it is now, and writes it to FILE, which must\n" +
			"not exist. The node continues to work. It asks with the name and the password of a server\n" +
			"administrator. Each file in the backup has a checksum, which is checked before FILE appears. The\n" +
			"backup contains all credentials that the store has: keep it as safe as the store.\n\n" +
			credentialsHelp(credentials.Node) +
			"It is for stores in a directory (pebble:). A store on FoundationDB is backed up with fdbbackup.",
		Example: "  settee backup http://127.0.0.1:5984/ settee.backup --credentials admin.netrc",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			node, err := url.Parse(args[0])
			if err != nil || node.Scheme != "http" && node.Scheme != "https" || node.Host == "" {
				return usage(cmd, fmt.Errorf("%q is not the URL of a node, such as http://admin@127.0.0.1:5984/", redact.Text(args[0])))
			}
			cfg, _, err := flags.load()
			if err != nil {
				return err
			}
			found, err := from.finder(cmd, cfg).URL(cmd.Context(), credentials.Node, args[0])
			if err != nil {
				return err
			}
			if node, err = url.Parse(found); err != nil {
				return err
			}
			size, err := backUp(cmd, cfg, node, args[1])
			if err != nil {
				return fmt.Errorf("backing up %s: %w", node.Redacted(), err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "backed up %d bytes to %s\n", size, args[1])
			return err
		},
	}
	flags.registerStoreless(cmd)
	from.register(cmd)
	return cmd
}

// backUp writes the backup next to the file, and renames it when it is complete.
func backUp(cmd *cobra.Command, cfg *config.Config, node *url.URL, path string) (size int64, err error) {
	if _, err := os.Lstat(path); err == nil {
		return 0, fmt.Errorf("%s exists", path)
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	outbound := newConnections(func() *config.Config { return cfg }, newLog(cmd.ErrOrStderr(), zerolog.WarnLevel))
	defer outbound.pool.Close()
	body, err := requestBackup(ctx, outbound, node)
	if err != nil {
		return 0, err
	}
	defer func() { _ = body.Close() }()                                          // it was read
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // with the mode 0600
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close(), os.Remove(file.Name()))
		}
	}()
	if err := pebblekv.VerifyBackup(io.TeeReader(body, file)); err != nil {
		return 0, err
	}
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	if err := file.Sync(); err != nil {
		return 0, err
	}
	// Link fails if the file exists meanwhile.
	if err := os.Link(file.Name(), path); err != nil {
		return 0, err
	}
	if err := errors.Join(file.Close(), os.Remove(file.Name()), syncParent(path)); err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func syncParent(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// requestBackup returns the body of the node's answer.
func requestBackup(ctx context.Context, outbound *connections, node *url.URL) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, node.JoinPath("_node", "_local", "_backup").String(), nil)
	if err != nil {
		return nil, err
	}
	answer, err := outbound.transport(replicator.Endpoint{}, nil).RoundTrip(withUser(request))
	if err != nil {
		return nil, err
	}
	if answer.StatusCode == http.StatusOK {
		return answer.Body, nil
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, 4096))
	return nil, errors.Join(fmt.Errorf("the node answers %s: %s", answer.Status, strings.TrimSpace(string(text))), err, answer.Body.Close())
}

// withUser moves the user of a request's URL to a header.
func withUser(r *http.Request) *http.Request {
	if user := r.URL.User; user != nil {
		password, _ := user.Password()
		r.SetBasicAuth(user.Username(), password)
		r.URL.User = nil
	}
	return r
}

func newRestore() *cobra.Command {
	var flags configFlags
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Make a store of a backup",
		Long: "restore makes the store (--store pebble:DIRECTORY) of a backup that settee backup has written. FILE\n" +
			"may be - for the standard input. The directory must be named, by --store or by [settee] store in the\n" +
			"configuration, and be empty or missing. All checksums are checked before there is a store: after an\n" +
			"error there is none.\n\n" +
			"The store continues where the original was at the time of the backup, under the same uuid. Do not\n" +
			"start it while the original runs.",
		Example: "  settee restore settee.backup --store pebble:/var/lib/settee-restored",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			cfg, _, err := flags.load()
			if err != nil {
				return err
			}
			if config.Store.From(cfg) == config.OriginDefault.String() {
				return usage(cmd, errors.New("name the directory of the store, with --store pebble:DIRECTORY"))
			}
			in := cmd.InOrStdin()
			if args[0] != "-" {
				file, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer func() { _ = file.Close() }() // it was read
				in = file
			}
			store := config.Store.Get(cfg)
			if err := pebblekv.RestoreURL(in, store); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "restored to %s\n", store)
			return err
		},
	}
	flags.register(cmd)
	return cmd
}
