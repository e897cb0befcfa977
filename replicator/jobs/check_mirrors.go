package jobs

import (
	"maps"
	"slices"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/replicator"
)

// mirrored checks the row of a mirror's database: that it is in the indexes, and that it has a job if it says so.
func (k checker) mirrored(e entry) (func() error, error) {
	var mirror, database string
	if !rows.As(e.key[0], &mirror) || !rows.As(e.key[1], &database) {
		return e.unknown()
	}
	row, err := parseMirrored(e.Value)
	if err != nil {
		return e.unreadable("a database of a mirror")
	}
	keys := k.mirrors.indexed(mirror, database, row)
	there := make([]kv.Future[[]byte], len(keys))
	for i, key := range keys {
		there[i] = e.Get(key)
	}
	job := peek(e, k.jobs, replicator.ChildJobID(mirror, database))
	earlier := rows.Range(k.space.Sub("mirrored", mirror))
	earlier.End = e.Key
	before := e.GetRange(earlier, kv.RangeOptions{Limit: 1})
	return func() error {
		if pairs, err := before.Slice(); err != nil {
			return err
		} else if len(pairs) == 0 {
			if err := k.mirrorSums(e, mirror); err != nil {
				return err
			}
		}
		made, err := job.Await()
		if err != nil {
			return err
		}
		if row.hasJob() && made == nil {
			e.Fault(e.Key, func() error {
				next := &mirroredRow{state: replicator.MirroredWaiting, turn: row.turn, since: row.since}
				k.mirrors.setMirrored(e, mirror, database, row, next)
				return nil
			}, "the database %q of a mirror has no job", database)
			return nil
		}
		for i, read := range there {
			value, err := read.Await()
			if err != nil {
				return err
			}
			if value == nil {
				e.Wrong(keys[i], nil, "the database %q of a mirror is missing in an index", database)
			}
		}
		return nil
	}, nil
}

// mirrorIndex checks a row of an index of a mirror's databases.
func (k checker) mirrorIndex(e entry) (func() error, error) {
	var mirror, database string
	var at int64
	if !rows.As(e.key[0], &mirror) || !rows.As(e.key[1], &at) || !rows.As(e.key[2], &database) {
		return e.unknown()
	}
	reading := k.mirrors.readMirrored(e, mirror, database)
	return func() error {
		row, err := reading.Await()
		if row == nil && err != nil {
			return nil //nolint:nilerr // a row that cannot be read is a fault of its own
		}
		for _, key := range k.mirrors.indexed(mirror, database, row) {
			if string(key) == string(e.Key) {
				return nil
			}
		}
		e.Stray(e.Key, "an index of a mirror's databases has %q, whose row says otherwise", database)
		return nil
	}, nil
}

// mirrorSum checks a sum of a mirror that has no rows. The first row of a mirror checks its sums otherwise.
func (k checker) mirrorSum(e entry) (func() error, error) {
	var mirror, name string
	if !rows.As(e.key[0], &mirror) || !rows.As(e.key[1], &name) {
		return e.unknown()
	}
	if _, err := rows.ParseInt(e.Value); err != nil {
		return e.unreadable("a sum of a mirror")
	}
	first := e.GetRange(rows.Range(k.space.Sub("mirrored", mirror)), kv.RangeOptions{Limit: 1})
	return func() error {
		pairs, err := first.Slice()
		if err == nil && len(pairs) == 0 {
			e.Stray(e.Key, "a sum of a mirror without databases")
		}
		return err
	}, nil
}

// countedMirrored is the number of rows that are read at a time to sum them up.
const countedMirrored = 2_000

// mirrorSums checks the sums of a mirror, if the rows can be read in one transaction.
func (k checker) mirrorSums(e entry, mirror string) error {
	space, want := k.space.Sub("mirror_sums", mirror), map[string]int64{}
	reading := e.GetRange(rows.Range(space), kv.RangeOptions{})
	for after := ""; ; {
		found, err := k.mirrors.mirroredRows(e, mirror, after, countedMirrored)
		if err != nil {
			return nil //nolint:nilerr // a row that cannot be read is a fault of its own
		}
		for _, d := range found {
			d.row.sums(1, want)
			after = d.Database
		}
		if len(found) < countedMirrored {
			break
		}
		if e.Late() {
			e.Unsettled()
			return nil
		}
	}
	pairs, err := reading.Slice()
	if err != nil {
		return err
	}
	have := map[string]int64{}
	for _, pair := range pairs {
		name, bad := rows.LastString(space, pair.Key)
		n, wrong := rows.ParseInt(pair.Value)
		if bad == nil && wrong == nil {
			have[name] = n
		}
	}
	names := slices.Collect(maps.Keys(want))
	for name := range have {
		if _, known := want[name]; !known {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		switch key := space.Pack(name); {
		case have[name] == want[name]:
		case want[name] == 0:
			e.Stray(key, "a sum of a mirror is %d, and its databases have none", have[name])
		default:
			e.Wrong(key, rows.Int(want[name]), "a sum of a mirror is %d, and its databases have %d", have[name], want[name])
		}
	}
	return nil
}

// mirrorOf checks a row that a mirror needs, whose mirror may be gone.
func (checker) mirrorOf(e entry) (func() error, error) {
	for _, element := range e.key {
		var name string
		if !rows.As(element, &name) {
			return e.unknown()
		}
	}
	return nil, nil
}
