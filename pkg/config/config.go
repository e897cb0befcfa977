package config

import (
	"errors"
	"fmt"
	"slices"

	"settee/pkg/redact"
)

// Origin is the kind of place that a value comes from. A later origin overrides an earlier one.
type Origin int

// The origins, the weakest first.
const (
	OriginDefault Origin = iota
	OriginFile
	OriginStore
	OriginEnvironment
	OriginFlag
	origins int = iota // the number of origins
)

// String returns the origin in one word: default, file, store, environment, flag.
func (o Origin) String() string {
	return [...]string{"default", "file", "store", "environment", "flag"}[o]
}

// Value is a setting in one layer, as unchecked text.
type Value struct {
	Section, Key, Text string
	From               string // the place, such as local.ini:12
}

// String returns the value for printing, with a secret masked.
func (v Value) String() string {
	return fmt.Sprintf("%v, %s: %q", v.name(), v.From, show(v.name(), v.Text))
}

// Format writes String for every verb.
func (v Value) Format(f fmt.State, verb rune) {
	redact.Format(f, verb, v.String(), "config.Value("+v.String()+")")
}

// MarshalText returns String, for logs in JSON.
func (v Value) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

func (v Value) name() name { return name{v.Section, v.Key} }

// Layer has the values of one place, in their order. The last of several values with one key
// counts.
type Layer []Value

// Config is one immutable state of all settings. It is safe for concurrent use. The zero Config
// has every setting at its default.
type Config struct {
	layers [origins][]Layer
	values map[*definition]resolved
	// older has the values of older names, which count for settings without a value.
	older map[*definition]resolved
	// families has the values of sections with free keys.
	families map[*family]map[string]resolved
	// blank has the names whose text in the store is empty, unless a stronger layer has a value. Such a text is shown, and has
	// no effect.
	blank map[name]bool
}

// Format writes a constant for every verb, because settings may be secret. Use Shown or WriteINI
// to print settings.
func (c *Config) Format(f fmt.State, verb rune) {
	redact.Format(f, verb, "a configuration", "config.Config(...)")
}

func (c *Config) find(d *definition) resolved {
	if c.fromOlder(d) {
		return c.older[d]
	}
	return c.own(d)
}

// fromOlder reports whether a setting has its value from an older name of it.
func (c *Config) fromOlder(d *definition) bool {
	_, ok := c.older[d]
	return ok && c.own(d).layer == d.byDefault.layer
}

// own returns the value that a setting has by its present name. It ignores older names.
func (c *Config) own(d *definition) resolved {
	if r, ok := c.values[d]; ok {
		return r
	}
	return d.byDefault
}

// With returns a Config with the layers of one origin, the strongest last, in place of the layers
// that c has of it. Without layers, that origin sets nothing. A Value's From defaults to the name
// of the origin. The warnings are about the new layers, and about values that do not count as they
// are and did in c.
//
// The error joins a *ValueError for every value in the new layers that its setting cannot have,
// and an error for every pair of settings that contradict each other. c does not change.
func (c *Config) With(origin Origin, layers ...Layer) (*Config, []Warning, error) {
	if origin <= OriginDefault || int(origin) >= origins {
		panic("config: a layer cannot have the origin " + fmt.Sprint(int(origin)))
	}
	next := &Config{layers: c.layers}
	next.layers[origin] = named(origin, layers)
	if err := next.resolve(); err != nil {
		return nil, nil, err
	}
	known := c.remarks()
	fresh := slices.DeleteFunc(next.remarks(), func(w Warning) bool { return slices.Contains(known, w) })
	return next, append(warningsOf(origin, next.layers[origin]), fresh...), nil
}

// named returns a copy of layers in which every value has a From.
func named(origin Origin, layers []Layer) []Layer {
	all := make([]Layer, len(layers))
	for i, layer := range layers {
		all[i] = slices.Clone(layer)
		for j := range all[i] {
			if all[i][j].From == "" {
				all[i][j].From = origin.String()
			}
		}
	}
	return all
}

// resolve computes the value of every setting from the layers.
func (c *Config) resolve() error {
	var problems []error
	c.values, c.older = make(map[*definition]resolved), make(map[*definition]resolved)
	c.families = make(map[*family]map[string]resolved)
	c.blank = make(map[name]bool)
	depth := 0
	for origin, layers := range c.layers {
		for _, layer := range layers {
			depth++
			for _, v := range layer {
				if Origin(origin) == OriginStore && v.Text == "" {
					c.blank[v.name()] = true
					continue
				}
				delete(c.blank, v.name())
				if err := c.resolveOne(v, depth); err != nil {
					problems = append(problems, err)
				}
			}
		}
	}
	if len(problems) == 0 {
		problems = c.contradictions()
	}
	return errors.Join(problems...)
}

