package config

import (
	"errors"
	"fmt"
	"slices"

	"settee/pkg/redact"
)

// Origin is the kind of place that a value comes from. A later one beats an earlier
// one.
type Origin int

// The origins, the weakest first.
const (
	OriginDefault Origin = iota
	OriginFile
	OriginStore
	OriginEnvironment
	OriginFlag
	origins int = iota // how many there are
)

// String returns the origin in one word: default, file, store, environment, flag.
func (o Origin) String() string {
	return [...]string{"default", "file", "store", "environment", "flag"}[o]
}

// Value is a setting as some place gives it: text that nobody has checked yet.
type Value struct {
	Section, Key, Text string
	From               string // the place, for messages, such as local.ini:12
}

// String is the value as it may be printed: a secret is masked.
func (v Value) String() string {
	return fmt.Sprintf("%v, %s: %q", v.name(), v.From, show(v.name(), v.Text))
}

// Format writes String for every verb.
func (v Value) Format(f fmt.State, verb rune) {
	redact.Format(f, verb, v.String(), "config.Value("+v.String()+")")
}

// MarshalText is String, for logs in JSON.
func (v Value) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

func (v Value) name() name { return name{v.Section, v.Key} }

// Layer is what one place says, in its order. Of a key that is there twice, the
// last one holds.
type Layer []Value

// Config is one state of all settings. It never changes, so any number of
// goroutines may read it. The zero Config has every setting at its default.
type Config struct {
	layers [origins][]Layer
	values map[*definition]resolved
	// families has the values of sections whose keys are names.
	families map[*family]map[string]resolved
}

// Format writes no more than that it is one, for every verb: see Shown and WriteINI.
func (c *Config) Format(f fmt.State, verb rune) {
	redact.Format(f, verb, "a configuration", "config.Config(...)")
}

func (c *Config) find(d *definition) resolved {
	if r, ok := c.values[d]; ok {
		return r
	}
	return d.standard
}

// With returns a Config in which the layers of one origin, the strongest last, take
// the place of those that c has of it; without any layer, that origin says nothing
// any more. A Value's From defaults to the name of the origin. The warnings are
// about the new layers.
//
// The error joins a *ValueError for every value of the new layers that its setting
// cannot have, and an error for every pair of settings that contradict each other;
// c stays as it is, and stays usable.
func (c *Config) With(origin Origin, layers ...Layer) (*Config, []Warning, error) {
	if origin <= OriginDefault || int(origin) >= origins {
		panic("config: no layer can have the origin " + fmt.Sprint(int(origin)))
	}
	next := &Config{layers: c.layers}
	next.layers[origin] = named(origin, layers)
	if err := next.settle(); err != nil {
		return nil, nil, err
	}
	return next, warningsOf(origin, next.layers[origin]), nil
}

// named returns a copy of layers in which every value says where it comes from.
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

// settle finds the value of every setting from the layers.
func (c *Config) settle() error {
	var problems []error
	c.values = make(map[*definition]resolved)
	c.families = make(map[*family]map[string]resolved)
	depth := 0
	for _, layers := range c.layers {
		for _, layer := range layers {
			depth++
			for _, v := range layer {
				if err := c.settleOne(v, depth); err != nil {
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

// settleOne takes in a value of a layer, which beats those of the layers below it.
func (c *Config) settleOne(v Value, depth int) error {
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
	if r.beats(c.find(d)) {
		c.values[d] = r
	}
	return nil
}

// check parses a value. It must also fit an ini file, or WriteINI could not print
// what holds.
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

// contradictions returns what is wrong with settings that are each fine alone.
func (c *Config) contradictions() []error {
	var problems []error
	if low, high := MinBackoffPenalty.Get(c), MaxBackoffPenalty.Get(c); low > high {
		problems = append(problems, contradict(fmt.Sprintf("%v is %.0f (%s), which is more than %v, %.0f (%s)",
			MinBackoffPenalty, low.Seconds(), MinBackoffPenalty.From(c),
			MaxBackoffPenalty, high.Seconds(), MaxBackoffPenalty.From(c)), MinBackoffPenalty.def, MaxBackoffPenalty.def))
	}
	if c.Roles() == (Roles{}) {
		problems = append(problems, contradict(fmt.Sprintf("%v (%s) and %v (%s) are both false, which leaves this node nothing to do",
			apiFrontend, apiFrontend.From(c), replication, replication.From(c)), apiFrontend.def, replication.def))
	}
	if TLSEnable.Get(c) && TLSCertFile.Get(c) == "" {
		problems = append(problems, contradict(fmt.Sprintf("%v is true (%s), but %v is not set",
			TLSEnable, TLSEnable.From(c), TLSCertFile), TLSEnable.def, TLSCertFile.def))
	}
	if TLSVerifyClients.Get(c) && TLSClientCAFile.Get(c) == "" {
		problems = append(problems, contradict(fmt.Sprintf("%v is true (%s), but %v, which would say whose certificates count, is not set",
			TLSVerifyClients, TLSVerifyClients.From(c), TLSClientCAFile), TLSVerifyClients.def, TLSClientCAFile.def))
	}
	if TLSRequireClients.Get(c) && !TLSVerifyClients.Get(c) {
		problems = append(problems, contradict(fmt.Sprintf("%v is true (%s), but clients are asked for certificates only where %v is true",
			TLSRequireClients, TLSRequireClients.From(c), TLSVerifyClients), TLSRequireClients.def, TLSVerifyClients.def))
	}
	if CORSCredentials.Get(c) && slices.Contains(CORSOrigins.Get(c), "*") {
		problems = append(problems, contradict(fmt.Sprintf("%v is true (%s), and %v (%s) has *: every page of the web could then act as whoever looks at it",
			CORSCredentials, CORSCredentials.From(c), CORSOrigins, CORSOrigins.From(c)), CORSCredentials.def, CORSOrigins.def))
	}
	return problems
}

// contradiction is settings that are each fine alone.
type contradiction struct {
	between []*definition
	text    string
}

func contradict(text string, between ...*definition) error { return &contradiction{between, text} }

// Error names the settings, their values and their places.
func (c *contradiction) Error() string { return c.text }

// ValueError says that a setting was given a value that it cannot have.
type ValueError struct {
	Section, Key string
	Shown        string // the value; a secret is masked
	From         string // where it was given
	Want         string // completes "it must be ..."
}

// Error names the setting, the place, the value and what it may be.
func (e *ValueError) Error() string {
	const most = 100 // bytes of a value: enough to recognize it
	shown := e.Shown
	if len(shown) > most {
		shown = shown[:most] + "..."
	}
	return fmt.Sprintf("%v (%s): %q is refused: it must be %s", name{e.Section, e.Key}, e.From, shown, e.Want)
}
