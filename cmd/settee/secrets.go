package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"settee/fdbjobs"
	"settee/frontend/accounts"
	"settee/pkg/config"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/sealed"
	"settee/pkg/tuple"
	"settee/replicator/jobs"
)

// metaKeys has the keys that values of the store may be sealed with:
//
//	(meta, "keys", id) -> a text that was sealed with the key
//
// A key is noted before anything is sealed with it. So a node that has not all keys, or another
// one by the same id, is found out when it starts, and not by each value that it cannot open.
var metaKeys = tuple.NewSubspace("meta", "keys")

// sealedText is what is sealed there.
var sealedText = []byte("settee")

// readKeys reads the key file, if there is one.
func readKeys(cfg *config.Config) (*sealed.Keys, error) {
	path := config.SecretsKeyFile.Get(cfg)
	if path == "" {
		return new(sealed.Keys), nil
	}
	return sealed.Read(path)
}

// sealedDatabase reports whether the documents of a database of that name are sealed: those that have credentials of
// endpoints, or keys of one-time passwords.
func sealedDatabase(name string) bool {
	return jobs.SealedDatabase(name) || accounts.IsDatabase(name)
}

// openKeys returns the keys of a node, having checked that they are all that it needs, and noted
// the one that it seals with.
func openKeys(ctx context.Context, db kv.Database, cfg *config.Config, log zerolog.Logger) (*sealed.Keys, error) {
	keys, err := readKeys(cfg)
	if err != nil {
		return nil, err
	}
	if err := db.Transact(ctx, func(tx kv.Transaction) error { return checkKeys(tx, keys) }); err != nil {
		return nil, err
	}
	if keys.First() == "" {
		log.Info().Msg("the credentials of replications and the keys of one-time passwords are stored as they are: [secrets] key_file is not set")
	} else {
		log.Info().Strs("keys", keys.IDs()).Msg("the credentials of replications and the keys of one-time passwords are stored encrypted, with the first of the keys")
	}
	return keys, noteKey(ctx, db, keys)
}

// checkKeys returns an error if the store needs other keys.
func checkKeys(tx kv.ReadTransaction, keys *sealed.Keys) error {
	noted, err := notedKeys(tx)
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(noted)) {
		_, err := keys.Open(noted[id], "key", id)
		var unknown *sealed.UnknownKeyError
		switch {
		case errors.As(err, &unknown):
			return fmt.Errorf("the store may have values that are %w. If it is lost, and they with it, "+
				"`settee secrets forget %s` lets nodes start without it", unknown, id)
		case err != nil:
			return fmt.Errorf("the key %q of the key file ([secrets] key_file) is not the one of that id which the store's values are sealed with", id)
		}
	}
	return nil
}

func notedKeys(tx kv.ReadTransaction) (map[string][]byte, error) {
	begin, end := metaKeys.Range()
	pairs, err := tx.GetRange(kv.KeyRange{Begin: begin, End: end}, kv.RangeOptions{Mode: kv.StreamWantAll}).Slice()
	if err != nil {
		return nil, err
	}
	noted := make(map[string][]byte, len(pairs))
	for _, pair := range pairs {
		key, err := metaKeys.Unpack(pair.Key)
		if err != nil || len(key) != 1 {
			return nil, fmt.Errorf("reading of the keys of the store: unknown form %v", key)
		}
		id, _ := key[0].(string)
		noted[id] = pair.Value
	}
	return noted, nil
}

// noteKey notes the key that is sealed with. Nodes of versions that know nothing of sealed values
// do not start from then on.
func noteKey(ctx context.Context, db kv.Database, keys *sealed.Keys) error {
	id := keys.First()
	if id == "" {
		return nil
	}
	key, note := metaKeys.Pack(id), keys.Seal(sealedText, "key", id)
	return db.Transact(ctx, func(tx kv.Transaction) error {
		noted, err := tx.Get(key).Await()
		if err != nil || noted != nil {
			return err
		}
		tx.Set(key, note)
		tx.Set(metaFormat, tuple.Tuple{sealedFormat}.Pack())
		return nil
	})
}

// keepNoted notes the key again, until ctx ends, should it have been taken for one that nobody
// uses any more.
func keepNoted(ctx context.Context, db kv.Database, keys *sealed.Keys) {
	tick := time.NewTicker(noteEvery)
	defer tick.Stop()
	for keys.First() != "" {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		_ = noteKey(ctx, db, keys) // one that fails is made up for by the next
	}
}

