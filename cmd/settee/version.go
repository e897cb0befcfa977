package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"settee/pkg/kv"
)

// version is the version of a release. The linker sets it.
var version string

// currentVersion returns the version of the release, or devel- and the commit, or "devel".
func currentVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				return "devel-" + setting.Value[:min(12, len(setting.Value))]
			}
		}
	}
	return "devel"
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, and the storage engines that this binary carries",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "settee %s\n%s %s/%s\nengines: %s\n",
				currentVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH, strings.Join(kv.Engines(), ", "))
			return err
		},
	}
}

// userAgent returns the default User-Agent of replications. Gateways allow that of CouchDB's replicator by name.
func userAgent() string { return "CouchDB-Replicator/3.5.0 settee/" + currentVersion() }
