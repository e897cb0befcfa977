package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of the layer of the store, in bytes.
const (
	maxStoredName = 1_000 // a section or a key
	maxStoredText = 10_000
	// maxStored limits the sum of all sections, keys and texts. Every node reads them at once.
	maxStored = 1_000_000
)

// RefusedError is the error for a value that the store does not accept, or a change that is
// refused.
type RefusedError struct {
	Reason string // names the setting, without secrets
	err    error
}

// Error returns the reason.
func (e *RefusedError) Error() string { return e.Reason }

// Unwrap returns a *ValueError if the setting cannot have the value.
func (e *RefusedError) Unwrap() error { return e.err }

func refuse(n name, format string, args ...any) error {
	return &RefusedError{Reason: n.String() + ": " + fmt.Sprintf(format, args...)}
}

// checkStorable returns an error if the store cannot have a value, whatever other values it has.
func checkStorable(v Value) error {
	n := v.name()
	if err := checkName(n); err != nil {
		return err
	}
	if why, is := strings.CutPrefix(v.Text, locked); is {
		return refuse(n, "it cannot be opened: %s", why)
	}
	if len(v.Text) > maxStoredText {
		return refuse(n, "it has %d bytes, and may have %d", len(v.Text), maxStoredText)
	}
	d, rank, isSetting := lookup(n)
	f := familyOf(n.section)
	var err error
	switch {
	case isSetting && d.atStart:
		return refuse(n, "it is read only when a node starts: set it in a file, the environment or a flag of each node")
	case v.Text == "" && (isSetting || f != nil):
		return nil // it has no effect
	case isSetting:
		_, err = d.spellings[rank].check(v)
	case f == Admins.def && !Hashed(v.Text):
		return refuse(n, "the store accepts only hashed passwords")
	case f != nil:
		_, err = f.member(v.Key).check(v)
	default:
		return checkUnknown(v)
	}
	if err != nil {
		return &RefusedError{err.Error(), err}
	}
	return nil
}

// checkName refuses names that cannot be in an ini file.
func checkName(n name) error {
	for _, part := range []string{n.section, n.key} {
		strange := strings.ContainsFunc(part, func(r rune) bool { return !unicode.IsPrint(r) || r == '[' || r == ']' })
		if part == "" || len(part) > maxStoredName || strange || !utf8.ValidString(part) || trimBlanks(part) != part {
			return &RefusedError{Reason: fmt.Sprintf("the name of a section or a key has 1 to %d bytes of printable characters "+
				"other than [ and ], and no space at its ends", maxStoredName)}
		}
	}
	if _, fits := formatSetting(n.key, "x"); !fits {
		return &RefusedError{Reason: "the name of the key does not fit a line of an ini file"}
	}
	return nil
}

// checkUnknown refuses an unknown key in a section whose keys are all known, and a secret without
// effect. CouchDB's other settings are accepted.
func checkUnknown(v Value) error {
	n := v.name()
	why, without := whyIneffective(n)
	_, fits := formatSetting(n.key, v.Text)
	switch {
	case secret(n) && v.Text == "":
		return nil
	case secret(n) && without:
		return refuse(n, "a secret that has no effect is not stored: %s", why)
	case secret(n):
		return refuse(n, "a secret that has no effect is not stored")
	case !without && slices.Contains(whollyKnown, n.section):
		return refuse(n, "it is not a setting")
	case !fits && v.Text != "":
		return refuse(n, "it must be a text that fits one line of an ini file, without a ; after a space")
	}
	return nil
}

// withStored returns a configuration with the layer of the store. It ignores values that this
// node cannot use, which another version may have stored, and returns warnings about them.
func (c *Config) withStored(rows Layer) (*Config, []Warning) {
	var usable Layer
	var warnings []Warning
	ignore := func(v Value, reason string) {
		warnings = append(warnings, Warning{Section: v.Section, Key: v.Key, From: OriginStore.String(), Reason: "ignored: " + reason})
	}
	for _, v := range rows {
		if err := checkStorable(v); err != nil {
			var bad *ValueError
			why, isLocked := strings.CutPrefix(v.Text, locked)
			switch {
			case errors.As(err, &bad):
				ignore(v, "it must be "+bad.Want)
			case isLocked:
				ignore(v, why)
			default:
				ignore(v, "it cannot be set in the store")
			}
			continue
		}
		usable = append(usable, v)
	}
	next, without, err := c.With(OriginStore, usable)
	if err != nil {
		// Each value is valid, so some of them contradict this node's own values, which do not
		// contradict each other.
		usable = slices.DeleteFunc(usable, func(v Value) bool {
			against := contradicted(err, v.name())
			if against != nil {
				ignore(v, against.text)
			}
			return against != nil
		})
		if next, without, err = c.With(OriginStore, usable); err != nil {
			return c, warnings
		}
	}
	return next, append(warnings, without...)
}

// contradicted returns the contradiction in an error of With that involves a setting, or nil.
func contradicted(err error, n name) *contradiction {
	var against *contradiction
	d, _, ok := lookup(n)
	if ok && errors.As(err, &against) && slices.Contains(against.between, d) {
		return against
	}
	return nil
}

// change returns the stored values with v added or replaced. It removes other spellings of the same
// setting in the section. An empty text removes an administrator.
//
// The error is a *RefusedError if the store cannot have the value, or if it contradicts other
// settings.
func (c *Config) change(rows Layer, v Value) (Layer, error) {
	if v.Text == "" && familyOf(v.Section) == Admins.def {
		return c.remove(rows, v.name())
	}
	d, _, isSetting := lookup(v.name())
	next := slices.DeleteFunc(slices.Clone(rows), func(row Value) bool {
		other, _, ok := lookup(row.name())
		return row.name() == v.name() || isSetting && ok && other == d && row.Section == v.Section
	})
	if err := checkStorable(v); err != nil {
		return nil, err
	}
	next = append(next, v)
	if size(next) > maxStored {
		return nil, refuse(v.name(), "the store takes %d bytes of settings, and has %d", maxStored, size(rows))
	}
	return next, c.admits(next, v.name())
}

// remove returns the stored values without one. It returns an error as change does.
func (c *Config) remove(rows Layer, n name) (Layer, error) {
	next := slices.DeleteFunc(slices.Clone(rows), func(row Value) bool { return row.name() == n })
	return next, c.admits(next, n)
}

// admits returns a *RefusedError if a setting that has changed in the stored values contradicts others.
func (c *Config) admits(rows Layer, n name) error {
	settings := slices.DeleteFunc(slices.Clone(rows), func(row Value) bool { return !known(row.name()) || checkStorable(row) != nil })
	_, _, err := c.With(OriginStore, settings)
	if against := contradicted(err, n); against != nil {
		return &RefusedError{Reason: against.text}
	}
	return nil
}

// passes runs the checks of the caller of a change.
func (c *Config) passes(rows, next Layer, checks []Check) error {
	if len(checks) == 0 {
		return nil
	}
	before, _ := c.withStored(rows)
	after, _ := c.withStored(next)
	for _, check := range checks {
		if err := check(before, after); err != nil {
			return err
		}
	}
	return nil
}

func size(rows Layer) int {
	total := 0
	for _, v := range rows {
		total += len(v.Section) + len(v.Key) + len(v.Text)
	}
	return total
}
