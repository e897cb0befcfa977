package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"settee/cmd/settee/internal/credentials"
	"settee/cmd/settee/internal/remote"
	"settee/pkg/config"
	"settee/pkg/kv/pebblekv"
)

func newBackup() *cobra.Command {
	var flags clientFlags
	cmd := &cobra.Command{
		Use:   "backup NODE FILE",
		Short: "Back up the store of a running node into a file",
		Long: "backup asks the node at the URL NODE for its store as it is now, and writes it to FILE, which must\n" +
			"not exist. The node continues to work. It asks with the name and the password of a server\n" +
			"administrator. Each file in the backup has a checksum, which is checked before FILE appears. The\n" +
			"backup contains all credentials that the store has: keep it as safe as the store.\n\n" +
			"FILE may be - for the standard output, which must not be a terminal. The checksums are checked while\n" +
			"it is written: use it only if the exit status is 0.\n\n" +
			credentialsHelp(credentials.Node) +
			"It is for stores in a directory (pebble:). A store on FoundationDB is backed up with fdbbackup.",
		Example: "  settee backup http://127.0.0.1:5984/ settee.backup --credentials admin.netrc\n" +
			"  settee backup http://127.0.0.1:5984/ - --credentials admin.netrc | ssh vault.example 'cat > settee.backup'",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			summary := cmd.OutOrStdout()
			if args[1] == standardStream {
				if terminal(summary) != nil {
					return usage(cmd, errors.New("a backup is not written to a terminal: name a file, or redirect the standard output"))
				}
				summary = cmd.ErrOrStderr()
			}
			c, err := flags.open(cmd)
			if err != nil {
				return err
			}
			defer c.close()
			node, err := c.connect("settee", credentials.Node, args[0])
			if err != nil {
				return err
			}
			return asking(cmd, func(ctx context.Context) error {
				var size int64
				if args[1] == standardStream {
					size, err = copyBackup(ctx, node, bytesOf(cmd.OutOrStdout()))
				} else {
					size, err = backUp(ctx, node, args[1])
				}
				if err != nil {
					return fmt.Errorf("backing up: %w", err)
				}
				_, err = fmt.Fprintf(summary, "backed up %d bytes to %s\n", size, args[1])
				return err
			})
		},
	}
	flags.register(cmd)
	return cmd
}

// standardStream is the name of a file that means the standard input or the standard output.
const standardStream = "-"

// copyBackup writes the backup to out, and returns its size in bytes. It fails if the backup is not complete or has a wrong
// sum, which is known only after a part was written.
func copyBackup(ctx context.Context, node *remote.Server, out io.Writer) (size int64, err error) {
	body, err := node.Send(ctx, http.MethodPost, "/_node/_local/_backup", nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = body.Close() }() // it was read
	return pebblekv.VerifyBackup(io.TeeReader(body, out))
}

// backUp writes the backup next to the file, and renames it when it is complete.
func backUp(ctx context.Context, node *remote.Server, path string) (size int64, err error) {
	if _, err := os.Lstat(path); err == nil {
		return 0, fmt.Errorf("%s exists", path)
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // with the mode 0600
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close(), os.Remove(file.Name()))
		}
	}()
	if size, err = copyBackup(ctx, node, file); err != nil {
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
	return size, nil
}

func syncParent(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
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
			if args[0] != standardStream {
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
