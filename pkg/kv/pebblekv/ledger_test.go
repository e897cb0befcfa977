package pebblekv_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"

	"settee/pkg/kv"
)

// The workload of the crash tests. Each writer commits its transactions 1, 2, 3 and so on, one after the other. Each
// transaction writes
//
//	last/<writer>                -> number
//	row/<writer>/<number>/<part> -> the same text for each of the parts
//	stamp/<writer>/<number>      -> the commit's versionstamp
//	log/<versionstamp>           -> <writer>/<number>
//
// and transfers an amount between two accounts, account/<n>, whose total is fixed. So anything missing, incomplete or
// repeated is visible. Sometimes a transaction removes the older half of its writer's, up to first/<writer>.
const (
	ledgerParts    = 3
	ledgerAccounts = 4
	ledgerBalance  = 1000
	ledgerKept     = 60 // of each writer, at least
)

// ledgerEntry identifies a transaction of the workload.
type ledgerEntry struct {
	writer, number int
}

// ledger is what a process knows of its commits.
type ledger struct {
	mu sync.Mutex
	// attempted and acknowledged are each writer's last transaction.
	attempted, acknowledged map[int]int
	// stamps are the versionstamps of acknowledged commits.
	stamps map[ledgerEntry]string
	// highest is the highest stamp seen.
	highest string
}

func newLedger() *ledger {
	return &ledger{attempted: map[int]int{}, acknowledged: map[int]int{}, stamps: map[ledgerEntry]string{}}
}

// copy returns a copy of the current state.
func (l *ledger) copy() *ledger {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := newLedger()
	c.highest = l.highest
	for w, n := range l.attempted {
		c.attempted[w] = n
	}
	for w, n := range l.acknowledged {
		c.acknowledged[w] = n
	}
	for e, s := range l.stamps {
		c.stamps[e] = s
	}
	return c
}

// attempt returns the next transaction of a writer.
func (l *ledger) attempt(writer int) ledgerEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempted[writer] = l.acknowledged[writer] + 1
	return ledgerEntry{writer, l.attempted[writer]}
}

func (l *ledger) acknowledge(e ledgerEntry, stamp string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acknowledged[e.writer] = e.number
	l.stamps[e] = stamp
	l.highest = max(l.highest, stamp)
}

