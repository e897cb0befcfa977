package config

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
)

// WriteINI writes the effective configuration as an ini file: for every setting its
// comment, what it may be, its value and, in a comment behind that, where the value
// comes from. Read again, the file gives every setting the value that it has now.
//
// What is no setting follows as a comment in its section. So does, masked, a value
// that is a secret or a URL that has one: no placeholder can be read as a value.
func (c *Config) WriteINI(w io.Writer) error {
	var b strings.Builder
	b.WriteString("; The effective configuration of settee. Behind each value is where it comes from.\n")
	strangers, foreign := c.strangersBySection()
	for _, section := range ownSections() {
		fmt.Fprintf(&b, "\n[%s]\n", section)
		for _, d := range table.settings {
			if d.section == section {
				writeSetting(&b, d, c.find(d))
			}
		}
		if f := familyOf(section); f != nil {
			writeFamily(&b, c, f)
		}
		writeStrangers(&b, strangers[section])
	}
	for _, section := range foreign {
		fmt.Fprintf(&b, "\n;[%s]\n", printable(section))
		writeStrangers(&b, strangers[section])
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeSetting(b *strings.Builder, d *definition, r resolved) {
	writeComment(b, d.comment)
	for i, s := range d.spellings {
		note := ""
		switch {
		case i > 0:
			note = " Wins over " + d.spellings[0].key + "."
		case d.standard.text != "":
			note = " Default: " + d.standard.text
		}
		fmt.Fprintf(b, "; %s: %s.%s\n", s.key, s.want, note)
	}
	if d.atStart {
		b.WriteString("; It counts when the node starts; the store cannot have it.\n")
	}
	writeLine(b, name{d.section, d.spellings[r.rank].key}, r)
}

// writeFamily writes the keys that a section of names has, in their order.
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

// writeLine writes a value and where it comes from.
func writeLine(b *strings.Builder, n name, r resolved) {
	shown := show(n, r.text)
	line, ok := formatSetting(n.key, shown)
	if !ok || shown != r.text {
		line = "; " + strings.TrimSuffix(n.key+" = "+shown, " ")
	}
	fmt.Fprintf(b, "%s ; %s\n", line, printable(r.from))
}

// writeStrangers writes what a section has that is no setting, as comments.
func writeStrangers(b *strings.Builder, strangers []Value) {
	for i, v := range strangers {
		if i == 0 {
			b.WriteString("\n; Without effect:\n")
		}
		fmt.Fprintf(b, ";   %s ; %s\n", printable(v.Key+" = "+show(v.name(), v.Text)), printable(v.From))
	}
}

// ownSections returns the sections of the settings, in their order.
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

// strangersBySection returns the strangers of each section, and those sections, in the order in which they first come,
// that have nothing else.
func (c *Config) strangersBySection() (strangers map[string][]Value, foreign []string) {
	own := ownSections()
	strangers = make(map[string][]Value)
	for _, v := range c.strangers() {
		if strangers[v.Section] == nil && !slices.Contains(own, v.Section) {
			foreign = append(foreign, v.Section)
		}
		strangers[v.Section] = append(strangers[v.Section], v)
	}
	return strangers, foreign
}

// strangers returns the values in all layers that are no settings: of each name the
// strongest, in the order in which the names first come.
func (c *Config) strangers() []Value {
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

// printable replaces what would end a line or move a terminal's cursor.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, s)
}
