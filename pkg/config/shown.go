package config

import (
	"slices"
	"strings"
)

// Shown returns all texts that are set, by section and key: each setting by the spelling that is
// used, with the value that is in effect, the values of older names, and unknown keys. Secrets are
// masked. Empty texts are left out, except those in the store.
func (c *Config) Shown() map[string]map[string]string {
	all := make(map[string]map[string]string)
	c.each(func(n name, text string) {
		if all[n.section] == nil {
			all[n.section] = make(map[string]string)
		}
		all[n.section][n.key] = show(n, text)
	})
	return all
}

// Sourced is the text of a setting, with a secret masked, and where it comes from: default, store, environment, flag, or
// a place such as local.ini:12.
type Sourced struct {
	Value  string `json:"value"`
	Origin string `json:"origin"`
	// AtStart says that the setting is read only when a node starts, so that the store cannot have it.
	AtStart bool `json:"at_start,omitempty"`
	// Meaning is what a known setting is for, in sentences, Wants the values that it can have, and Unit their unit.
	Meaning string `json:"meaning,omitempty"`
	Wants   string `json:"wants,omitempty"`
	Unit    string `json:"unit,omitempty"`
}

// Sourced returns what Shown does, with the origin of each value and what it means, and the settings that are not set, whose
// value is empty.
func (c *Config) Sourced() map[string]map[string]Sourced {
	all := make(map[string]map[string]Sourced)
	add := func(n name, text string) {
		if all[n.section] == nil {
			all[n.section] = make(map[string]Sourced)
		}
		its := Sourced{Value: show(n, text), Origin: c.from(n)}
		if f := familyOf(n.section); f != nil {
			its.Meaning, its.Wants = inOneLine(f.comment), f.want
		} else if d, rank, ok := lookup(n); ok {
			its.AtStart, its.Meaning, its.Wants, its.Unit = d.atStart, inOneLine(d.comment), d.spellings[rank].want, d.spellings[rank].unit
		}
		all[n.section][n.key] = its
	}
	for _, d := range table.settings {
		if r := c.find(d); r.text == "" {
			add(d.spelled(r.rank), "")
		}
	}
	c.each(add)
	return all
}

// inOneLine returns a comment as text for a page.
func inOneLine(comment string) string { return strings.ReplaceAll(comment, "\n", " ") }

// each calls f for each text that Shown returns, unmasked.
func (c *Config) each(f func(n name, text string)) {
	set := func(n name, text string) {
		if text != "" && !c.blank[n] {
			f(n, text)
		}
	}
	for _, d := range table.settings {
		r := c.find(d)
		set(d.spelled(r.rank), r.text)
		r = c.older[d]
		set(name{olderSection(d.section), d.spellings[r.rank].key}, r.text)
	}
	for _, family := range table.families {
		for key, r := range c.families[family] {
			set(name{family.section, key}, r.text)
		}
	}
	for _, v := range c.unknown() {
		set(v.name(), v.Text)
	}
	for n := range c.blank {
		f(n, "")
	}
}

// text returns the text that Shown has for a name, unmasked, and its origin.
func (c *Config) text(n name) (text, from string) {
	if c.blank[n] {
		return "", OriginStore.String()
	}
	if f := familyOf(n.section); f != nil {
		r := c.families[f][n.key]
		return r.text, r.from
	}
	if d, rank, ok := lookup(n); ok {
		r := c.find(d)
		if _, older := current(n); older {
			r = c.older[d]
		}
		if r.rank == rank {
			return r.text, r.from
		}
		return "", ""
	}
	for _, v := range c.unknown() {
		if v.name() == n {
			return v.Text, v.From
		}
	}
	return "", ""
}

// from returns the origin of the value of a name, in any spelling of the setting.
func (c *Config) from(n name) string {
	if _, older := current(n); !older && !c.blank[n] {
		if d, _, ok := lookup(n); ok {
			return c.find(d).from
		}
	}
	_, from := c.text(n)
	return from
}

// difference is a setting with different values in two configurations.
type difference struct {
	name     name // as spelled in the second one
	was, now string
	from     string
	atStart  bool
}

// differences returns the settings with another value in other, in the order of the table.
func (c *Config) differences(other *Config) []difference {
	var all []difference
	for _, d := range table.settings {
		before, after := c.find(d), other.find(d)
		if before.text != after.text || before.rank != after.rank {
			n := d.spelled(after.rank)
			all = append(all, difference{n, before.text, after.text, after.from, d.atStart})
		}
	}
	for _, f := range table.families {
		keys := append(c.members(f), other.members(f)...)
		slices.Sort(keys)
		for _, key := range slices.Compact(keys) {
			before, after := c.families[f][key], other.families[f][key]
			if before.text != after.text {
				all = append(all, difference{name{f.section, key}, before.text, after.text, after.from, false})
			}
		}
	}
	return all
}
