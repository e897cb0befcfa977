package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"settee/pkg/config"
)

// unitFlags are the flags of the units of the packages that name their files.
const unitFlags = "--config /etc/settee --config /etc/settee/local.d"

// configFlags are the flags of all commands that read the configuration. Only those that are about a store, or that take the
// flags of a node, have --store.
type configFlags struct {
	files, sets []string
	store       string
}

func (f *configFlags) register(cmd *cobra.Command) {
	f.registerStoreless(cmd)
	cmd.Flags().StringVar(&f.store, "store", "",
		"the URL of the store: pebble:DIRECTORY, mem: or fdb:CLUSTER_FILE?prefix=NAME")
}

// registerStoreless registers the flags without --store.
func (f *configFlags) registerStoreless(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.files, "config", nil,
		"an ini file, or a directory of ini files; may be repeated, and later ones win")
	cmd.Flags().StringArrayVar(&f.sets, "set", nil,
		"a setting, as section/key=value; may be repeated")
}

func (f *configFlags) load() (*config.Config, []config.Warning, error) {
	return config.Load(config.Options{Files: f.files, Environ: os.Environ(), Flags: f.sets, Store: f.store})
}

func newConfig() *cobra.Command {
	var flags configFlags
	defaults, check := false, false
	cmd := &cobra.Command{
		Use:   "config [FILE...]",
		Short: "Print the effective configuration as an ini file, with the origin of each value, or check files",
		Long: "config prints the settings that a node would have, as an ini file. A comment after each value says\n" +
			"where it comes from.\n\n" +
			"With --check it reads the files, or the *.ini of directories, and prints what a node would refuse or\n" +
			"ignore, with the nearest name for one that may be mistyped. Settings of CouchDB that settee does not\n" +
			"use are ignored, too. It also reads the certificates and keys that they name. It does not open the\n" +
			"store. The exit status is then 0 if it finds nothing, 1 if a node would not start with the files\n" +
			"or could not use what they name, and 3 if it would ignore something.",
		Example: "  settee config " + unitFlags + "\n" +
			"  settee config --check /opt/couchdb/etc/local.ini /opt/couchdb/etc/local.d",
		Args: func(_ *cobra.Command, args []string) error {
			if check != (len(args) > 0) {
				return errors.New("name files with --check, and only with it")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case check:
				return checkFiles(cmd, args)
			case defaults:
				return config.WriteDefaults(cmd.OutOrStdout())
			}
			cfg, warnings, err := flags.load()
			if err != nil {
				return err
			}
			for _, w := range warnings {
				cmd.PrintErrln("settee: warning:", w.String())
			}
			return cfg.WriteINI(cmd.OutOrStdout())
		},
	}
	flags.register(cmd)
	cmd.Flags().BoolVar(&defaults, "defaults", false, "print all settings with their defaults, as comments, and ignore the other flags")
	cmd.Flags().BoolVar(&check, "check", false, "print what a node would refuse or ignore of files, and ignore the other flags")
	return cmd
}

// checkFiles prints what a node would refuse or ignore of files.
func checkFiles(cmd *cobra.Command, files []string) error {
	cfg, refused, ignored := config.CheckFiles(files)
	if cfg != nil {
		refused = unusable(cfg)
	}
	var lines strings.Builder
	for _, err := range refused {
		fmt.Fprintln(&lines, "error:", err)
	}
	for _, w := range ignored {
		fmt.Fprintln(&lines, "warning:", w)
	}
	_, err := io.WriteString(cmd.OutOrStdout(), lines.String())
	switch {
	case err != nil:
		return err
	case len(refused) > 0:
		return &exitError{exitFailed, nil}
	case len(ignored) > 0:
		return &exitError{exitFindings, nil}
	}
	return nil
}
