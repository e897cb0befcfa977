package kv

// Sealer has values stored in a form that nobody reads who has but the store. What it returns is a
// value like any other: a layer decides which of its values are sealed, and an engine knows nothing
// of it. A place is what a value is part of: a Sealer opens it there alone.
type Sealer interface {
	// Seal returns what is stored of a text, which is some hundred bytes longer at most.
	Seal(text []byte, place ...string) []byte
	// Open returns the text. What was stored without a Sealer is one.
	Open(stored []byte, place ...string) ([]byte, error)
	// KeyID names the key that something was sealed with, empty if it is plain.
	KeyID(stored []byte) string
}

// Plain is the Sealer of who has no keys: it stores a text as it is.
type Plain struct{}

// Seal returns the text.
func (Plain) Seal(text []byte, _ ...string) []byte { return text }

// Open returns what is stored, and never an error.
func (Plain) Open(stored []byte, _ ...string) ([]byte, error) { return stored, nil }

// KeyID returns no id.
func (Plain) KeyID([]byte) string { return "" }
