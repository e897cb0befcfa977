package levels

import (
	"context"
	"errors"
	"fmt"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// Conversion gives rows of the level before the form of a level, after the store was raised to it. It may end in the
// middle, in any process, and goes on from there in another one.
type Conversion struct {
	// Level is the level whose form the rows get.
	Level int64
	// Step converts rows from a position on, as many as fit well into one transaction. A nil position means the first row.
	// Step returns the position after these rows, at most 10 kB, and nil if no row is left. The transaction also writes the
	// position, so each step is committed once.
	Step func(tx kv.Transaction, from []byte) (next []byte, err error)
}

// ConvertingError is the error of [Guard.Raise] while rows of the store's level have yet to be converted. A process that
// does not know the level before could not read them.
type ConvertingError struct {
	Level int64 // of the store
}

func (e *ConvertingError) Error() string {
	return fmt.Sprintf("the store's level cannot be raised yet, because the rows of before level %d are still being converted", e.Level)
}

// conversion is how far the conversion to a level is.
type conversion struct {
	done     bool
	position []byte // if it is not done
}

// Convert runs a conversion until no row is left. It does nothing while the store has a lower level, and after the
// conversion has ended. Several processes may call it at the same time: their steps conflict.
func (g *Guard) Convert(ctx context.Context, c Conversion) error {
	for {
		more, err := kv.TransactValue(ctx, g, func(tx kv.Transaction) (bool, error) { return g.convertSome(tx, c) })
		if err != nil || !more {
			return err
		}
	}
}

// convertSome is a transaction of Convert. It reports whether a row is left.
func (g *Guard) convertSome(tx kv.Transaction, c Conversion) (more bool, err error) {
	if reached, err := g.Reached(tx, c.Level); err != nil || !reached {
		return false, err
	}
	at, err := g.conversion(tx, c.Level)
	if err != nil || at.done {
		return false, err
	}
	next, err := c.Step(tx, at.position)
	if err != nil {
		return false, fmt.Errorf("converting rows to level %d: %w", c.Level, err)
	}
	setConversion(tx, g.opts.Key, c.Level, conversion{next == nil, next})
	return next != nil, nil
}

// Converted reports whether all rows have the form of a level: the store has it, and its conversion has ended. It is for
// levels of Options.Conversions. Once it was true it stays true.
func (g *Guard) Converted(tx kv.Transaction, level int64) (bool, error) {
	if reached, err := g.Reached(tx, level); err != nil || !reached {
		return false, err
	}
	at, err := g.conversion(tx, level)
	return at.done, err
}

// Converting returns the store's level, and whether its conversion has yet to end.
func (g *Guard) Converting(ctx context.Context) (level int64, yet bool, err error) {
	err = g.Transact(ctx, func(tx kv.Transaction) (err error) {
		level, yet, err = g.converting(tx)
		return err
	})
	return level, yet, err
}

func (g *Guard) converting(tx kv.Transaction) (level int64, yet bool, err error) {
	level, err = g.Level(tx)
	if err != nil || !g.opts.converts(level) {
		return level, false, err
	}
	at, err := g.conversion(tx, level)
	return level, !at.done, err
}

// conversion reads how far the conversion to a level is.
func (g *Guard) conversion(tx kv.Transaction, level int64) (c conversion, err error) {
	value, err := tx.Get(conversionKey(g.opts.Key, level)).Await()
	if err != nil || value == nil {
		return c, err
	}
	return parseConversion(value)
}

func parseConversion(value []byte) (c conversion, err error) {
	elements, err := tuple.Unpack(value)
	var done int64
	if err != nil || len(elements) != 2 || !rows.As(elements[0], &done) || !rows.As(elements[1], &c.position) {
		return c, errors.New("the position of a conversion has a form that is not known")
	}
	c.done = done != 0
	return c, nil
}

func setConversion(tx kv.Transaction, key []byte, level int64, c conversion) {
	done := int64(0)
	if c.done {
		done = 1
	}
	tx.Set(conversionKey(key, level), tuple.Tuple{done, append([]byte{}, c.position...)}.Pack())
}

// conversionKey returns the key of the conversion to a level.
func conversionKey(key []byte, level int64) []byte {
	return append(append([]byte{}, key...), tuple.Tuple{level}.Pack()...)
}
