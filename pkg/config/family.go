package config

import (
	"maps"
	"slices"
)

// Family is a section whose keys are names that an operator chooses, such as names of databases,
// with values of type T.
type Family[T any] struct{ def *family }

// Get returns the values in c by key, nil if there are none. The caller may modify the map.
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

// Value returns the value of a key in c, and whether there is one.
func (f Family[T]) Value(c *Config, key string) (value T, ok bool) {
	r, ok := c.families[f.def][key]
	if ok {
		value = r.value.(T)
	}
	return value, ok
}

// From returns the origin of the value of a key, see [Setting.From].
func (f Family[T]) From(c *Config, key string) string {
	if r, ok := c.families[f.def][key]; ok {
		return r.from
	}
	return OriginDefault.String()
}

// family is a row of the table of settings for a whole section.
type family struct {
	section string
	member  func(key string) spelling
	want    string // describes the values of all keys
	comment string
	// absent is the value of a key that is not set.
	absent string
}

// defineFamily adds a section with free keys to the table, with values of one kind.
func defineFamily[T any](section, absent string, k kind[T], comment string) Family[T] {
	return defineNamed(section, absent, k.want, func(string) kind[T] { return k }, comment)
}

// defineNamed is defineFamily with a kind that depends on the key. want describes all values.
func defineNamed[T any](section, absent, want string, k func(key string) kind[T], comment string) Family[T] {
	if familyOf(section) != nil {
		panic("config: [" + section + "] is defined twice")
	}
	f := &family{section: section, absent: absent, want: want, comment: comment}
	f.member = func(key string) spelling { return k(key).spelling(key) }
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

// known reports whether a setting has a name.
func known(n name) bool {
	_, _, ok := lookup(n)
	return ok || familyOf(n.section) != nil
}

// members returns the keys of a family in c, sorted.
func (c *Config) members(f *family) []string {
	return slices.Sorted(maps.Keys(c.families[f]))
}
