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
	all := slices.Concat(layers...)
	for _, v := range all {
		w, ok := warningOf(origin, v)
		about := name{w.Section, w.Key}
		if !ok || seen[about] || isOff(all, v.Section) {
			continue
		}
		seen[about] = true
		switch {
		case w.mistyped && w.Key == "":
			w.Nearest = nearestSection(v.Section, keysOf(all, v.Section))
		case w.mistyped:
			w.Nearest = nearest(v.name())
		}
		if w.mistyped && w.Nearest == "" && v.Text == "false" && usedInPart(v.name()) {
			continue // a switch of CouchDB that is off
		}
		warnings = append(warnings, w)
	}
	return warnings
}

// isOff reports whether a section of CouchDB has no effect in CouchDB either, because its switch is off.
func isOff(all Layer, section string) bool {
	return slices.Contains(switched, section) &&
		!slices.ContainsFunc(all, func(v Value) bool { return v.name() == name{section, "enable"} && v.Text == "true" })
}

// keysOf returns the keys of a section.
func keysOf(all Layer, section string) (keys []string) {
	for _, v := range all {
		if v.Section == section {
			keys = append(keys, v.Key)
		}
	}
	return keys
}

// Unused reports whether a value would have no effect.
func Unused(section, key, text string) bool {
	_, unused := warningOf(OriginStore, Value{Section: section, Key: key, Text: text})
	return unused
}

// losesNothing reports whether a setting without effect asks for what settee does anyway.
func losesNothing(v Value) bool {
	n, _ := current(v.name())
	same, ok := withoutLoss[n]
	return v.Text == same || !ok && v.Text == "false"
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
		return key, !losesNothing(v)
	}
	switch {
	case strings.HasPrefix(v.Section, "cors:"):
		section.Reason = "has no effect: [cors] applies to every host"
		return section, true
	case slices.Contains(whollyKnown, v.Section):
		key.Reason, key.mistyped = "is not a setting", true
		return key, true
	case origin == OriginFlag, origin == OriginStore, usedInPart(v.name()):
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
