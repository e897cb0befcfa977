package config

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
)

// WriteINI writes the effective configuration as an ini file: for every setting its comment, its
// allowed values, its value and, in a comment after that, its origin. Loading the file gives
// every setting the same value.
//
// Unknown keys follow as comments in their section. Secrets, and URLs that contain one, are
// masked and written as comments, so that a mask is never read as a value.
func (c *Config) WriteINI(w io.Writer) error {
	var b strings.Builder
	b.WriteString("; The effective configuration of settee. The comment after each value is its origin.\n")
	unknown, foreign := c.unknownBySection()
	for _, section := range ownSections() {
		fmt.Fprintf(&b, "\n[%s]\n", section)
		for _, d := range table.settings {
			if d.section == section {
				describe(&b, d)
				r := c.find(d)
				writeLine(&b, d.spelled(r.rank), r)
			}
		}
		if f := familyOf(section); f != nil {
			writeFamily(&b, c, f)
		}
		writeUnknown(&b, unknown[section])
	}
	for _, section := range foreign {
		fmt.Fprintf(&b, "\n;[%s]\n", printable(section))
		writeUnknown(&b, unknown[section])
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteDefaults writes an ini file with all settings as comments: for each one its comment, its allowed values and its
// default. Loading the file changes nothing.
func WriteDefaults(w io.Writer) error {
	var b strings.Builder
	b.WriteString("; The settings of settee and their defaults. Remove the ; before a key to set it.\n")
	for _, section := range ownSections() {
		fmt.Fprintf(&b, "\n[%s]\n", section)
		for _, d := range table.settings {
			if d.section == section {
				describe(&b, d)
				fmt.Fprintf(&b, ";%s\n", strings.TrimSpace(d.spellings[0].key+" = "+d.byDefault.text))
			}
		}
		if f := familyOf(section); f != nil {
			writeComment(&b, f.comment)
			fmt.Fprintf(&b, "; KEY: %s. Default: %s\n;KEY =\n", f.want, f.absent)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// describe writes what a setting means, and which values it may have.
func describe(b *strings.Builder, d *definition) {
	writeComment(b, d.comment)
	for i, s := range d.spellings {
		note := ""
		switch {
		case i > 0:
			note = " Overrides " + d.spellings[0].key + "."
		case d.byDefault.text != "":
			note = " Default: " + d.byDefault.text
		}
		fmt.Fprintf(b, "; %s: %s.%s\n", s.key, s.want, note)
	}
	if d.atStart {
		b.WriteString("; It is read only when the node starts and cannot be set in the store.\n")
	}
}

// writeFamily writes the values of a family, sorted by key.
func writeFamily(b *strings.Builder, c *Config, f *family) {
	writeComment(b, f.comment)
	fmt.Fprintf(b, "; KEY: %s. Default: %s\n", f.want, f.absent)
	for _, key := range c.members(f) {
		writeLine(b, name{f.section, key}, c.families[f][key])
	}
}

func writeComment(b *strings.Builder, comment string) {
	b.WriteByte('\n')
	for line := range strings.SplitSeq(comment, "\n") {
		fmt.Fprintf(b, "; %s\n", line)
	}
}

// writeLine writes a value and its origin.
func writeLine(b *strings.Builder, n name, r resolved) {
	shown := show(n, r.text)
	line, ok := formatSetting(n.key, shown)
	if !ok || shown != r.text {
		line = "; " + strings.TrimSuffix(n.key+" = "+shown, " ")
	}
	fmt.Fprintf(b, "%s ; %s\n", line, printable(r.from))
}

// writeUnknown writes the unknown keys of a section as comments.
func writeUnknown(b *strings.Builder, unknown []Value) {
	for i, v := range unknown {
		if i == 0 {
			b.WriteString("\n; Without effect:\n")
		}
		fmt.Fprintf(b, ";   %s ; %s\n", printable(v.Key+" = "+show(v.name(), v.Text)), printable(v.From))
	}
}

// ownSections returns the sections of the settings, in the order of the table.
func ownSections() []string {
	var own []string
	for _, d := range table.settings {
		if !slices.Contains(own, d.section) {
			own = append(own, d.section)
		}
	}
	for _, f := range table.families {
		own = append(own, f.section)
	}
	return own
}

// unknownBySection returns the unknown values of each section, and the sections without settings,
// in the order of their first values.
func (c *Config) unknownBySection() (unknown map[string][]Value, foreign []string) {
	own := ownSections()
	unknown = make(map[string][]Value)
	for _, v := range c.unknown() {
		if unknown[v.Section] == nil && !slices.Contains(own, v.Section) {
			foreign = append(foreign, v.Section)
		}
		unknown[v.Section] = append(unknown[v.Section], v)
	}
	return unknown, foreign
}

// unknown returns the unknown values in all layers: the strongest one of each name, in the order
// of the first ones.
func (c *Config) unknown() []Value {
	var all []Value
	at := make(map[name]int)
	for _, layers := range c.layers {
		for _, layer := range layers {
			for _, v := range layer {
				if known(v.name()) {
					continue
				}
				if i, ok := at[v.name()]; ok {
					all[i] = v
					continue
				}
				at[v.name()] = len(all)
				all = append(all, v)
			}
		}
	}
	return all
}

// printable replaces control characters.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, s)
}
