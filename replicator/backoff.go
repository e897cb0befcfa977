package replicator

import "time"

// Backoff returns how long a job waits after the given number of crashes in a row: min(maximum,
// minimum * 2^errors), less up to a quarter of it. jitter, from 0 to below 1, says how much of
// that quarter. (RFC 016 writes max where it means min.)
func Backoff(errors int, minimum, maximum time.Duration, jitter float64) time.Duration {
	wait := min(minimum, maximum)
	for ; errors > 0 && wait > 0 && wait < maximum; errors-- {
		if wait > maximum/2 {
			wait = maximum
			break
		}
		wait *= 2
	}
	return wait - time.Duration(float64(wait/4)*jitter)
}
