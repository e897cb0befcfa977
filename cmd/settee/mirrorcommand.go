package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// defaultDatabases and maxDatabases are the default and the maximum of --databases.
const defaultDatabases, maxDatabases = 8, 100

// mirrorFlags are the flags of replicate and verify for whole servers. Those of the field `mirror` of a document have the
// names of its members.
type mirrorFlags struct {
	mirror                  bool
	include, exclude        []string
	prefix                  string
	noSecurity, replicators bool
	adopt, chain            bool // of replicate
	databases               int
}

func (m *mirrorFlags) register(f *pflag.FlagSet, verb string) {
	f.BoolVar(&m.mirror, "mirror", false, verb+" all databases of a server; the URLs name the servers")
	f.StringArrayVar(&m.include, "include", nil, "with --mirror: only databases whose names match this pattern, in which * is any text; may be repeated")
	f.StringArrayVar(&m.exclude, "exclude", nil, "with --mirror: no databases whose names match this pattern; may be repeated")
	f.StringVar(&m.prefix, "prefix", "", "with --mirror: what the names of the target's databases begin with, before those of the source")
	f.BoolVar(&m.noSecurity, "no-security", false, "with --mirror: do not "+verb+" _security")
	f.BoolVar(&m.replicators, "replicators", false, "with --mirror: also "+verb+" replicator databases that --include names; "+
		"the target runs the replications in them, too")
	if verb == "copy" {
		f.BoolVar(&m.adopt, "adopt", false, "with --mirror: also copy into databases that are there and that no mirror has made of these sources; "+
			"their _security stays")
		f.BoolVar(&m.chain, "chain", false, "with --mirror: also copy databases that a mirror has made of others")
	}
	f.IntVar(&m.databases, "databases", defaultDatabases, fmt.Sprintf("with --mirror: the number of databases at a time, at most %d", maxDatabases))
}

// check returns an error that names a flag if the flags of a command exclude each other.
func (m *mirrorFlags) check(cmd *cobra.Command) error {
	f := cmd.Flags()
	if !m.mirror {
		for _, name := range []string{"include", "exclude", "prefix", "no-security", "replicators", "adopt", "chain", "databases"} {
			if f.Changed(name) {
				return fmt.Errorf("--%s needs --mirror", name)
			}
		}
		return nil
	}
	for _, name := range []string{"continuous", "create-target", "doc-id", "since-seq"} {
		if f.Changed(name) {
			return fmt.Errorf("--%s cannot be used with --mirror", name)
		}
	}
	for name, patterns := range map[string][]string{"include": m.include, "exclude": m.exclude} {
		if slices.Contains(patterns, "") {
			return fmt.Errorf("--%s must not be empty", name)
		}
	}
	return within("databases", m.databases, 1, maxDatabases)
}

// add adds the field `mirror` to a body of POST /_replicate.
func (m *mirrorFlags) add(body map[string]any) {
	if !m.mirror {
		return
	}
	field := map[string]any{
		"security": !m.noSecurity, "prefix": m.prefix, "replicators": m.replicators, "adopt": m.adopt, "chain": m.chain,
	}
	for name, patterns := range map[string][]string{"include": m.include, "exclude": m.exclude} {
		if patterns != nil { // no patterns are none, and not all
			field[name] = patterns
		}
	}
	body["mirror"] = field
}

var mirrorMember = regexp.MustCompile("(?:parameter )?`mirror\\.(\\w+)`(?: true)?")

// nameFlags returns an error of the parser with the flags in the place of the members of `mirror`.
func nameFlags(err error) error {
	text := err.Error()
	if named := mirrorMember.ReplaceAllString(text, "--$1"); named != text {
		return errors.New(named)
	}
	return err
}
