package main

import (
	"fmt"
	"os"

	"settee/pkg/certs"
	"settee/pkg/config"
	"settee/pkg/kv"
)

// unusable returns errors about what a configuration names and a node could not use: the URL of the store, certificates,
// keys, and the folder of large bodies. It reads files, and does not open the store.
func unusable(cfg *config.Config) (problems []error) {
	check := func(setting fmt.Stringer, from string, err error) {
		if err != nil {
			problems = append(problems, fmt.Errorf("%v (%s): %w", setting, from, err))
		}
	}
	check(config.Store, config.Store.From(cfg), kv.Check(config.Store.Get(cfg)))
	_, err := readKeys(cfg)
	check(config.SecretsKeyFile, config.SecretsKeyFile.From(cfg), err)
	check(config.SpoolDir, config.SpoolDir.From(cfg), isFolder(config.SpoolDir.Get(cfg)))
	if config.TLSEnable.Get(cfg) {
		_, err := (&tlsFiles{cfg: cfg}).read()
		check(config.TLSCertFile, config.TLSCertFile.From(cfg), err)
	}
	if path := config.TrustedCertificatesFile.Get(cfg); path != "" {
		_, err := certs.LoadPool(path)
		check(config.TrustedCertificatesFile, config.TrustedCertificatesFile.From(cfg), err)
	}
	if path := config.CertificateFile.Get(cfg); path != "" {
		_, err := certs.Load(path, config.KeyFile.Get(cfg), config.KeyPassword.Get(cfg))
		check(config.CertificateFile, config.CertificateFile.From(cfg), err)
	}
	return problems
}

// isFolder returns an error if a path that is not empty is no folder.
func isFolder(path string) error {
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a folder", path)
	}
	return err
}
