package config

// CheckFiles returns what a node would refuse of ini files, which are read as Load reads them, and what it would ignore.
// With an error in refused, a node does not start. ignored also has the sections of CouchDB that settee does not use,
// for which a node has no warning.
func CheckFiles(paths []string) (refused []error, ignored []Warning) {
	layers, ignored, err := ReadFiles(paths)
	refused = append(refused, separate(err)...)
	cfg := new(Config)
	cfg.layers[OriginFile] = layers
	wrong := separate(cfg.resolve())
	refused = append(refused, wrong...)
	ignored = append(ignored, warningsOf(OriginFile, layers)...)
	if len(wrong) == 0 {
		ignored = append(ignored, cfg.remarks()...)
	}
	seen := make(map[string]bool)
	for _, layer := range layers {
		for _, v := range layer {
			if _, warned := warningOf(OriginFile, v); !warned && !known(v.name()) && !seen[v.Section] {
				seen[v.Section] = true
				ignored = append(ignored, Warning{Section: v.Section, From: v.From, Reason: "is not used by settee"})
			}
		}
	}
	return refused, ignored
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
