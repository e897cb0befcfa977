// Package check reads all rows of a store and reports those that break an invariant. Each layer checks its own rows
// with a [Checker]. This package divides the work into transactions, collects the faults, and repairs what a layer can
// derive.
//
// # What a check of a store in use can claim
//
// Rows are read in pages. A page is one transaction, in which a layer also reads the rows that should agree with those
// of the page. So a fault that is reported existed in the store at one version, whatever was written meanwhile. The
// pages are of different versions: a row that is written behind the place that the check has reached is not checked.
// A number that takes more than one transaction to count is compared only if nothing has changed meanwhile. Otherwise
// it is unsettled, which is counted and is not a fault.
//
// # Repair
//
// A repair runs in the transaction that found the fault, and conflicts with every row that it was derived from. It
// writes only what can be derived from other rows, such as indexes and counters. Rows that cannot be derived are never
// written or removed, and neither are unknown rows.
package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// Fault is a row that is wrong or missing.
type Fault struct {
	Layer string
	// Place is the part of the layer that the key belongs to, such as a database. It may be empty.
	Place string
	Key   []byte
	// What says what is wrong. It contains no values.
	What string
	// Repairable reports whether the row can be derived from others. Repaired reports whether it was.
	Repairable, Repaired bool
}

// String returns the key in a readable form, and what is wrong.
func (f Fault) String() string { return Text(f.Key) + ": " + f.What }

// Counts are the numbers of what a Checker has done.
type Counts struct {
	Rows     int64 `json:"rows"`
	Faults   int64 `json:"faults"`
	Repaired int64 `json:"repaired"`
	// Sealed is the number of values that could not be read, because the key that they are sealed with is not known.
	Sealed int64 `json:"sealed"`
	// Unsettled is the number of counters that were not compared, because what they count changed all the time.
	Unsettled int64 `json:"unsettled"`
}

// Checker checks the rows of a store.
type Checker struct {
	DB     kv.Database
	Repair bool
	// Layer is the name of the layer that is checked, and Place a part of it, for faults.
	Layer, Place string
	// Report, if not nil, is called for each fault, after the transaction that found it. An error ends the check.
	Report func(Fault) error
	// Progress, if not nil, is called after each page.
	Progress func(Counts) error

	Counts Counts
}

const (
	// pageRows is the number of rows of a page. A row has at most 100 kB.
	pageRows = 100
	// pageTime is the time after which a page ends early. Its commit must come before kv.MaxTransactionAge.
	pageTime = kv.MaxTransactionAge / 5
)

// Page is the transaction of a page.
type Page struct {
	kv.Transaction
	began  time.Time
	row    int // that is visited
	found  []found
	counts Counts
	after  []func() error
}

type found struct {
	row   int
	fault Fault
	fix   func() error
}

// Fault notes a fault of the row that is visited: in key, which may be another row's. fix, if not nil, repairs it in
// the page's transaction. It runs after all rows of the page have been visited.
func (p *Page) Fault(key []byte, fix func() error, format string, args ...any) {
	p.found = append(p.found, found{p.row, Fault{Key: key, What: fmt.Sprintf(format, args...), Repairable: fix != nil}, fix})
}

// Stray notes a row that must not exist. The repair clears it.
func (p *Page) Stray(key []byte, format string, args ...any) {
	p.Fault(key, func() error { p.Clear(key); return nil }, format, args...)
}

// Wrong notes a row that is missing or has a wrong value. The repair writes the value.
func (p *Page) Wrong(key, value []byte, format string, args ...any) {
	p.Fault(key, func() error { p.Set(key, value); return nil }, format, args...)
}

// Sealed counts a value that cannot be opened.
func (p *Page) Sealed() { p.counts.Sealed++ }

// Unsettled counts a counter that cannot be compared.
func (p *Page) Unsettled() { p.counts.Unsettled++ }

// After calls f once, after the page's transaction, in the order of the rows. It is for sums over several pages. It must
// be called in the function that a visit returns.
func (p *Page) After(f func() error) { p.after = append(p.after, f) }

// Late reports whether the page's transaction must not read much more.
func (p *Page) Late() bool { return time.Since(p.began) > 2*pageTime }

// Visit looks at a row. It starts the reads of what should agree with it, and returns a function that waits for them,
// or nil. Visits of a page run one after the other, and then the functions, so the reads of a page overlap. An error is
// one of the store. A visit runs again if the transaction is repeated.
type Visit func(p *Page, pair kv.KeyValue) (then func() error, err error)

// Walk visits the rows of a range in key order.
func (c *Checker) Walk(ctx context.Context, r kv.KeyRange, visit Visit) error {
	for r.Begin != nil {
		var page *Page
		next, err := kv.TransactValue(ctx, c.DB, func(tx kv.Transaction) (next []byte, err error) {
			page = &Page{Transaction: tx, began: time.Now()}
			return page.run(r, visit, c.Repair)
		})
		if err != nil {
			return err
		}
		if err := c.note(page); err != nil {
			return err
		}
		r.Begin = next
	}
	return nil
}

