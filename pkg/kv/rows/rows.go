// Package rows is shared by layers that keep rows under tuple keys: ranges of a subspace, typed elements of keys and
// values, counters, values in chunks, and sealing values with another key.
package rows

import (
	"encoding/binary"
	"fmt"
	"reflect"

	"settee/pkg/kv"
	"settee/pkg/tuple"
)

// Range returns the range of all keys of s.
func Range(s tuple.Subspace) kv.KeyRange {
	begin, end := s.Range()
	return kv.KeyRange{Begin: begin, End: end}
}

// From returns the range of the keys of s from key on. A nil key is the first.
func From(s tuple.Subspace, key []byte) kv.KeyRange {
	r := Range(s)
	if key != nil {
		r.Begin = key
	}
	return r
}

// As stores an element of a tuple in into. It reports false if the element has another type.
func As[T any](element any, into *T) bool {
	v, ok := element.(T)
	*into = v
	return ok
}

// Scan stores the elements of a packed tuple in into: pointers to their types. A pointer to a pointer is for an element that
// may be null, nil for one that is not needed. what names the value in errors, which wrap [tuple.ErrMalformed].
func Scan(what string, packed []byte, into ...any) error {
	t, err := tuple.Unpack(packed)
	return store(what, t, err, into)
}

// ScanKey is [Scan] for a key of s.
func ScanKey(what string, s tuple.Subspace, key []byte, into ...any) error {
	t, err := s.Unpack(key)
	return store(what, t, err, into)
}

func store(what string, t tuple.Tuple, err error, into []any) error {
	if err == nil && !Store(t, into...) {
		err = fmt.Errorf("%w: unknown form of %d elements", tuple.ErrMalformed, len(t))
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", what, err)
	}
	return nil
}

// Store stores the elements of a tuple in into, as [Scan] does. It reports whether their number and types are the same.
func Store(t tuple.Tuple, into ...any) bool {
	if len(t) != len(into) {
		return false
	}
	for i, element := range t {
		if into[i] == nil {
			continue
		}
		v := reflect.ValueOf(into[i]).Elem()
		if v.Kind() == reflect.Pointer {
			if element == nil {
				continue
			}
			v.Set(reflect.New(v.Type().Elem()))
			v = v.Elem()
		}
		e := reflect.ValueOf(element)
		if !e.IsValid() || e.Type() != v.Type() {
			return false
		}
		v.Set(e)
	}
	return true
}

// LastString returns the last element of a key of s. The error is [tuple.ErrMalformed] if it is not a string.
func LastString(s tuple.Subspace, key []byte) (string, error) {
	elements, err := s.Unpack(key)
	if err != nil {
		return "", fmt.Errorf("reading a key: %w", err)
	}
	var last string
	if len(elements) == 0 || !As(elements[len(elements)-1], &last) {
		return "", fmt.Errorf("reading a key: %w: %v", tuple.ErrMalformed, elements)
	}
	return last, nil
}

// Int returns n as [kv.Transaction].Add stores it: 8 bytes, little-endian.
func Int(n int64) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(n)) }

// ParseInt parses an integer that Int or Add has stored. The error is [tuple.ErrMalformed].
func ParseInt(value []byte) (int64, error) {
	if len(value) != 8 {
		return 0, fmt.Errorf("%w: an integer of %d bytes", tuple.ErrMalformed, len(value))
	}
	return int64(binary.LittleEndian.Uint64(value)), nil
}

// AwaitInt returns the integer in a key, or 0 if it has no value.
func AwaitInt(f kv.Future[[]byte]) (int64, error) {
	value, err := f.Await()
	if err != nil || value == nil {
		return 0, err
	}
	return ParseInt(value)
}

// ChunkSize is the number of bytes in one chunk, a little less than [kv.MaxValueSize].
const ChunkSize = 90_000

// Chunks returns the number of chunks of data that has a size.
func Chunks(size int) int64 { return max(1, int64(size+ChunkSize-1)/ChunkSize) }

// SetChunks writes data as the values of the keys (0), (1), ... of s, and returns the number of chunks. Empty data is
// one empty chunk. It does not change other keys.
func SetChunks(tx kv.Transaction, s tuple.Subspace, data []byte) int64 {
	n := int64(0)
	for ; n == 0 || len(data) > 0; n++ {
		size := min(len(data), ChunkSize)
		tx.Set(s.Pack(n), data[:size])
		data = data[size:]
	}
	return n
}

// JoinChunks returns the data in a range that SetChunks has written, or nil if there is no chunk.
func JoinChunks(chunks kv.RangeResult) ([]byte, error) {
	var data []byte
	for pair, err := range chunks.All() {
		if err != nil {
			return nil, err
		}
		if data == nil {
			data = pair.Value
		} else {
			data = append(data, pair.Value...)
		}
	}
	return data, nil
}