func newSecrets() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secrets",
		Short: "Make and rotate the keys that credentials are encrypted with in the store",
		Long: "With [secrets] key_file set, a node stores the credentials of replications encrypted. The key\n" +
			"file has a key in each line: the first one encrypts, all of them decrypt.\n\n" +
			"To rotate: make a new key, put its line behind the others on all nodes and start them again;\n" +
			"then put it first on all nodes and start them again; then settee secrets reseal. What it says\n" +
			"is not needed any more can be taken out.\n\n" +
			"A store in a directory belongs to one process: stop the node before keys, reseal and forget.\n" +
			"A FoundationDB cluster's nodes may run.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSecretsNewKey(), newSecretsKeys(), newSecretsReseal(), newSecretsForget())
	return cmd
}

func newSecretsNewKey() *cobra.Command {
	return &cobra.Command{
		Use:   "new-key ID",
		Short: "Print a line for the key file, with a new key of that id",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			line, err := sealed.NewLine(args[0])
			if err != nil {
				return usage(cmd, err)
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), line)
			return err
		},
	}
}

func newSecretsKeys() *cobra.Command {
	var flags configFlags
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Count what is encrypted in the store, by key",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withVault(cmd, &flags, func(ctx context.Context, v *vault) error {
				counts, err := v.reseal(ctx, "")
				if err != nil {
					return err
				}
				noted, err := v.noted(ctx)
				if err != nil {
					return err
				}
				return v.print(cmd, counts, noted)
			})
		},
	}
	flags.register(cmd)
	return cmd
}

func newSecretsReseal() *cobra.Command {
	var flags configFlags
	cmd := &cobra.Command{
		Use:   "reseal",
		Short: "Encrypt with the first key what is encrypted with another, or not at all",
		Long: "reseal goes through the whole store. It can be broken off and started again at any time. Start\n" +
			"it when all nodes have the first key.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withVault(cmd, &flags, func(ctx context.Context, v *vault) error { return v.rotate(ctx, cmd) })
		},
	}
	flags.register(cmd)
	return cmd
}

func newSecretsForget() *cobra.Command {
	var flags configFlags
	cmd := &cobra.Command{
		Use:   "forget ID",
		Short: "Let nodes start without a key that is lost",
		Long: "forget lets nodes start that have not the key of that id. What is encrypted with it is lost:\n" +
			"its jobs crash, its documents can be replaced but not read, so that users have no account before\n" +
			"an administrator replaces theirs, sessions have ended, and settings that were put into the store\n" +
			"do not hold.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withVault(cmd, &flags, func(ctx context.Context, v *vault) error {
				if v.keys.Has(args[0]) {
					return fmt.Errorf("the key %q is not lost: the key file ([secrets] key_file) has it. settee secrets reseal "+
						"replaces one that is there, and forgets it when it is not needed any more", args[0])
				}
				noted, err := v.noted(ctx)
				if err != nil {
					return err
				}
				counts, err := v.reseal(ctx, "")
				if err == nil && noted[args[0]] == nil && counts[args[0]] == 0 {
					err = fmt.Errorf("the store knows no key %q", args[0])
				}
				if err != nil {
					return err
				}
				return v.giveUp(ctx, args[0])
			})
		},
	}
	flags.register(cmd)
	return cmd
}

// vault is all of a store that may be sealed.
type vault struct {
	db   kv.Database
	keys *sealed.Keys
}

