package main

import (
	"os"

	"github.com/spf13/cobra"

	"settee/pkg/config"
)

// configFlags are the flags of all commands that read the configuration.
type configFlags struct {
	files, sets []string
	store       string
}

func (f *configFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.files, "config", nil,
		"an ini file, or a directory of ini files; may be repeated, and later ones win")
	cmd.Flags().StringArrayVar(&f.sets, "set", nil,
		"a setting, as section/key=value; may be repeated")
	cmd.Flags().StringVar(&f.store, "store", "",
		"the URL of the store: pebble:DIRECTORY, mem: or fdb:CLUSTER_FILE?prefix=NAME")
}

func (f *configFlags) load() (*config.Config, []config.Warning, error) {
	return config.Load(config.Options{Files: f.files, Environ: os.Environ(), Flags: f.sets, Store: f.store})
}

func newConfig() *cobra.Command {
	var flags configFlags
	defaults := false
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the effective configuration as an ini file, with the origin of each value",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if defaults {
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
	return cmd
}
