package fdbjobs_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// versionKey has the version of the derivation of new rows, as a store's level would say it.
var versionKey = []byte("version of the derivation")

// derivation is one with two versions. States are {"s": number}, and listed parts {"l": text}. Both have an index by the last
// digit of the state, with a tally of the numbers, an index by text, and one by status. In version 2 the
// first has other keys, the second is gone for some jobs, and there is a fourth, of jobs that wait.
func derivation() fdbjobs.Derivation {
	return fdbjobs.Derivation{
		OfListed: func(version int64, listed json.RawMessage) []byte {
			var l struct{ L string }
			if json.Unmarshal(listed, &l) != nil {
				return nil
			}
			return fmt.Appendf(nil, "%d:%s", version, l.L)
		},
		OfState: func(version int64, state json.RawMessage) []byte {
			var s struct{ S int64 }
			if json.Unmarshal(state, &s) != nil || s.S == 0 {
				return nil
			}
			return tuple.Tuple{fmt.Sprintf("%d:%d", version, s.S%10/4), s.S}.Pack()
		},
		Entries: func(version int64, f fdbjobs.Facts) (entries []fdbjobs.Entry) {
			if kind, n := kindOf(f); kind != "" {
				key := tuple.Tuple{f.Owner, kind}
				if version == 2 {
					key = tuple.Tuple{f.Owner, []byte(kind), f.Scheduled}
				}
				entries = append(entries, fdbjobs.Entry{Index: "state", Key: key, Value: []byte(kind), Adds: []fdbjobs.Add{
					{Prefix: 0, Name: "sum", N: n}, {Prefix: 1, Name: "odd", N: n % 2}, {Prefix: 1, Name: "jobs", N: 1},
				}})
			}
			if f.Listed != nil && (version == 1 || f.Status != fdbjobs.Finished) {
				entries = append(entries, fdbjobs.Entry{Index: "listed", Key: tuple.Tuple{string(f.Listed)}, Value: []byte(f.Owner)})
			}
			entries = append(entries, fdbjobs.Entry{
				Index: "status", Key: tuple.Tuple{string(f.Status), f.Tag}, Value: []byte(f.Label),
				Adds: []fdbjobs.Add{{Prefix: 1, Name: f.Owner, N: 1}, {Prefix: 1, Name: "all", N: version}, {Prefix: 2, Name: "all", N: 1}},
			})
			if version == 2 && f.Status == fdbjobs.Pending {
				entries = append(entries, fdbjobs.Entry{Index: "waiting", Key: tuple.Tuple{f.Scheduled}})
			}
			return entries
		},
		Version: func(tx kv.Transaction) (int64, error) { return rows.AwaitInt(tx.Get(versionKey)) },
	}
}

// kindOf returns the facts of a job's state: what its entry has, and the number. Without a number it returns "".
func kindOf(f fdbjobs.Facts) (kind string, n int64) {
	_ = rows.Scan("facts", f.State, &kind, &n) // a job may have none
	return kind, n
}

// derived returns the options of a layer whose queues have the derivation.
func derived(queues ...string) fdbjobs.Options {
	all := map[string]fdbjobs.Derivation{}
	for _, queue := range queues {
		all[queue] = derivation()
	}
	return fdbjobs.Options{Derive: all}
}

// followsFromScratch compares the entries and tallies of a queue with those that follow from its jobs, also those of the layer. It packs the keys by
// itself.
func followsFromScratch(tx kv.ReadTransaction, queue *fdbjobs.Queue) error {
	d, space := derivation(), tuple.SubspaceFromBytes(prefix)
	entries, tallies := map[string]string{}, map[string]int64{}
	add := func(id string, e fdbjobs.Entry) {
		key := slices.Concat(tuple.Tuple{14, queue.Name(), e.Index}, e.Key, tuple.Tuple{id})
		entries[string(space.Pack(key...))] = string(e.Value)
		for _, a := range e.Adds {
			key := slices.Concat(tuple.Tuple{15, queue.Name(), e.Index, a.Prefix}, e.Key[:a.Prefix], tuple.Tuple{a.Name})
			tallies[string(space.Pack(key...))] += a.N
		}
	}
	err := queue.EachRow(tx, func(r fdbjobs.WholeRow) {
		f, ended := r.Facts, 0
		if f.Status == fdbjobs.Finished {
			ended = 1
		}
		add(f.ID, fdbjobs.Entry{
			Index: "_jobs", Key: tuple.Tuple{ended, f.Owner, f.Label, f.Tag}, Adds: []fdbjobs.Add{{Prefix: 4, Name: string(f.Status), N: 1}},
		})
		if r.Expires != nil {
			add(f.ID, fdbjobs.Entry{Index: "_expiry", Key: tuple.Tuple{*r.Expires}})
		}
		if r.Version == 0 {
			return
		}
		f.Listed, f.State = nil, d.OfState(r.Version, r.State)
		if r.Listed != nil {
			f.Listed = d.OfListed(r.Version, r.Listed)
		}
		for _, e := range d.Entries(r.Version, f) {
			add(f.ID, e)
		}
	})
	if err != nil {
		return err
	}
	maps.DeleteFunc(tallies, func(_ string, n int64) bool { return n == 0 })
	stored, storedTallies := map[string]string{}, map[string]int64{}
	for pair, err := range tx.GetRange(rows.Range(space.Sub(14, queue.Name())), kv.RangeOptions{}).All() {
		if err != nil {
			return err
		}
		stored[string(pair.Key)] = string(pair.Value)
	}
	for pair, err := range tx.GetRange(rows.Range(space.Sub(15, queue.Name())), kv.RangeOptions{}).All() {
		if err != nil {
			return err
		}
		if storedTallies[string(pair.Key)], err = rows.ParseInt(pair.Value); err != nil {
			return err
		}
	}
	if err := sameKeys("entry", entries, stored); err != nil {
		return err
	}
	return sameKeys("tally", tallies, storedTallies)
}

func sameKeys[V comparable](what string, want, have map[string]V) error {
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if v, ok := have[key]; !ok || v != want[key] {
			return fmt.Errorf("the %s %q is %v, not %v", what, key, v, want[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(have)) {
		if _, ok := want[key]; !ok {
			return fmt.Errorf("the %s %q follows from no job", what, key)
		}
	}
	return nil
}
