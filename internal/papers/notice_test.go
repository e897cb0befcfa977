package papers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
)

const noticeHead = `settee
Copyright the settee authors

settee is licensed under the Apache License, Version 2.0: see the file LICENSE.

The program contains Go's standard library, packages of the Go modules below, quickjs.wasm, a file of the npm
package quickjs-wasi (QuickJS-NG with parts of wasi-libc), and the npm packages preact and uplot. Modules marked with *
are only in the build with FoundationDB. That build also loads FoundationDB's client library (Apache-2.0), which is not
part of settee. The texts of the licences follow the list; that of Apache-2.0 is in the file LICENSE. This file is
generated from the module cache and the folders named licenses by go test ./internal/papers -update.

`

// module is one that is linked into the program.
type module struct {
	path, version string
	// texts are its licences and notices.
	texts []string
}

// TestNotice compares NOTICE with the modules that are linked into the two builds of the program.
func TestNotice(t *testing.T) {
	t.Parallel()
	embedded, all := linked(t, "0", ""), linked(t, "1", "fdb")
	var list strings.Builder
	var texts []string             // each once
	users := map[string][]string{} // of each text
	for _, m := range all {
		mark := "*"
		if slices.ContainsFunc(embedded, func(other module) bool { return other.path == m.path }) {
			mark = " "
		}
		var names []string
		for _, text := range m.texts {
			licences := licencesIn(text)
			names = append(names, licences...)
			if slices.Equal(licences, []string{"Apache-2.0"}) {
				continue
			}
			if users[text] == nil {
				texts = append(texts, text)
			}
			users[text] = append(users[text], m.path)
		}
		require.NotEmpty(t, names, "which licence %s has is not known", m.path)
		slices.Sort(names)
		fmt.Fprintf(&list, "%s %-44s %-39s %s\n", mark, m.path, m.version, strings.Join(slices.Compact(names), ", "))
	}
	var b strings.Builder
	b.WriteString(noticeHead + list.String())
	for _, text := range texts {
		fmt.Fprintf(&b, "\n%s\n%s\n\n%s", strings.Repeat("-", 80), strings.Join(users[text], "\n"), text)
	}
	compare(t, "NOTICE", b.String())
}

// linked returns the modules that have a package in a build of the program for Linux, by path, and the standard library.
func linked(t *testing.T, cgo, tags string) []module {
	t.Helper()
	env := []string{"GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=" + cgo}
	goRoot := strings.TrimSpace(string(goCommand(t, env, "env", "GOROOT")))
	all := []module{{path: "Go's standard library", texts: licences(t, goRoot)}}
	out := goCommand(t, env, "list", "-deps", "-tags", tags, "-json=Dir,Module", "./cmd/settee")
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var pkg struct {
			Dir    string
			Module *struct{ Path, Version, Dir string }
		}
		err := decoder.Decode(&pkg)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if pkg.Module == nil || pkg.Module.Path == "settee" {
			continue
		}
		i := slices.IndexFunc(all, func(m module) bool { return m.path == pkg.Module.Path })
		if i < 0 {
			i = len(all)
			all = append(all, module{path: pkg.Module.Path, version: pkg.Module.Version})
		}
		// A folder of a module may have a licence of its own.
		for dir := pkg.Dir; len(dir) >= len(pkg.Module.Dir); dir = filepath.Dir(dir) {
			for _, text := range slices.Concat(licences(t, dir), licences(t, filepath.Join(dir, "licenses"))) {
				if !slices.Contains(all[i].texts, text) {
					all[i].texts = append(all[i].texts, text)
				}
			}
		}
	}
	all = append(all, packaged(t, "quickjs.wasm", "pkg/script", "quickjs-wasi"))
	for _, name := range []string{"preact", "uplot"} {
		all = append(all, packaged(t, name, "frontend/internal/dashboard", name))
	}
	for _, m := range all {
		slices.Sort(m.texts)
	}
	slices.SortFunc(all, func(a, b module) int { return strings.Compare(a.path, b.path) })
	return all
}

// packaged returns an npm package that the package.json of a folder names.
func packaged(t *testing.T, path, folder, name string) module {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, folder, "package.json"))
	require.NoError(t, err)
	var manifest struct{ Dependencies map[string]string }
	require.NoError(t, json.Unmarshal(text, &manifest))
	return module{path: path, version: manifest.Dependencies[name], texts: licences(t, filepath.Join(root, folder, "licenses", name))}
}

func goCommand(t *testing.T, env []string, args ...string) []byte {
	t.Helper()
	testkit.SkipShort(t)
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env, cmd.Stderr = root, append(os.Environ(), env...), os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	return out
}

var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|notice|copying)|^(apl|bsd|mit).*\.txt$`)

// licences returns the texts of the licences and notices in a folder.
func licences(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	require.NoError(t, err)
	var all []string
	for _, entry := range entries {
		if entry.IsDir() || !licenceFile.MatchString(entry.Name()) || strings.HasSuffix(entry.Name(), ".go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		require.NoError(t, err)
		lines := strings.ReplaceAll(strings.Trim(string(text), "\r\n "), "\r\n", "\n")
		all = append(all, trailing.ReplaceAllString(lines, "")+"\n")
	}
	return all
}

var trailing = regexp.MustCompile(`(?m)[ \t]+$`)

// licencesIn returns the SPDX identifiers of the licences in a text.
func licencesIn(text string) []string {
	text = space.ReplaceAllString(text, " ")
	var all []string
	for name, phrase := range map[string]string{
		"Apache-2.0":   "Apache License Version 2.0",
		"BSD-2-Clause": "Redistribution and use in source and binary forms",
		"BSD-3-Clause": "Neither the name",
		"MIT":          "Permission is hereby granted, free of charge",
	} {
		if strings.Contains(text, phrase) && !(name == "BSD-2-Clause" && strings.Contains(text, "Neither the name")) {
			all = append(all, name)
		}
	}
	return all
}
