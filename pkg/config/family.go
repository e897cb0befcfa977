package config

import (
	"maps"
	"slices"
)

// Family is a section of which every key is a name that an operator chooses, such as
// that of a database, with a value of type T.
type Family[T any] struct{ def *family }

// Get returns the values that c has, by key: nil when it has none. The map is the
// caller's own.
func (f Family[T]) Get(c *Config) map[string]T {
	members := c.families[f.def]
	if len(members) == 0 {
		return nil
	}
	values := make(map[string]T, len(members))
	for key, r := range members {
		values[key] = r.value.(T)
	}
	return values
}

// From says where the value of a key comes from: see [Setting.From].
func (f Family[T]) From(c *Config, key string) string {
	if r, ok := c.families[f.def][key]; ok {
		return r.from
	}
	return OriginDefault.String()
}

// String returns the section as an operator knows it: "[replicator.shares]".
func (f Family[T]) String() string { return "[" + f.def.section + "]" }

// family is a row of the table of settings that stands for a whole section.
type family struct {
	section string
	member  func(key string) spelling
	want    string // of the values of all keys
	comment string
	// absent is what holds for a key that is not there.
	absent string
}

// defineFamily adds a section of such keys to the table, whose values are of one kind.
func defineFamily[T any](section, absent string, k kind[T], comment string) Family[T] {
	return defineNamed(section, absent, k.want, func(string) kind[T] { return k }, comment)
}

// defineNamed is defineFamily where the kind of a value depends on its key; want is what they all are.
func defineNamed[T any](section, absent, want string, k func(key string) kind[T], comment string) Family[T] {
	if familyOf(section) != nil {
		panic("config: [" + section + "] is defined twice")
	}
	f := &family{section: section, absent: absent, want: want, comment: comment}
	f.member = func(key string) spelling {
		k := k(key)
		return spelling{want: k.want, parse: func(text string) (any, bool) {
			value, ok := k.parse(text)
			return value, ok
		}}
	}
	table.families = append(table.families, f)
	return Family[T]{f}
}

func familyOf(section string) *family {
	for _, f := range table.families {
		if f.section == section {
			return f
		}
	}
	return nil
}

// known says whether a name is one of a setting.
func known(n name) bool {
	_, _, ok := lookup(n)
	return ok || familyOf(n.section) != nil
}

// members returns the keys of a family, in their order.
func (c *Config) members(f *family) []string {
	return slices.Sorted(maps.Keys(c.families[f]))
}
