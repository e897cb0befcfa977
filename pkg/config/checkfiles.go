package config

import "slices"

// CheckFiles returns the configuration of ini files, which are read as Load reads them, what a node would refuse of them, and
// what it would ignore. With an error in refused, a node does not start, and the configuration is nil. ignored also has the
// sections of CouchDB that settee does not use, for which a node has no warning.
func CheckFiles(paths []string) (cfg *Config, refused []error, ignored []Warning) {
	layers, ignored, err := ReadFiles(paths)
	refused = append(refused, separate(err)...)
	cfg = new(Config)
	cfg.layers[OriginFile] = layers
	wrong := separate(cfg.resolve())
	refused = append(refused, wrong...)
	ignored = append(ignored, warningsOf(OriginFile, layers)...)
	if len(wrong) == 0 {
		ignored = append(ignored, cfg.remarks()...)
	}
	ignored = append(ignored, unusedSections(layers)...)
	if len(refused) > 0 {
		return nil, refused, ignored
	}
	return cfg, nil, ignored
}

// unusedSections returns warnings about the sections of CouchDB that settee does not use. Those that have older names of
// settings are used in part, so the warnings are about their other keys.
func unusedSections(layers []Layer) (ignored []Warning) {
	seen := make(map[name]bool)
	for _, v := range slices.Concat(layers...) {
		_, other := whyIneffective(v.name())
		if other || known(v.name()) || usedInPart(v.name()) || !ofCouchDB(v.Section) {
			continue
		}
		w := Warning{Section: v.Section, From: v.From, Reason: "is not used by settee"}
		if _, inPart := former[v.Section]; inPart {
			if v.Text == "false" {
				continue // a switch that is off
			}
			w.Key, w.Nearest = v.Key, nearest(v.name())
		}
		if about := (name{w.Section, w.Key}); !seen[about] {
			seen[about] = true
			ignored = append(ignored, w)
		}
	}
	return ignored
}

// separate returns the errors that errors.Join has joined.
func separate(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err != nil {
		return []error{err}
	}
	return nil
}
