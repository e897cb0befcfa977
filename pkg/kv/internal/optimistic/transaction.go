package optimistic

import (
	"cmp"
	"container/list"
	"slices"
	"sync"
	"time"

	"settee/pkg/kv"
)

// transaction is one run of a function.
type transaction struct {
	db *DB

	mu     sync.Mutex
	ended  bool
	failed error // of a write, returned by the next read or the commit
	// began is set at the first read, when a view was drawn, and start is that time. view is nil before that, and after
	// the transaction expired.
	began       bool
	start       time.Time
	view        *view
	readVersion int64
	reader      *list.Element // in DB.readers, under DB.viewMu
	writes      buffer
	writeBytes  int // towards kv.MaxTransactionSize
	reads       []span
	armed       []*watch
}

// begin returns the view of this transaction, and draws it at the first call. The caller holds mu.
func (tx *transaction) begin() (*view, error) {
	switch {
	case tx.ended:
		return nil, kv.ErrUsedAfterEnd
	case tx.failed != nil:
		return nil, tx.failed
	case !tx.began:
		tx.db.beginReading(tx)
	case tx.view == nil || tx.db.now().Sub(tx.start) > kv.MaxTransactionAge:
		return nil, kv.ErrTransactionTooOld
	}
	return tx.view, nil
}

// expire releases the view of a transaction that is too old.
func (tx *transaction) expire() {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	tx.releaseView()
}

// end ends the use of the transaction and releases what it holds.
func (tx *transaction) end() {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	tx.endLocked()
}

func (tx *transaction) endLocked() {
	tx.ended = true
	tx.db.endReading(tx)
	tx.releaseView()
}

func (tx *transaction) releaseView() {
	if tx.view != nil {
		tx.view.release()
		tx.view = nil
	}
}

// finish ends the use of the transaction and returns its commit, or nil if it wrote nothing.
func (tx *transaction) finish() (*commit, error) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	tx.endLocked()
	if tx.failed != nil {
		return nil, tx.failed
	}
	if tx.writes.wroteNothing() {
		return nil, nil
	}
	reads := joined(tx.reads)
	size := tx.writeBytes
	for _, s := range reads {
		size += conflictSize + len(s.begin) + len(s.end)
	}
	if size > kv.MaxTransactionSize {
		return nil, kv.ErrTransactionTooLarge
	}
	return &commit{
		began:       tx.began,
		start:       tx.start,
		readVersion: tx.readVersion,
		reads:       reads,
		conflicts:   tx.writes.conflicts,
		log:         tx.writes.log,
		size:        size,
		done:        make(chan struct{}),
	}, nil
}

// joined sorts spans and merges those that overlap or touch. It reuses the slice.
func joined(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.begin, b.begin) })
	kept := spans[:0]
	for _, s := range spans {
		if last := len(kept) - 1; last >= 0 && s.begin <= kept[last].end {
			kept[last].end = max(kept[last].end, s.end)
		} else {
			kept = append(kept, s)
		}
	}
	return kept
}
