package optimistic

import (
	"errors"
	"slices"
	"strings"
)

// fewKeys is the largest number of keys of a range that are cleared one by one.
const fewKeys = 16

// clearing is a part of the keys of which a group clears narrow ranges.
type clearing struct {
	span
	set []string // the keys in it that the group has set so far
}

// isNarrow reports whether all keys of the range begin with the same bytes, except for one at the end of each bound, as
// those below a tuple do.
func (s span) isNarrow() bool {
	n := len(s.begin) - 1
	return n >= 0 && len(s.end) == n+1 && s.begin[:n] == s.end[:n]
}

// clearings returns the narrow ranges that a group clears, those that overlap as one.
func clearings(group []*commit) []clearing {
	var narrow []span
	for _, c := range group {
		for _, m := range c.log {
			if m.kind == mutationClearRange && m.span().isNarrow() {
				narrow = append(narrow, m.span())
			}
		}
	}
	all := make([]clearing, 0, len(narrow))
	for _, s := range joined(narrow) {
		all = append(all, clearing{span: s})
	}
	return all
}

// around returns the clearing that has a key, or nil.
func (w writer) around(key string) *clearing {
	i, found := slices.BinarySearchFunc(w.clearings, key, func(c clearing, key string) int { return strings.Compare(c.begin, key) })
	if !found {
		i--
	}
	if i < 0 || !w.clearings[i].has(key) {
		return nil
	}
	return &w.clearings[i]
}

// clearRange clears the keys of a range. A storage may pay for each range that was cleared lately, whenever it reads:
// Pebble sorts the cleared ranges of its table in memory again after each new one. So a narrow range with few keys is cleared key by
// key. Other ranges are rare.
func (w writer) clearRange(s span) error {
	keys, few, err := w.fewIn(s)
	if err != nil {
		return err
	}
	if !few {
		return w.batch.ClearRange([]byte(s.begin), []byte(s.end))
	}
	for _, key := range keys {
		if err := w.batch.Clear([]byte(key)); err != nil {
			return err
		}
	}
	return nil
}

// fewIn returns the keys of a narrow range, which may have been cleared by the group already. few is false for other
// ranges, and if there are more than fewKeys.
func (w writer) fewIn(s span) (keys []string, few bool, err error) {
	if !s.isNarrow() || s.begin >= s.end {
		return nil, false, nil
	}
	for _, key := range w.around(s.begin).set {
		if s.has(key) {
			keys = append(keys, key)
		}
	}
	below, err := w.below.Iterate([]byte(s.begin), []byte(s.end))
	if err != nil {
		return nil, false, err
	}
	defer func() { err = errors.Join(err, below.Close()) }()
	for more := below.First(); more && len(keys) <= fewKeys; more = below.Next() {
		keys = append(keys, string(below.Key()))
	}
	return keys, len(keys) <= fewKeys, below.Error()
}
