package optimistic

// Storage keeps ordered pairs. One goroutine at a time fills and applies batches. Any number may call everything else.
type Storage interface {
	// NewBatch returns an empty batch.
	NewBatch() Batch
	// Snapshot returns a view of the result of all batches applied so far.
	Snapshot() Snapshot
	Close() error
}

// Reader reads one view of the storage.
type Reader interface {
	// Get returns a copy of the value, or nil if there is none.
	Get(key []byte) ([]byte, error)
}

// Snapshot is a view that does not change.
type Snapshot interface {
	Reader
	// Iterate returns an iterator over the keys from begin (inclusive) to end (exclusive), without a position.
	Iterate(begin, end []byte) (Iterator, error)
	Close() error
}

// Iterator iterates over pairs. A move reports whether it arrived at a pair. Key and Value return the key and
// the value of this pair, which are valid until the next move.
type Iterator interface {
	First() bool
	Last() bool
	Next() bool
	Prev() bool
	SeekGE(key []byte) bool
	SeekLT(key []byte) bool
	Key() []byte
	Value() ([]byte, error)
	// Error returns the error that ended the iteration.
	Error() error
	Close() error
}

// Batch collects writes that become durable together.
type Batch interface {
	Set(key, value []byte) error
	Clear(key []byte) error
	ClearRange(begin, end []byte) error
	// Apply makes the writes durable and visible, all or none. If it fails, either may be the case, and no other batch
	// is applied.
	Apply() error
	// Close releases the batch.
	Close()
}
