package engine

// Known is a kv.Future whose result is known.
type Known[T any] struct {
	Value T
	Err   error
}

// Await returns the result.
func (k Known[T]) Await() (T, error) { return k.Value, k.Err }
