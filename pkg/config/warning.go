package config

import (
	"fmt"
	"slices"
	"strings"
)

// Warning is about a part of the configuration that has no effect. It contains no secrets.
type Warning struct {
	Section string // empty for a line outside of sections
	Key     string // empty for a whole section
	From    string // the first place, such as local.ini:12
	Reason  string // the problem, and what happens instead
	Nearest string // the setting or the section that a mistyped name may mean, such as [replicator] max_jobs, or ""

	mistyped bool // the name may be mistyped
}

// String returns the warning in one line.
func (w Warning) String() string {
	subject := ""
	switch {
	case w.Key != "":
		subject = name{w.Section, w.Key}.String() + ", "
	case w.Section != "":
		subject = "[" + w.Section + "], "
	}
	text := fmt.Sprintf("%s%s: %s", subject, w.From, w.Reason)
	if w.Nearest != "" {
		text += "; did you mean " + w.Nearest + "?"
	}
	return printable(text)
}

// warningsOf returns the warnings about layers of one origin, at most one for each key or
// section.
func warningsOf(origin Origin, layers []Layer) []Warning {
	var warnings []Warning
	seen := make(map[name]bool)
	for _, layer := range layers {
		for _, v := range layer {
			w, ok := warningOf(origin, v)
			if about := (name{w.Section, w.Key}); ok && !seen[about] {
				seen[about] = true
				if w.mistyped {
					w.Nearest = nearest(v.name())
				}
				warnings = append(warnings, w)
			}
		}
	}
	return warnings
}

// Unused reports whether a value of a key would have no effect.
func Unused(section, key string) bool {
	_, unused := warningOf(OriginStore, Value{Section: section, Key: key})
	return unused
}

// warningOf returns the warning about one value, if there is one. There is none for a CouchDB
// section that settee does not use, except in a flag and in the store.
func warningOf(origin Origin, v Value) (Warning, bool) {
	if known(v.name()) {
		return Warning{}, false
	}
	key := Warning{Section: v.Section, Key: v.Key, From: v.From}
	section := Warning{Section: v.Section, From: v.From}
	if why, ok := whyIneffective(v.name()); ok {
		key.Reason = "has no effect: " + why
		return key, true
	}
	now, _ := current(v.name())
	switch {
	case strings.HasPrefix(v.Section, "cors:"):
		section.Reason = "has no effect: [cors] applies to every host"
		return section, true
	case slices.Contains(whollyKnown, v.Section):
		key.Reason, key.mistyped = "is not a setting", true
		return key, true
	case origin == OriginFlag, origin == OriginStore, slices.Contains(partlyUsed, now.section):
		key.Reason, key.mistyped = "is not used by settee", true
		return key, true
	case ofCouchDB(v.Section):
		return Warning{}, false
	default:
		section.mistyped = true
		section.Reason = "is neither a section of settee nor one of CouchDB"
		return section, true
	}
}
