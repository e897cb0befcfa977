package sealed

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

const (
	version = 1
	// MaxIDSize is the most bytes of a key's id.
	MaxIDSize = 32
	// MaxOverhead is the most bytes by which a sealed value is longer than its text.
	MaxOverhead = 2 + MaxIDSize + overhead
	// overhead is the length of the nonce and the tag.
	overhead = 12 + 16
	keySize  = 32 // bytes: AES-256
)

// Keys are the keys of one file. The zero value and nil have no keys: they do not seal, and open
// only plain values. Keys are safe for concurrent use. Printing them never shows a key.
type Keys struct {
	all []key // the first one seals
}

type key struct {
	id   string
	aead cipher.AEAD // with random nonces, which are part of the ciphertext
}

// The errors of [Keys.Open], beside [UnknownKeyError].
var (
	// ErrNotAuthentic: the value was changed, belongs to another place, or was sealed with
	// another key of the same id.
	ErrNotAuthentic = errors.New("not authentic: it was changed, moved from another place, or sealed with another key of this id")
	// ErrMalformed: the value begins like a sealed one, but is not.
	ErrMalformed = errors.New("malformed sealed value")
)

// UnknownKeyError is the error for a value that was sealed with an unknown key.
type UnknownKeyError struct{ ID string }

// Error returns the key's id and the setting.
func (e *UnknownKeyError) Error() string {
	return fmt.Sprintf("sealed with the key %q, which the key file ([secrets] key_file) does not have", e.ID)
}

func newKey(id string, secret []byte) (key, error) {
	block, err := aes.NewCipher(secret)
	if err != nil {
		return key{}, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return key{id, aead}, err
}

// UnknownKey makes the error known to users of an interface that Keys implements.
func (e *UnknownKeyError) UnknownKey() {}

// Seal seals a text for a place with the first key. Without keys it returns the text.
func (k *Keys) Seal(text []byte, place ...string) []byte {
	if k == nil || len(k.all) == 0 {
		return text
	}
	with := k.all[0]
	out := make([]byte, 0, 2+len(with.id)+overhead+len(text))
	out = append(out, version, byte(len(with.id)))
	out = append(out, with.id...)
	return with.aead.Seal(out, nil, text, additional(with.id, place)) //nolint:gosec // it generates the nonce
}

// Open returns the text of a value that was sealed for a place, or the value itself if it is
// plain. The error is ErrNotAuthentic, ErrMalformed or an *UnknownKeyError.
func (k *Keys) Open(value []byte, place ...string) ([]byte, error) {
	id, rest, isSealed, err := split(value)
	switch {
	case err != nil:
		return nil, err
	case !isSealed:
		return value, nil
	}
	if k != nil {
		for _, with := range k.all {
			if with.id != id {
				continue
			}
			text, err := with.aead.Open(nil, nil, rest, additional(id, place))
			if err != nil {
				return nil, fmt.Errorf("sealed with the key %q: %w", id, ErrNotAuthentic)
			}
			if text == nil {
				text = []byte{}
			}
			return text, nil
		}
	}
	return nil, &UnknownKeyError{id}
}

// KeyID returns the id of the key in a sealed value, "" for a plain one, and "?", which is not an
// id, for a malformed one.
func (k *Keys) KeyID(value []byte) string {
	id, _, _, err := split(value)
	if err != nil {
		return "?"
	}
	return id
}

// IsSealed reports whether a value is sealed.
func IsSealed(value []byte) bool { return len(value) > 0 && value[0] == version }

// split returns the key id and the rest after it.
func split(value []byte) (id string, rest []byte, isSealed bool, err error) {
	if !IsSealed(value) {
		return "", nil, false, nil
	}
	if len(value) < 2 || len(value) < 2+int(value[1])+overhead {
		return "", nil, true, ErrMalformed
	}
	end := 2 + int(value[1])
	if id = string(value[2:end]); CheckID(id) != nil {
		return "", nil, true, ErrMalformed
	}
	return id, value[end:], true, nil
}

// additional returns the additional data: the key id and each part of the place with their
// lengths, so that different lists give different data.
func additional(id string, place []string) []byte {
	data := appendText([]byte{version}, id)
	for _, part := range place {
		data = appendText(data, part)
	}
	return data
}

func appendText(data []byte, text string) []byte {
	return append(binary.AppendUvarint(data, uint64(len(text))), text...)
}

// First returns the id of the key that seals, or "".
func (k *Keys) First() string {
	if k == nil || len(k.all) == 0 {
		return ""
	}
	return k.all[0].id
}

// IDs returns the ids of all keys, in their order.
func (k *Keys) IDs() []string {
	if k == nil {
		return nil
	}
	ids := make([]string, len(k.all))
	for i, one := range k.all {
		ids[i] = one.id
	}
	return ids
}

// Has reports whether there is a key with that id.
func (k *Keys) Has(id string) bool { return slices.Contains(k.IDs(), id) }

// String returns the ids of the keys.
func (k *Keys) String() string { return "keys: " + strings.Join(k.IDs(), ", ") }

// Format writes String for every verb, so that printing keys never shows one.
func (k *Keys) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, k.String()) }

// MarshalText returns String, for logs in JSON.
func (k *Keys) MarshalText() ([]byte, error) { return []byte(k.String()), nil }