// resolveOne adds a value of a layer, which overrides the values of the layers below.
func (c *Config) resolveOne(v Value, depth int) error {
	if f := familyOf(v.Section); f != nil {
		value, err := f.member(v.Key).check(v)
		if err != nil {
			return err
		}
		if c.families[f] == nil {
			c.families[f] = make(map[string]resolved)
		}
		c.families[f][v.Key] = resolved{value: value, text: v.Text, from: v.From, layer: depth}
		return nil
	}
	d, rank, ok := lookup(v.name())
	if !ok {
		return nil
	}
	value, err := d.spellings[rank].check(v)
	if err != nil {
		return err
	}
	r := resolved{value: value, text: v.Text, from: v.From, rank: rank, layer: depth}
	values := c.values
	if _, older := current(v.name()); older {
		values = c.older
	}
	if r.beats(values[d]) {
		values[d] = r
	}
	return nil
}

// check parses a value. The value must also fit an ini file, so that WriteINI can write it.
func (s spelling) check(v Value) (any, error) {
	value, ok := s.parse(v.Text)
	want := s.want
	if _, fits := formatSetting(v.Key, v.Text); ok && !fits {
		ok, want = false, "a text that fits one line of an ini file, without a ; after a space"
	}
	if !ok {
		if s.wrong != nil && want == s.want {
			want += fmt.Sprintf("; %q is not", s.wrong(v.Text))
		}
		return nil, &ValueError{Section: v.Section, Key: v.Key, Shown: show(v.name(), v.Text), From: v.From, Want: want}
	}
	return value, nil
}

// contradictions returns the errors about settings that are valid each but not together.
func (c *Config) contradictions() []error {
	var problems []error
	if low, high := MinBackoffPenalty.Get(c), MaxBackoffPenalty.Get(c); low > high {
		problems = append(problems, contradict(fmt.Sprintf("%v is %.0f (%s), which is more than %v, %.0f (%s)",
			MinBackoffPenalty, low.Seconds(), MinBackoffPenalty.From(c),
			MaxBackoffPenalty, high.Seconds(), MaxBackoffPenalty.From(c)), MinBackoffPenalty.def, MaxBackoffPenalty.def))
	}
	if c.Roles() == (Roles{}) {
		problems = append(problems, contradict(fmt.Sprintf("%v (%s) and %v (%s) are both false, so this node has no role",
			apiFrontend, apiFrontend.From(c), replication, replication.From(c)), apiFrontend.def, replication.def))
	}
	if TLSEnable.Get(c) && TLSCertFile.Get(c) == "" {
		problems = append(problems, contradict(fmt.Sprintf("%v is true (%s), but %v is not set",
			TLSEnable, TLSEnable.From(c), TLSCertFile), TLSEnable.def, TLSCertFile.def))
	}
	if TLSEnable.Get(c) && TLSVerifyClients.Get(c) && TLSClientCAFile.Get(c) == "" {
		problems = append(problems, contradict(fmt.Sprintf("%v is true (%s), but %v is not set",
			TLSVerifyClients, TLSVerifyClients.From(c), TLSClientCAFile), TLSVerifyClients.def, TLSClientCAFile.def))
	}
	if TLSEnable.Get(c) && TLSRequireClients.Get(c) && !TLSVerifyClients.Get(c) {
		problems = append(problems, contradict(fmt.Sprintf("%v is true (%s), but clients are asked for certificates only if %v is true",
			TLSRequireClients, TLSRequireClients.From(c), TLSVerifyClients), TLSRequireClients.def, TLSVerifyClients.def))
	}
	for _, s := range []Setting[[]uint16]{TLSVersions, TLSCiphers} {
		if TLSEnable.Get(c) && c.find(s.def).text != "" && len(s.Get(c)) == 0 {
			problems = append(problems, contradict(fmt.Sprintf("%v is true (%s), but %v (%s) is not %s",
				TLSEnable, TLSEnable.From(c), s, s.From(c), s.def.spellings[0].want), TLSEnable.def, s.def))
		}
	}
	return problems
}

// contradiction is the error about settings that contradict each other.
type contradiction struct {
	between []*definition
	text    string
}

func contradict(text string, between ...*definition) error { return &contradiction{between, text} }

// Error returns the settings, their values and their origins.
func (c *contradiction) Error() string { return c.text }

// ValueError is the error for a value that its setting cannot have.
type ValueError struct {
	Section, Key string
	Shown        string // the value; a secret is masked
	From         string // the place of the value
	Want         string // completes "it must be ..."
}

// Error returns the setting, the place, the value and the values that are allowed.
func (e *ValueError) Error() string {
	const most = 100 // bytes of a value: enough to recognize it
	shown := e.Shown
	if len(shown) > most {
		shown = shown[:most] + "..."
	}
	return fmt.Sprintf("%v (%s): %q is refused: it must be %s", name{e.Section, e.Key}, e.From, shown, e.Want)
}