// Do runs one transaction that belongs to no row.
func (c *Checker) Do(ctx context.Context, do func(p *Page) error) error {
	var page *Page
	err := c.DB.Transact(ctx, func(tx kv.Transaction) error {
		page = &Page{Transaction: tx, began: time.Now()}
		if err := do(page); err != nil {
			return err
		}
		return page.repair(c.Repair)
	})
	if err != nil {
		return err
	}
	return c.note(page)
}

// run visits the rows of a page, and returns where the next one begins.
func (p *Page) run(r kv.KeyRange, visit Visit, repair bool) (next []byte, err error) {
	pairs, err := p.GetRange(r, kv.RangeOptions{Limit: pageRows}).Slice()
	if err != nil {
		return nil, err
	}
	thens := make([]func() error, len(pairs))
	for i, pair := range pairs {
		p.row = i
		if thens[i], err = visit(p, pair); err != nil {
			return nil, err
		}
	}
	if len(pairs) == pageRows {
		next = kv.KeyAfter(pairs[len(pairs)-1].Key)
	}
	for i, then := range thens {
		p.row = i
		if then != nil {
			if err := then(); err != nil {
				return nil, err
			}
		}
		p.counts.Rows++
		if i+1 < len(pairs) && time.Since(p.began) > pageTime {
			next = kv.KeyAfter(pairs[i].Key)
			break
		}
	}
	kept := p.found[:0]
	for _, f := range p.found {
		if f.row <= p.row {
			kept = append(kept, f)
		}
	}
	p.found = kept
	return next, p.repair(repair)
}

func (p *Page) repair(repair bool) error {
	for i := range p.found {
		if f := &p.found[i]; repair && f.fix != nil {
			if err := f.fix(); err != nil {
				return err
			}
			f.fault.Repaired = true
		}
	}
	return nil
}

// note counts and reports what a committed page has found.
func (c *Checker) note(p *Page) error {
	for _, f := range p.after {
		if err := f(); err != nil {
			return err
		}
	}
	c.Counts.Rows += p.counts.Rows
	c.Counts.Sealed += p.counts.Sealed
	c.Counts.Unsettled += p.counts.Unsettled
	for _, f := range p.found {
		f.fault.Layer, f.fault.Place = c.Layer, c.Place
		c.Counts.Faults++
		if f.fault.Repaired {
			c.Counts.Repaired++
		}
		if c.Report != nil {
			if err := c.Report(f.fault); err != nil {
				return err
			}
		}
	}
	if c.Progress != nil {
		return c.Progress(c.Counts)
	}
	return nil
}

// Sound runs the check of a layer, and returns an error that names each fault.
func Sound(ctx context.Context, db kv.Database, layer func(context.Context, *Checker) error) error {
	var faults []error
	c := Checker{DB: db, Report: func(f Fault) error {
		faults = append(faults, errors.New(f.String()))
		return nil
	}}
	return errors.Join(layer(ctx, &c), errors.Join(faults...))
}

// Rest reports each row of all that is in none of the known ranges, which are in key order.
func (c *Checker) Rest(ctx context.Context, all kv.KeyRange, known ...kv.KeyRange) error {
	begin := all.Begin
	for _, r := range append(known, kv.KeyRange{Begin: all.End, End: all.End}) {
		if err := c.Unknown(ctx, kv.KeyRange{Begin: begin, End: r.Begin}); err != nil {
			return err
		}
		begin = r.End
	}
	return nil
}

// Unknown reports each row of a range as unknown.
func (c *Checker) Unknown(ctx context.Context, r kv.KeyRange) error {
	return c.Walk(ctx, r, func(p *Page, pair kv.KeyValue) (func() error, error) {
		p.Fault(pair.Key, nil, "unknown key")
		return nil, nil
	})
}

// Object reports whether a value is a JSON object.
func Object(value []byte) bool {
	var object map[string]json.RawMessage
	return json.Unmarshal(value, &object) == nil && object != nil
}

// Chunk visits a chunk of a value that [rows.SetChunks] has written: number n of space. It notes a fault if the chunk
// before it is missing or too short.
func (p *Page) Chunk(space tuple.Subspace, n int64, what string) (then func() error) {
	if n == 0 {
		return nil
	}
	key := space.Pack(n - 1)
	before := p.Get(key)
	return func() error {
		value, err := before.Await()
		if err == nil && len(value) != rows.ChunkSize {
			p.Fault(key, nil, "a chunk of %s is missing or truncated", what)
		}
		return err
	}
}

// Text returns a readable form of a key: the elements of a tuple, or quoted bytes.
func Text(key []byte) string {
	t, err := tuple.Unpack(key)
	if err != nil {
		return strconv.Quote(string(key))
	}
	return text(t)
}

func text(t tuple.Tuple) string {
	elements := make([]string, len(t))
	for i, element := range t {
		switch e := element.(type) {
		case nil:
			elements[i] = "null"
		case string:
			elements[i] = strconv.Quote(e)
		case []byte:
			elements[i] = fmt.Sprintf("%x", e)
		case tuple.Tuple:
			elements[i] = text(e)
		default:
			elements[i] = fmt.Sprint(e)
		}
	}
	return "(" + strings.Join(elements, ", ") + ")"
}