// commit commits e and returns its stamp, which must be above floor.
func (e ledgerEntry) commit(ctx context.Context, db kv.Database, random *rand.Rand, floor string) (string, error) {
	number := binary.BigEndian.AppendUint64(nil, uint64(e.number))
	text := []byte(strings.Repeat(fmt.Sprint(random.Uint64()), 1+random.IntN(40)))
	from, to, amount := random.IntN(ledgerAccounts), random.IntN(ledgerAccounts), int64(random.IntN(5))
	stamp := "stamp/" + e.String()
	err := db.Transact(ctx, func(tx kv.Transaction) error {
		if e.number%ledgerKept == 0 && e.number > ledgerKept {
			if err := e.removeOld(tx); err != nil {
				return err
			}
		}
		tx.Set(fmt.Appendf(nil, "last/%d", e.writer), number)
		for part := range ledgerParts {
			tx.Set(fmt.Appendf(nil, "row/%s/%d", e, part), text)
		}
		tx.SetVersionstampedValue([]byte(stamp), make([]byte, 14))
		tx.SetVersionstampedKey([]byte("log/0123456789\x04\x00\x00\x00"), []byte(e.String()))
		if from != to {
			tx.Add(account(from), -amount)
			tx.Add(account(to), amount)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	got, err := get(ctx, db, stamp)
	if err == nil && got <= floor {
		err = fmt.Errorf("stamp %x follows stamp %x", got, floor)
	}
	return got, err
}

// String is "<writer>/<number>", in the order of the numbers.
func (e ledgerEntry) String() string { return fmt.Sprintf("%d/%08d", e.writer, e.number) }

// removeOld removes the writer's transactions except the last ones before e.
func (e ledgerEntry) removeOld(tx kv.Transaction) error {
	first := ledgerEntry{e.writer, e.number - ledgerKept + 1}
	old := func(table string) kv.KeyRange {
		return kv.KeyRange{Begin: fmt.Appendf(nil, "%s/%d/", table, e.writer), End: []byte(table + "/" + first.String())}
	}
	for pair, err := range tx.GetRange(old("stamp"), kv.RangeOptions{}).All() {
		if err != nil {
			return err
		}
		tx.Clear(append([]byte("log/"), pair.Value...))
	}
	tx.ClearRange(old("stamp"))
	tx.ClearRange(old("row"))
	tx.Set(fmt.Appendf(nil, "first/%d", e.writer), binary.BigEndian.AppendUint64(nil, uint64(first.number)))
	return nil
}

func account(n int) []byte { return fmt.Appendf(nil, "account/%d", n) }

func amountOf(n int64) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(n)) }

// openLedger creates the accounts if there are none yet.
func openLedger(ctx context.Context, db kv.Database) error {
	return db.Transact(ctx, func(tx kv.Transaction) error {
		there, err := tx.Get(account(0)).Await()
		if err != nil || there != nil {
			return err
		}
		for n := range ledgerAccounts {
			tx.Set(account(n), amountOf(ledgerBalance))
		}
		return nil
	})
}

// ledgerState is the workload's content of a store.
type ledgerState struct {
	first  map[int]int // 0 if nothing was removed
	last   map[int]int
	rows   map[ledgerEntry][]string
	stamps map[ledgerEntry]string
	log    map[string]ledgerEntry
	total  int64
	opened bool // the accounts exist
}

func readLedger(ctx context.Context, db kv.Database) (*ledgerState, error) {
	return kv.TransactValue(ctx, db, func(tx kv.Transaction) (*ledgerState, error) {
		s := &ledgerState{
			first: map[int]int{}, last: map[int]int{}, rows: map[ledgerEntry][]string{}, stamps: map[ledgerEntry]string{},
			log: map[string]ledgerEntry{},
		}
		for pair, err := range tx.GetRange(kv.PrefixRange(nil), kv.RangeOptions{}).All() {
			if err != nil {
				return nil, err
			}
			if err := s.take(string(pair.Key), pair.Value); err != nil {
				return nil, fmt.Errorf("key %q: %w", pair.Key, err)
			}
		}
		return s, nil
	})
}

func (s *ledgerState) take(key string, value []byte) (err error) {
	table, rest, _ := strings.Cut(key, "/")
	switch table {
	case "first", "last":
		var e ledgerEntry
		e, err = parseEntry(rest + "/0")
		numbers := s.last
		if table == "first" {
			numbers = s.first
		}
		numbers[e.writer] = int(binary.BigEndian.Uint64(value))
	case "row":
		var e ledgerEntry
		e, err = parseEntry(rest[:strings.LastIndexByte(rest, '/')])
		s.rows[e] = append(s.rows[e], string(value))
	case "stamp":
		var e ledgerEntry
		e, err = parseEntry(rest)
		s.stamps[e] = string(value)
	case "log":
		s.log[rest], err = parseEntry(string(value))
	case "account":
		s.total += int64(binary.LittleEndian.Uint64(value))
		s.opened = true
	}
	return err
}

// parseEntry parses "<writer>/<number>".
func parseEntry(text string) (ledgerEntry, error) {
	writer, number, _ := strings.Cut(text, "/")
	w, err := strconv.Atoi(writer)
	if err != nil {
		return ledgerEntry{}, err
	}
	n, err := strconv.Atoi(number)
	return ledgerEntry{w, n}, err
}

// highest returns the highest stamp in the store.
func (s *ledgerState) highest() (stamp string) {
	for at := range s.log {
		stamp = max(stamp, at)
	}
	return stamp
}

// whole returns the first inconsistency within the store.
func (s *ledgerState) whole() (wrong []string) {
	if s.opened && s.total != ledgerAccounts*ledgerBalance {
		wrong = append(wrong, fmt.Sprintf("the accounts have %d", s.total))
	}
	entries := 0
	for writer, last := range s.last {
		first := max(s.first[writer], 1)
		entries += last - first + 1
		for n := first; n <= last; n++ {
			e := ledgerEntry{writer, n}
			rows := s.rows[e]
			switch {
			case len(rows) != ledgerParts:
				wrong = append(wrong, fmt.Sprintf("%v has %d rows", e, len(rows)))
			case rows[0] != rows[1] || rows[1] != rows[2]:
				wrong = append(wrong, fmt.Sprintf("%v has different rows", e))
			case s.log[s.stamps[e]] != e:
				wrong = append(wrong, fmt.Sprintf("%v has the stamp %x of %v", e, s.stamps[e], s.log[s.stamps[e]]))
			}
		}
	}
	if len(s.rows) != entries || len(s.log) != entries || len(s.stamps) != entries {
		wrong = append(wrong, fmt.Sprintf("%d entries have %d groups of rows, %d log lines, %d stamps",
			entries, len(s.rows), len(s.log), len(s.stamps)))
	}
	return wrong
}

// agrees returns the first difference between the store and what is known: before is from before the cut, after from
// after it.
func (s *ledgerState) agrees(before, after *ledger) (wrong []string) {
	for writer, last := range before.acknowledged {
		if s.last[writer] < last {
			wrong = append(wrong, fmt.Sprintf("writer %d was acknowledged %d, and %d is there", writer, last, s.last[writer]))
		}
	}
	for writer, last := range s.last {
		if last > after.attempted[writer] {
			wrong = append(wrong, fmt.Sprintf("writer %d attempted %d, and %d is there", writer, after.attempted[writer], last))
		}
	}
	for e, stamp := range before.stamps {
		if e.number >= s.first[e.writer] && s.stamps[e] != stamp {
			wrong = append(wrong, fmt.Sprintf("%v was acknowledged with stamp %x, and has %x", e, stamp, s.stamps[e]))
		}
	}
	return wrong
}

// resume records the content of the store as acknowledged: it will stay.
func (l *ledger) resume(s *ledgerState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for writer, last := range s.last {
		l.acknowledged[writer], l.attempted[writer] = last, last
	}
	for e, stamp := range s.stamps {
		l.stamps[e] = stamp
	}
	l.highest = max(l.highest, s.highest())
}
