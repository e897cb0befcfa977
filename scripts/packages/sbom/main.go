// Command sbom prints a software bill of materials of a Go program, in the form of CycloneDX 1.6: the modules that the
// linker has noted in it, and the npm packages whose code is embedded. It runs in the root of the repository.
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// embedded are the folders whose package.json names npm packages that are part of the program.
var embedded = []string{"pkg/script", "frontend/internal/dashboard"}

type component struct {
	Type    string `json:"type"`
	Ref     string `json:"bom-ref"`
	Name    string `json:"name"`
	Version string `json:"version"`
	URL     string `json:"purl,omitempty"`
}

type bill struct {
	Format   string `json:"bomFormat"`
	Spec     string `json:"specVersion"`
	Version  int    `json:"version"`
	Metadata struct {
		Component component `json:"component"`
	} `json:"metadata"`
	Components []component `json:"components"`
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom PROGRAM VERSION")
		os.Exit(2)
	}
	b, err := of(os.Args[1], os.Args[2])
	if err == nil {
		out := json.NewEncoder(os.Stdout)
		out.SetIndent("", "\t")
		err = out.Encode(b)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// of returns the bill of a program of a version.
func of(path, version string) (*bill, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil, err
	}
	b := &bill{Format: "CycloneDX", Spec: "1.6", Version: 1}
	b.Metadata.Component = component{Type: "application", Ref: "settee", Name: "settee", Version: version}
	b.Components = []component{library("golang", "stdlib", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		b.Components = append(b.Components, library("golang", m.Path, m.Version))
	}
	for _, folder := range embedded {
		text, err := os.ReadFile(filepath.Join(folder, "package.json"))
		if err != nil {
			return nil, err
		}
		var manifest struct{ Dependencies map[string]string }
		if err := json.Unmarshal(text, &manifest); err != nil {
			return nil, fmt.Errorf("%s/package.json: %w", folder, err)
		}
		for name, version := range manifest.Dependencies {
			b.Components = append(b.Components, library("npm", name, version))
		}
	}
	slices.SortFunc(b.Components, func(a, b component) int { return strings.Compare(a.Ref, b.Ref) })
	return b, nil
}

// library returns a package of a registry.
func library(kind, name, version string) component {
	at := "pkg:" + kind + "/" + name + "@" + url.PathEscape(version)
	return component{Type: "library", Ref: at, Name: name, Version: version, URL: at}
}
