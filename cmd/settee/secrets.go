package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"settee/fdbjobs"
	"settee/frontend/accounts"
	"settee/pkg/config"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/retry"
	"settee/pkg/sealed"
	"settee/pkg/tuple"
	"settee/replicator"
	"settee/replicator/jobs"
)

// metaKeys has a note for each key that values of the store may be sealed with:
//
//	(meta, "keys", id) -> sealedText, sealed with the key
//
// A node notes a key before it seals anything with it. So a node that lacks a key, or has a
// different key with the same id, fails when it starts, and not at each value that it cannot open.
var metaKeys = tuple.NewSubspace("meta", "keys")

// sealedText is the text in the notes.
var sealedText = []byte("settee")

// readKeys reads the key file. It returns no keys if none is configured.
func readKeys(cfg *config.Config) (*sealed.Keys, error) {
	path := config.SecretsKeyFile.Get(cfg)
	if path == "" {
		return new(sealed.Keys), nil
	}
	return sealed.Read(path)
}

// sealedDatabase reports whether the documents of a database are sealed, because they have credentials of endpoints or
// keys of one-time passwords.
func sealedDatabase(name string) bool {
	return replicator.IsReplicatorDatabase(name) || accounts.IsDatabase(name)
}

// openKeys reads the node's keys, checks that none that the store needs is missing, and notes the key that new values
// are sealed with.
func (n *node) openKeys(ctx context.Context) (err error) {
	if n.keys, err = readKeys(n.cfg); err != nil {
		return err
	}
	if err := n.db.Transact(ctx, func(tx kv.Transaction) error { return checkKeys(tx, n.keys) }); err != nil {
		return err
	}
	if n.keys.First() == "" {
		n.log.Info().Msg("the credentials of replications and the keys of one-time passwords are stored in plain text: [secrets] key_file is not set")
	} else {
		n.log.Info().Strs("keys", n.keys.IDs()).Msg("the credentials of replications and the keys of one-time passwords are stored encrypted, with the first of the keys")
	}
	return noteKey(ctx, n.db, n.keys)
}

// checkKeys returns an error if the store needs a key that keys lacks or that differs in keys.
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
			return fmt.Errorf("the store may have values that are %w. If the key is lost, these values are lost too, and "+
				"`settee secrets forget %s` lets nodes start without it", unknown, id)
		case err != nil:
			return fmt.Errorf("the key %q of the key file ([secrets] key_file) is not the key of this id that the store's values are sealed with", id)
		}
	}
	return nil
}

func notedKeys(tx kv.ReadTransaction) (map[string][]byte, error) {
	begin, end := metaKeys.Range()
	pairs, err := tx.GetRange(kv.KeyRange{Begin: begin, End: end}, kv.RangeOptions{}).Slice()
	if err != nil {
		return nil, err
	}
	noted := make(map[string][]byte, len(pairs))
	for _, pair := range pairs {
		key, err := metaKeys.Unpack(pair.Key)
		if err != nil || len(key) != 1 {
			return nil, fmt.Errorf("reading the notes of keys: unknown form %v", key)
		}
		id, _ := key[0].(string)
		noted[id] = pair.Value
	}
	return noted, nil
}

// noteKey notes the key that new values are sealed with. Nodes without that key refuse the store from then on.
func noteKey(ctx context.Context, db kv.Database, keys *sealed.Keys) error {
	id := keys.First()
	if id == "" {
		return nil
	}
	key, note := metaKeys.Pack(id), keys.Seal(sealedText, "key", id)
	return db.Transact(ctx, func(tx kv.Transaction) error {
		noted, err := tx.Get(key).Await()
		if err == nil && noted == nil {
			tx.Set(key, note)
		}
		return err
	})
}

// keepNoted notes the key at intervals until ctx ends, because reseal on another node may have removed the note while
// the key had no values.
func (n *node) keepNoted(ctx context.Context) {
	for n.keys.First() != "" && retry.Wait(ctx, noteEvery) == nil {
		_ = noteKey(ctx, n.db, n.keys) // a later call makes up for a failure
	}
}

func newSecrets() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secrets",
		Short: "Make and rotate the keys that encrypt credentials in the store",
		Long: "With [secrets] key_file set, a node stores the credentials of replications encrypted. The key\n" +
			"file has a key in each line: the first one encrypts, all of them decrypt.\n\n" +
			"To rotate the keys: make a new key (settee secrets new-key), append its line to the key files of all\n" +
			"nodes and restart them. Then make it the first line on all nodes and restart them. Then run settee secrets reseal.\n" +
			"Keys that it shows as not needed can be removed from the files.\n\n" +
			"Only one process can open a store in a directory: stop the node before you run keys, reseal or\n" +
			"forget. With a store on FoundationDB the nodes may run.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSecretsNewKey(), newSecretsKeys(), newSecretsReseal(), newSecretsForget())
	return cmd
}

