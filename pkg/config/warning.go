package config

import (
	"fmt"
	"slices"
	"strings"
)

// Warning is something in the configuration that has no effect. It holds no secrets.
type Warning struct {
	Section string // empty where a line belongs to none
	Key     string // empty where it is about a whole section
	From    string // where it stands, such as local.ini:12; the first place of several
	Reason  string // what is the matter, and what happens instead
}

// String is the warning as one line of a log.
func (w Warning) String() string {
	subject := ""
	switch {
	case w.Key != "":
		subject = name{w.Section, w.Key}.String() + ", "
	case w.Section != "":
		subject = "[" + w.Section + "], "
	}
	return printable(fmt.Sprintf("%s%s: %s", subject, w.From, w.Reason))
}

// warningsOf returns what layers of one origin say to no effect, once for each key,
// or once for each section where that says as much.
func warningsOf(origin Origin, layers []Layer) []Warning {
	var warnings []Warning
	seen := make(map[name]bool)
	for _, layer := range layers {
		for _, v := range layer {
			w, ok := warningOf(origin, v)
			if about := (name{w.Section, w.Key}); ok && !seen[about] {
				seen[about] = true
				warnings = append(warnings, w)
			}
		}
	}
	return warnings
}

// warningOf returns the warning about one value, if there is one. A section of
// CouchDB that settee has nothing to do with goes without, except in a flag, which
// nobody gives by accident.
func warningOf(origin Origin, v Value) (Warning, bool) {
	if known(v.name()) {
		return Warning{}, false
	}
	key := Warning{Section: v.Section, Key: v.Key, From: v.From}
	section := Warning{Section: v.Section, From: v.From}
	if why, ok := ineffective[v.name()]; ok {
		key.Reason = "has no effect: " + why
		return key, true
	}
	switch {
	case strings.HasPrefix(v.Section, "cors:"):
		section.Reason = "has no effect: what [cors] says holds for every host"
		return section, true
	case slices.Contains(whollyKnown, v.Section):
		key.Reason = "is not a setting"
		return key, true
	case origin == OriginFlag, slices.Contains(partlyUsed, v.Section):
		key.Reason = "is not used by settee"
		return key, true
	case ofCouchDB(v.Section):
		return Warning{}, false
	default:
		section.Reason = "is neither a section of settee nor one of CouchDB"
		return section, true
	}
}
