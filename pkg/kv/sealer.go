package kv

import "errors"

// UnknownKey reports whether err says that a Sealer does not have the key with which a value was sealed. The error, or one
// that it wraps, has a method UnknownKey().
func UnknownKey(err error) bool {
	_, is := errors.AsType[interface {
		error
		UnknownKey()
	}](err)
	return is
}

// Sealer gives values a form that cannot be read with access to the store alone. A layer decides which of its values
// are sealed. An engine handles sealed values like others. place names what a value is part of: Open fails for any
// other place.
type Sealer interface {
	// Seal returns the stored form of a text. It is at most some hundred bytes longer.
	Seal(text []byte, place ...string) []byte
	// Open returns the text of a stored value. It returns a plain value as it is. See
	// [UnknownKey] for its errors.
	Open(stored []byte, place ...string) ([]byte, error)
	// KeyID returns the id of the key that sealed a stored value, or "" for a plain value.
	KeyID(stored []byte) string
}

// Plain is the Sealer of a layer without keys. It stores a text as it is.
type Plain struct{}

// Seal returns the text.
func (Plain) Seal(text []byte, _ ...string) []byte { return text }

// Open returns the stored value, and never an error.
func (Plain) Open(stored []byte, _ ...string) ([]byte, error) { return stored, nil }

// KeyID returns "".
func (Plain) KeyID([]byte) string { return "" }
