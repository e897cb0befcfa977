package config

import "settee/pkg/redact"

// Setting is one setting, with values of type T. The settings are the variables of this package.
type Setting[T any] struct{ def *definition }

// Get returns the setting's value in c. A slice must not be modified.
func (s Setting[T]) Get(c *Config) T { return c.find(s.def).value.(T) }

// From returns the origin of the value in c: "default", FILE:LINE, the name of an environment
// variable or a flag.
func (s Setting[T]) From(c *Config) string { return c.find(s.def).from }

// String returns the setting's name, such as "[replicator] max_jobs".
func (s Setting[T]) String() string { return s.def.name().String() }

// name identifies a setting: CouchDB's section and key.
type name struct{ section, key string }

// String returns the section and the key, with a password masked in a key that is a URL.
func (n name) String() string { return "[" + n.section + "] " + redact.Text(n.key) }

// definition is a row of the table of settings.
type definition struct {
	section string
	// spellings are the keys that set it. The first one is the setting's name. In one layer a
	// later spelling overrides an earlier one.
	spellings []spelling
	byDefault resolved
	comment   string
	// atStart marks a setting that is read only when a node starts.
	atStart bool
}

func (d *definition) name() name { return d.spelled(0) }

// spelled returns the name with the spelling of a rank.
func (d *definition) spelled(rank int) name { return name{d.section, d.spellings[rank].key} }

// spelling is one key of a setting, with the unit and the bounds of its values.
type spelling struct {
	key, want, unit string
	parse           func(text string) (any, bool)
	wrong, instead  func(text string) string // those of kind
}

// spelling returns a key with values of a kind.
func (k kind[T]) spelling(key string) spelling {
	return spelling{key, k.want, k.unit, func(text string) (any, bool) {
		value, ok := k.parse(text)
		return value, ok
	}, k.wrong, k.instead}
}

// resolved is the value of a setting and its origin.
type resolved struct {
	value      any
	text, from string
	rank       int // the spelling, as an index
	layer      int // counted from the weakest; -1 is the default
}

// beats reports whether r overrides other.
func (r resolved) beats(other resolved) bool {
	if r.layer != other.layer {
		return r.layer > other.layer
	}
	return r.rank >= other.rank // the later of two lines in a file
}

// table has every setting, in the order of settings.go. Only define and defineFamily write it,
// while the package's variables are initialized.
var table struct {
	settings []*definition
	byName   map[name]*definition
	families []*family
}

// alias is another key of a setting.
type alias[T any] struct {
	key  string
	kind kind[T]
}

// define adds a setting to the table. It panics if the default is not a value of its kind, or if
// a key is defined twice.
func define[T any](section, key, standard string, k kind[T], comment string, also ...alias[T]) Setting[T] {
	d := &definition{section: section, comment: comment}
	if table.byName == nil {
		table.byName = make(map[name]*definition)
	}
	for _, a := range append([]alias[T]{{key, k}}, also...) {
		n := name{section, a.key}
		if table.byName[n] != nil {
			panic("config: " + n.String() + " is defined twice")
		}
		table.byName[n] = d
		d.spellings = append(d.spellings, a.kind.spelling(a.key))
	}
	value, ok := k.parse(standard)
	if !ok {
		panic("config: the default of " + d.name().String() + " is not " + k.want)
	}
	d.byDefault = resolved{value: value, text: standard, from: OriginDefault.String(), layer: -1}
	table.settings = append(table.settings, d)
	return Setting[T]{d}
}

// atStart marks a setting that is read only when a node starts. The store cannot have it, because
// the store is opened later.
func atStart[T any](s Setting[T]) Setting[T] {
	s.def.atStart = true
	return s
}

// lookup returns the setting of a name, which may be an older one, and the index of its spelling.
func lookup(n name) (d *definition, rank int, ok bool) {
	n, _ = current(n)
	d, ok = table.byName[n]
	if !ok {
		return nil, 0, false
	}
	for d.spellings[rank].key != n.key {
		rank++
	}
	return d, rank, true
}
