package config

import "slices"

// Shown returns all that is set as sections of keys and texts: each setting by the key
// that decides it, and what is no setting. Secrets are masked, and what is empty is left
// out.
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

// each calls f for all that Shown returns, with the text as it is.
func (c *Config) each(f func(n name, text string)) {
	for _, d := range table.settings {
		if r := c.find(d); r.text != "" {
			f(name{d.section, d.spellings[r.rank].key}, r.text)
		}
	}
	for _, family := range table.families {
		for key, r := range c.families[family] {
			f(name{family.section, key}, r.text)
		}
	}
	for _, v := range c.strangers() {
		if v.Text != "" {
			f(v.name(), v.Text)
		}
	}
}

// text returns what Shown has of one name, unmasked, and where it comes from.
func (c *Config) text(n name) (text, from string) {
	if f := familyOf(n.section); f != nil {
		r := c.families[f][n.key]
		return r.text, r.from
	}
	if d, rank, ok := lookup(n); ok {
		if r := c.find(d); r.rank == rank {
			return r.text, r.from
		}
		return "", ""
	}
	for _, v := range c.strangers() {
		if v.name() == n {
			return v.Text, v.From
		}
	}
	return "", ""
}

// from says where what holds for a name comes from, whichever spelling of a setting it is.
func (c *Config) from(n name) string {
	if d, _, ok := lookup(n); ok {
		return c.find(d).from
	}
	_, from := c.text(n)
	return from
}

// difference is a setting that two configurations have different values for.
type difference struct {
	name     name // as the second one has it
	was, now string
	from     string
	atStart  bool
}

// differences returns the settings that another configuration has another value for, in
// the order of the table.
func (c *Config) differences(other *Config) []difference {
	var all []difference
	for _, d := range table.settings {
		before, after := c.find(d), other.find(d)
		if before.text != after.text || before.rank != after.rank {
			n := name{d.section, d.spellings[after.rank].key}
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
