package optimistic

// Storage keeps ordered pairs. Batches are filled and applied by one goroutine at
// a time; everything else may be called by many.
type Storage interface {
	// NewBatch returns an empty batch.
	NewBatch() Batch
	// Snapshot returns a view of what all batches applied so far left.
	Snapshot() Snapshot
	Close() error
}

// Reader reads one view of the storage.
type Reader interface {
	// Get returns a copy of the value, nil when there is none.
	Get(key []byte) ([]byte, error)
}

// Snapshot is a view that does not change.
type Snapshot interface {
	Reader
	// Iterate returns an iterator over the keys from begin (inclusive) to end
	// (exclusive), positioned nowhere.
	Iterate(begin, end []byte) (Iterator, error)
	Close() error
}

// Iterator walks over pairs. A move reports whether it arrived at one. Key and
// Value are of the pair there, and valid until the next move.
type Iterator interface {
	First() bool
	Last() bool
	Next() bool
	Prev() bool
	SeekGE(key []byte) bool
	SeekLT(key []byte) bool
	Key() []byte
	Value() ([]byte, error)
	// Error returns what ended the walk early.
	Error() error
	Close() error
}

// Batch collects writes that become durable together.
type Batch interface {
	Set(key, value []byte) error
	Clear(key []byte) error
	ClearRange(begin, end []byte) error
	// Apply makes the writes durable and visible, all or none. Which of the two
	// is not known when it fails: then no other batch is applied.
	Apply() error
	// Close releases the batch.
	Close()
}
