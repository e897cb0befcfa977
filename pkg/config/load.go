package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Options are the options of Load.
type Options struct {
	// Files are ini files, the strongest last. A directory means its files *.ini, sorted by name
	// (CouchDB's local.d).
	Files []string
	// Environ is the environment, in the form of os.Environ. COUCHDB_NODE_TYPE_<ROLE>, true or
	// false, sets [node_types] <role> (RFC 013). COUCHDB_USER and COUCHDB_PASSWORD together set
	// an entry of [admins], as in CouchDB's container images. Other variables are ignored.
	Environ []string
	// Flags are the values of --set, section/key=value.
	Flags []string
	// Store is the value of --store, or empty. It overrides [settee] store in Flags.
	Store string
}

// Load reads all sources and returns the resulting configuration. The warnings are for the log.
// The error joins all problems: files that cannot be read, malformed flags, and the errors of
// With.
func Load(o Options) (*Config, []Warning, error) {
	files, warnings, err := ReadFiles(o.Files)
	problems := []error{err}
	flags, err := flagLayer(o)
	problems = append(problems, err)

	cfg := new(Config)
	cfg.layers[OriginFile] = files
	cfg.layers[OriginEnvironment] = []Layer{environmentLayer(o.Environ)}
	cfg.layers[OriginFlag] = []Layer{flags}
	problems = append(problems, cfg.resolve())
	if err := errors.Join(problems...); err != nil {
		return nil, nil, err
	}
	for origin, layers := range cfg.layers {
		warnings = append(warnings, warningsOf(Origin(origin), layers)...)
	}
	return cfg, append(warnings, cfg.remarks()...), nil
}

// ReadFiles reads ini files, and the ini files of directories, into one layer each. To reload
// files, pass the layers to With(OriginFile, ...). The warnings are about lines that are ignored;
// the error joins the errors of all files that cannot be read.
func ReadFiles(paths []string) ([]Layer, []Warning, error) {
	var (
		layers   []Layer
		warnings []Warning
		problems []error
	)
	for _, path := range paths {
		files, err := expand(path)
		if err != nil {
			problems = append(problems, fmt.Errorf("reading the configuration: %w", err))
			continue
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				problems = append(problems, fmt.Errorf("reading the configuration: %w", err))
				continue
			}
			layer, ignored := fileLayer(file, string(data))
			layers = append(layers, layer)
			warnings = append(warnings, ignored...)
		}
	}
	return layers, warnings, errors.Join(problems...)
}

// expand returns the file itself, or the ini files of a directory, sorted by name.
func expand(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if !e.IsDir() && filepath.Ext(e.Name()) == ".ini" {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	return files, nil
}

func fileLayer(file, data string) (Layer, []Warning) {
	entries, remarks := parseINI(data)
	layer := make(Layer, 0, len(entries))
	for _, e := range entries {
		layer = append(layer, Value{e.section, e.key, e.text, fmt.Sprintf("%s:%d", file, e.line)})
	}
	warnings := make([]Warning, 0, len(remarks))
	for _, r := range remarks {
		warnings = append(warnings, Warning{From: fmt.Sprintf("%s:%d", file, r.line), Reason: r.reason})
	}
	return layer, warnings
}

// environmentLayer reads the roles and an administrator from the environment. RFC 013 reads any
// text except false as true. Here other texts are refused, because a frontend that was meant to
// be switched off with "no" must not start.
func environmentLayer(environ []string) Layer {
	const prefix = "COUCHDB_NODE_TYPE_"
	var layer Layer
	var user, password string
	for _, variable := range environ {
		key, text, _ := strings.Cut(variable, "=")
		switch key {
		case "COUCHDB_USER":
			user = text
		case "COUCHDB_PASSWORD":
			password = text
		}
		role, ok := strings.CutPrefix(key, prefix)
		if !ok || role == "" {
			continue
		}
		layer = append(layer, Value{
			Section: "node_types",
			Key:     strings.ToLower(role),
			Text:    strings.ToLower(trimBlanks(text)),
			From:    "environment variable " + key,
		})
	}
	if user != "" && password != "" {
		layer = append(layer, Value{"admins", user, password, "environment variable COUCHDB_PASSWORD"})
	}
	return layer
}

// flagLayer parses flags of the form section/key=value. "key=value" is split like a line of an
// ini file. The section ends at the first slash, because keys may contain slashes (names of
// replicator databases in [replicator.shares]).
func flagLayer(o Options) (Layer, error) {
	var (
		layer    Layer
		problems []error
	)
	for _, flag := range o.Flags {
		path, text, _ := splitSetting(flag)
		section, key, _ := strings.Cut(path, "/")
		if section == "" || key == "" || text == "" {
			// Quote only the part of the flag that cannot be a secret.
			start, _, _ := strings.Cut(flag, "=")
			start, _, _ = strings.Cut(start, "/")
			problems = append(problems, fmt.Errorf("--set %q...: it must be section/key=value, with a value", start))
			continue
		}
		layer = append(layer, Value{section, key, text, "--set"})
	}
	if o.Store != "" {
		d := Store.def
		layer = append(layer, Value{d.section, d.spellings[0].key, o.Store, "--store"})
	}
	return layer, errors.Join(problems...)
}
