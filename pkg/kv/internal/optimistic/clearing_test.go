package optimistic

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// pairs is a storage in a map, as a snapshot, an iterator and a batch.
type pairs struct {
	all    map[string]string
	ranges int // cleared as such
	keys   []string
	at     int
}

func (p *pairs) Get(key []byte) ([]byte, error) {
	if value, ok := p.all[string(key)]; ok {
		return []byte(value), nil
	}
	return nil, nil
}

func (p *pairs) Iterate(begin, end []byte) (Iterator, error) {
	within := span{string(begin), string(end)}
	it := &pairs{all: p.all}
	for _, key := range slices.Sorted(maps.Keys(p.all)) {
		if within.has(key) {
			it.keys = append(it.keys, key)
		}
	}
	return it, nil
}

func (p *pairs) move(to int) bool       { p.at = to; return to >= 0 && to < len(p.keys) }
func (p *pairs) First() bool            { return p.move(0) }
func (p *pairs) Last() bool             { return p.move(len(p.keys) - 1) }
func (p *pairs) Next() bool             { return p.move(p.at + 1) }
func (p *pairs) Prev() bool             { return p.move(p.at - 1) }
func (p *pairs) SeekGE([]byte) bool     { panic("not used") }
func (p *pairs) SeekLT([]byte) bool     { panic("not used") }
func (p *pairs) Key() []byte            { return []byte(p.keys[p.at]) }
func (p *pairs) Value() ([]byte, error) { return []byte(p.all[p.keys[p.at]]), nil }
func (p *pairs) Error() error           { return nil }

// pairsBatch applies writes at once.
type pairsBatch struct{ *pairs }

func (b pairsBatch) Set(key, value []byte) error { b.all[string(key)] = string(value); return nil }
func (b pairsBatch) Clear(key []byte) error      { delete(b.all, string(key)); return nil }
func (b pairsBatch) Apply() error                { return nil }
func (b pairsBatch) Close()                      {}

func (b pairsBatch) ClearRange(begin, end []byte) error {
	b.ranges++
	within := span{string(begin), string(end)}
	maps.DeleteFunc(b.all, func(key, _ string) bool { return within.has(key) })
	return nil
}

func (p *pairs) Close() error { return nil }

// TestClearings: groups of random writes have the effect of their mutations one after the other.
func TestClearings(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	below := map[string]string{}
	for round := range 3000 {
		most := 1 + random.IntN(30) // keys of a space
		var log []mutation
		for range 1 + random.IntN(20) {
			space := string(rune('a' + random.IntN(3)))
			key := []byte(fmt.Sprint(space, "\x01", random.IntN(most)))
			switch random.IntN(6) {
			case 0:
				log = append(log, mutation{kind: mutationClearRange, key: []byte(space + "\x00"), value: []byte(space + "\xff")})
			case 1:
				log = append(log, mutation{kind: mutationClearRange, key: key, value: []byte(space + "\x02")})
			case 2:
				log = append(log, mutation{kind: mutationClear, key: key})
			default:
				log = append(log, mutation{kind: mutationSet, key: key, value: fmt.Append(nil, round)})
			}
		}
		want := pairsBatch{&pairs{all: maps.Clone(below)}}
		for _, m := range log {
			switch m.kind {
			case mutationClearRange:
				require.NoError(t, want.ClearRange(m.key, m.value))
			case mutationClear:
				require.NoError(t, want.Clear(m.key))
			default:
				require.NoError(t, want.Set(m.key, m.value))
			}
		}
		got := pairsBatch{&pairs{all: maps.Clone(below)}}
		// The group is two commits.
		cut := random.IntN(len(log) + 1)
		group := []*commit{{log: log[:cut]}, {log: log[cut:]}}
		w := newWriter(&pairs{all: maps.Clone(below)}, got, group)
		for _, c := range group {
			for _, m := range c.log {
				require.NoError(t, w.write(m))
			}
		}
		require.NoError(t, w.finish())
		require.Equal(t, want.all, got.all, "round %d: %v", round, log)
		below = want.all
	}
}

// TestFewKeys: a range is cleared key by key if it is narrow and has few keys, those of the group included.
func TestFewKeys(t *testing.T) {
	for _, c := range []struct {
		below, set, ranges int
		end                string
	}{{0, 0, 0, "k\xff"}, {fewKeys, 0, 0, "k\xff"}, {fewKeys / 2, fewKeys / 2, 0, "k\xff"}, {fewKeys, 1, 1, "k\xff"}, {fewKeys + 1, 0, 1, "k\xff"}, {1, 0, 1, "l\xff\xff"}} {
		stored := &pairs{all: map[string]string{}}
		var log []mutation
		for i := range c.below + c.set {
			key := fmt.Sprint("k\x01", i)
			if i < c.below {
				stored.all[key] = ""
			} else {
				log = append(log, mutation{kind: mutationSet, key: []byte(key)})
			}
		}
		log = append(log, mutation{kind: mutationClearRange, key: []byte("k\x00"), value: []byte(c.end)})
		into := pairsBatch{&pairs{all: maps.Clone(stored.all)}}
		w := newWriter(stored, into, []*commit{{log: log}})
		for _, m := range log {
			require.NoError(t, w.write(m))
		}
		require.Empty(t, into.all)
		require.Equal(t, c.ranges, into.ranges, "%+v", c)
	}
}

// TestNarrow: which ranges are cleared key by key.
func TestNarrow(t *testing.T) {
	for _, c := range []struct {
		begin, end string
		narrow     bool
	}{{"a\x00", "a\xff", true}, {"a", "b", true}, {"", "\xff", false}, {"a", "a\x00", false}, {"ab", "cd", false}} {
		require.Equal(t, c.narrow, span{c.begin, c.end}.isNarrow(), "%q", c)
	}
}
