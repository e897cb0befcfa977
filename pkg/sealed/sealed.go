package sealed

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

const (
	version = 1
	// MaxIDSize is that of a key's id, in bytes.
	MaxIDSize = 32
	// MaxOverhead is how many bytes a sealed value may have more than its text.
	MaxOverhead = 2 + MaxIDSize + overhead
	// overhead is that of the nonce and the tag.
	overhead = 12 + 16
	keySize  = 32 // bytes: AES-256
)

// Keys are the keys of one file. The zero value, and nil, have none: they seal nothing, and open
// plain values. They may be used by any number of goroutines. No way of printing them shows a key.
type Keys struct {
	all []key // the first one seals
}

type key struct {
	id   string
	aead cipher.AEAD // with random nonces, which are part of the ciphertext
}

// Why a sealed value does not open.
var (
	// ErrNotAuthentic: the value is not as it was sealed, or it was sealed for another place, or
	// with another key of the same id.
	ErrNotAuthentic = errors.New("not authentic: it was changed, moved from another place, or sealed with another key of this id")
	// ErrMalformed: the value begins as a sealed one, and is none.
	ErrMalformed = errors.New("malformed sealed value")
)

// UnknownKeyError says that a value was sealed with a key that is not among the keys.
type UnknownKeyError struct{ ID string }

// Error names the key and the setting.
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

// Seal seals a text for a place, with the first key. Without keys it returns the text itself.
func (k *Keys) Seal(text []byte, place ...string) []byte {
	if k == nil || len(k.all) == 0 {
		return text
	}
	with := k.all[0]
	out := make([]byte, 0, 2+len(with.id)+overhead+len(text))
	out = append(out, version, byte(len(with.id)))
	out = append(out, with.id...)
	return with.aead.Seal(out, nil, text, additional(with.id, place)) //nolint:gosec // it draws the nonce itself
}

// Open returns the text of a value that was sealed for a place, or the value itself if that is
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

// KeyID returns the id of the key that a value says it was sealed with: empty if it is plain, and
// a question mark, which is no id, if it is malformed.
func (k *Keys) KeyID(value []byte) string {
	id, _, _, err := split(value)
	if err != nil {
		return "?"
	}
	return id
}

// IsSealed reports whether a value is not plain.
func IsSealed(value []byte) bool { return len(value) > 0 && value[0] == version }

// split returns the key id and what follows it.
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

// additional is the additional data: of the key id, and of each part of the place, the length and
// the text, so that no two lists are one.
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

// First returns the id of the key that seals, empty if there is none.
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

// Has reports whether there is a key of an id.
func (k *Keys) Has(id string) bool {
	for _, own := range k.IDs() {
		if own == id {
			return true
		}
	}
	return false
}

// String names the keys by their ids.
func (k *Keys) String() string { return "keys: " + strings.Join(k.IDs(), ", ") }

// Format writes String for every verb, so that no way of printing keys shows one.
func (k *Keys) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, k.String()) }

// MarshalText is for logs in JSON: it is String.
func (k *Keys) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// LogValue implements slog.LogValuer.
func (k *Keys) LogValue() slog.Value { return slog.StringValue(k.String()) }
