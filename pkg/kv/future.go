package kv

// Future is the result of a read. Await waits for it, and may be called several times.
type Future[T any] interface {
	Await() (T, error)
}

// Func is a future of what it returns: of several reads, or of a range. It may be called once if that holds for what it
// reads.
type Func[T any] func() (T, error)

// Await implements [Future].
func (f Func[T]) Await() (T, error) { return f() }

// Known returns a future whose result is value, for functions that wait for a read.
func Known[T any](value T) Future[T] { return Func[T](func() (T, error) { return value, nil }) }

// Map returns a future of what fn makes of the result of f. Await calls fn, unless f has failed.
func Map[T, U any](f Future[T], fn func(T) (U, error)) Future[U] {
	return Func[U](func() (out U, err error) {
		value, err := f.Await()
		if err != nil {
			return out, err
		}
		return fn(value)
	})
}

// All waits for reads in turn, and returns their results, or the first error.
func All[T any](reads []Future[T]) ([]T, error) {
	out := make([]T, len(reads))
	for i, read := range reads {
		var err error
		if out[i], err = read.Await(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Each starts a read for each element of a list, and returns the results of all, or the first error.
func Each[T, U any](list []T, read func(T) Future[U]) ([]U, error) {
	reads := make([]Future[U], len(list))
	for i, element := range list {
		reads[i] = read(element)
	}
	return All(reads)
}