func newSecretsNewKey() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "new-key ID",
		Short: "Print a line for the key file, with a new key that has this id, or append it to the file",
		Long: "new-key prints a line for the key file. With --append it writes the line to the end of the file. Root\n" +
			"writes a file of /etc/settee for the service of the packages, which can read it.",
		Example: "  sudo settee secrets new-key 2026-02 --append /etc/settee/keys",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			line, err := sealed.NewLine(args[0])
			if err != nil {
				return usage(cmd, err)
			}
			if path != "" {
				return appendKey(path, line)
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), line)
			return err
		},
	}
	cmd.Flags().StringVar(&path, "append", "", "append the line to this file, which is made if it is missing")
	return cmd
}

// appendKey appends a line to a key file.
func appendKey(path, line string) error {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if n := len(text); n > 0 && text[n-1] != '\n' {
		text = append(text, '\n')
	}
	text = append(text, line...)
	if _, err := sealed.Parse(path, text); err != nil {
		return err
	}
	return writeForService(path, text)
}

func newSecretsKeys() *cobra.Command {
	var flags configFlags
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Count the encrypted values of the store by key",
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
		Short: "Encrypt all values with the first key",
		Long: "reseal goes through the whole store, and encrypts with the first key of the key file what is\n" +
			"encrypted with another key or not at all. It can be interrupted and started again at any time.\n" +
			"Run it when all nodes have the first key.",
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
		Long: "forget lets nodes start without the key of this id. The values that are encrypted with it are\n" +
			"lost: jobs crash; documents can be replaced but not read, so users cannot log in before an\n" +
			"administrator has replaced theirs; sessions end; encrypted settings in the store have no effect.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withVault(cmd, &flags, func(ctx context.Context, v *vault) error {
				if v.keys.Has(args[0]) {
					return fmt.Errorf("the key %q is not lost: the key file ([secrets] key_file) has it. Run settee secrets reseal "+
						"to replace it; that also forgets a key that is no longer needed", args[0])
				}
				noted, err := v.noted(ctx)
				if err != nil {
					return err
				}
				counts, err := v.reseal(ctx, "")
				if err == nil && noted[args[0]] == nil && counts[args[0]] == 0 {
					err = fmt.Errorf("the store has no key %q", args[0])
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

// vault is a store and the keys of its sealed values.
type vault struct {
	db   kv.Database
	keys *sealed.Keys
}

// withVault calls do with the configured store.
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
	db, err := openStore(ctx, cfg, kv.Options{}, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return do(ctx, &vault{db, keys})
}

// reseal returns the number of sealed values by key id; the id "" stands for values that are not
// sealed. If keyID is not empty, it must be the id of the first key, and reseal seals all other
// values with this key.
func (v *vault) reseal(ctx context.Context, keyID string) (map[string]int64, error) {
	docs := docstore.Open(v.db, docsPrefix, docstore.Options{Sealer: v.keys, Sealed: sealedDatabase})
	defer docs.Close()
	layer := fdbjobs.Open(v.db, jobsPrefix, fdbjobs.Options{Sealer: v.keys, Derive: jobs.Derivations()})
	defer layer.Close()
	all := map[string]int64{}
	for _, part := range []func(context.Context, string) (map[string]int64, error){
		docs.Reseal,
		layer.Queue(jobs.QueueName).Reseal,
		func(ctx context.Context, keyID string) (map[string]int64, error) {
			return config.Reseal(ctx, v.db, configPrefix, v.keys, keyID)
		},
		func(ctx context.Context, keyID string) (map[string]int64, error) {
			return accounts.Reseal(ctx, v.db, accountsPrefix, v.keys, keyID)
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

// rotate seals all values with the first key, and forgets the keys that are no longer needed.
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
	// Values that were written meanwhile or could not be opened.
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
		return fmt.Errorf("%d values are not encrypted: a node is running without a key", left[id])
	case v.keys.Has(id):
		return fmt.Errorf("%d values are encrypted with the key %q: a node is encrypting with it, or they cannot be decrypted", left[id], id)
	}
	return fmt.Errorf("%d values are encrypted with the key %q, which is lost: replace or delete the documents and jobs "+
		"among them", left[id], id)
}

func (v *vault) noted(ctx context.Context) (map[string][]byte, error) {
	return kv.TransactValue(ctx, v.db, func(tx kv.Transaction) (map[string][]byte, error) { return notedKeys(tx) })
}

// forget removes the note of a key, so that nodes start without it.
func (v *vault) forget(ctx context.Context, id string) error {
	return v.db.Transact(ctx, func(tx kv.Transaction) error {
		tx.Clear(metaKeys.Pack(id))
		return nil
	})
}

// giveUp forgets a lost key. It also removes the values sealed with it that a node needs to start.
func (v *vault) giveUp(ctx context.Context, id string) error {
	return v.db.Transact(ctx, func(tx kv.Transaction) error {
		tx.Clear(metaKeys.Pack(id))
		return accounts.Forget(tx, accountsPrefix, v.keys, id)
	})
}

// print prints a table of the keys.
func (v *vault) print(cmd *cobra.Command, counts map[string]int64, noted map[string][]byte) error {
	rows := maps.Clone(counts)
	for id := range noted {
		rows[id] += 0
	}
	for _, id := range v.keys.IDs() {
		rows[id] += 0
	}
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	// Flush writes the table and returns the error.
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
