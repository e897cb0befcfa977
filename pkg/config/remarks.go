package config

import (
	"fmt"
	"slices"
)

// remarks returns the warnings about values that are in effect and do not count as they are, by themselves or together
// with others.
func (c *Config) remarks() []Warning {
	var all []Warning
	add := func(n name, from, reason string) {
		if reason != "" {
			all = append(all, Warning{Section: n.section, Key: n.key, From: from, Reason: reason})
		}
	}
	for _, d := range table.settings {
		r := c.find(d)
		n := d.spelled(r.rank)
		if c.fromOlder(d) {
			n.section = olderSection(d.section)
		}
		add(n, r.from, d.spellings[r.rank].becomes(r.text))
	}
	for _, f := range table.families {
		for _, key := range c.members(f) {
			r := c.families[f][key]
			add(name{f.section, key}, r.from, f.member(key).becomes(r.text))
		}
	}
	if most := MaxPasswordIterations.Get(c); PasswordIterations.Get(c) > most {
		add(PasswordIterations.def.name(), PasswordIterations.From(c), fmt.Sprintf("counts as %d, which is %v", most, MaxPasswordIterations))
	}
	if EnableCORS.Get(c) && CORSCredentials.Get(c) && slices.Contains(CORSOrigins.Get(c), "*") {
		add(CORSCredentials.def.name(), CORSCredentials.From(c), fmt.Sprintf("counts as false for the * of %v (%s), because every page "+
			"of the web could act as its visitor; list the origins instead, such as https://app.example.com", CORSOrigins, CORSOrigins.From(c)))
	}
	return all
}

// becomes is kind.instead for an accepted text.
func (s spelling) becomes(text string) string {
	if s.instead == nil {
		return ""
	}
	return s.instead(text)
}
