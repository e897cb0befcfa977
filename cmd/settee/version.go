package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"settee/pkg/kv"
)

// nextRelease is the version of builds of a commit without a tag. scripts/version reads it here. The commit of a release has that of
// the changelog's newest section, and the commits after it have the next one with -rc.
const nextRelease = "1.1.0-rc"

// version is the version of a release or of a build by make. The linker sets it.
var version string

// currentVersion returns the version that the linker has set, or nextRelease with the commit, if it is known.
func currentVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				return nextRelease + "+g" + setting.Value[:min(7, len(setting.Value))]
			}
		}
	}
	return nextRelease
}

func newVersion() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, and the storage engines that this binary carries",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(struct {
					Version string   `json:"version"`
					Go      string   `json:"go"`
					OS      string   `json:"os"`
					Arch    string   `json:"arch"`
					Engines []string `json:"engines"`
				}{currentVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH, kv.Engines()})
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "settee %s\n%s %s/%s\nengines: %s\n",
				currentVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH, strings.Join(kv.Engines(), ", "))
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object: version, go, os, arch, and engines")
	return cmd
}

// userAgent returns the default User-Agent of replications. Gateways allow the User-Agent of CouchDB's replicator by name.
func userAgent() string { return "CouchDB-Replicator/3.5.3 settee/" + currentVersion() }
