package worker

import "time"

// Impatient is a Shared whose requests soon give up on a server that answers 429.
func Impatient() *Shared {
	s := &Shared{}
	s.limiter.Longest = 100 * time.Millisecond
	return s
}