// withVault opens the store for a command.
func withVault(cmd *cobra.Command, flags *configFlags, do func(context.Context, *vault) error) (err error) {
	cfg, _, err := flags.load()
	if err != nil {
		return err
	}
	keys, err := readKeys(cfg)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	db, err := openStore(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return do(ctx, &vault{db, keys})
}

// reseal counts what is sealed, by key. If keyID is not empty it is that of the first key, and
// what is sealed with another is sealed anew.
func (v *vault) reseal(ctx context.Context, keyID string) (map[string]int64, error) {
	docs := docstore.Open(v.db, tuple.NewSubspace("docs").Bytes(), docstore.Options{Sealer: v.keys, Sealed: sealedDatabase})
	defer docs.Close()
	layer := fdbjobs.OpenSealed(v.db, tuple.NewSubspace("fdbjobs").Bytes(), v.keys)
	defer layer.Close()
	all := map[string]int64{}
	for _, part := range []func(context.Context, string) (map[string]int64, error){
		docs.Reseal,
		layer.Type(jobs.Type).Reseal,
		func(ctx context.Context, keyID string) (map[string]int64, error) {
			return config.Reseal(ctx, v.db, tuple.NewSubspace("config").Bytes(), v.keys, keyID)
		},
		func(ctx context.Context, keyID string) (map[string]int64, error) {
			return accounts.Reseal(ctx, v.db, tuple.NewSubspace("accounts").Bytes(), v.keys, keyID)
		},
	} {
		counts, err := part(ctx, keyID)
		if err != nil {
			return nil, err
		}
		for id, n := range counts {
			all[id] += n
		}
	}
	return all, nil
}

// rotate seals all anew, and forgets the keys that are not needed any more.
func (v *vault) rotate(ctx context.Context, cmd *cobra.Command) error {
	first := v.keys.First()
	if first == "" {
		return errors.New("there is no key to encrypt with: [secrets] key_file is not set")
	}
	if err := v.db.Transact(ctx, func(tx kv.Transaction) error { return checkKeys(tx, v.keys) }); err != nil {
		return err
	}
	if err := noteKey(ctx, v.db, v.keys); err != nil {
		return err
	}
	if _, err := v.reseal(ctx, first); err != nil {
		return err
	}
	// What was written meanwhile, and what could not be opened.
	left, err := v.reseal(ctx, "")
	if err != nil {
		return err
	}
	noted, err := v.noted(ctx)
	if err != nil {
		return err
	}
	for id := range noted {
		if id != first && left[id] == 0 {
			if err := v.forget(ctx, id); err != nil {
				return err
			}
			delete(noted, id)
		}
	}
	if err := v.print(cmd, left, noted); err != nil {
		return err
	}
	delete(left, first)
	if len(left) == 0 {
		return nil
	}
	id := slices.Sorted(maps.Keys(left))[0]
	switch {
	case id == "":
		return fmt.Errorf("%d values are not encrypted: a node writes without a key", left[id])
	case v.keys.Has(id):
		return fmt.Errorf("%d values are encrypted with the key %q: a node writes with it, or they cannot be decrypted", left[id], id)
	}
	return fmt.Errorf("%d values are encrypted with the key %q, which is lost: the documents and jobs among them are to be "+
		"replaced or deleted", left[id], id)
}

func (v *vault) noted(ctx context.Context) (map[string][]byte, error) {
	return kv.TransactValue(ctx, v.db, func(tx kv.Transaction) (map[string][]byte, error) { return notedKeys(tx) })
}

// forget lets nodes start without a key.
func (v *vault) forget(ctx context.Context, id string) error {
	return v.db.Transact(ctx, func(tx kv.Transaction) error {
		tx.Clear(metaKeys.Pack(id))
		return nil
	})
}

// giveUp is forget for a key that is lost, with what no node starts without.
func (v *vault) giveUp(ctx context.Context, id string) error {
	return v.db.Transact(ctx, func(tx kv.Transaction) error {
		tx.Clear(metaKeys.Pack(id))
		return accounts.Forget(tx, tuple.NewSubspace("accounts").Bytes(), v.keys, id)
	})
}

// print writes a table of the keys.
func (v *vault) print(cmd *cobra.Command, counts map[string]int64, noted map[string][]byte) error {
	rows := maps.Clone(counts)
	for id := range noted {
		rows[id] += 0
	}
	for _, id := range v.keys.IDs() {
		rows[id] += 0
	}
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	// What is written here goes nowhere before Flush, whose error counts.
	_, _ = fmt.Fprintln(table, "key\tvalues\tin the key file\tneeded")
	for _, id := range slices.Sorted(maps.Keys(rows)) {
		name, has, needed := id, "no", "no"
		switch {
		case id == "":
			name, has = "(not encrypted)", ""
		case id == v.keys.First():
			has = "first"
		case v.keys.Has(id):
			has = "yes"
		}
		if _, is := noted[id]; is || id != "" && rows[id] > 0 {
			needed = "yes"
		}
		if id == "" {
			needed = ""
		}
		_, _ = fmt.Fprintf(table, "%s\t%d\t%s\t%s\n", name, rows[id], has, needed)
	}
	return table.Flush()
}
