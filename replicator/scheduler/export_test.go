package scheduler

import "time"

// Penalty is how long a job waits that has crashed.
func (s *Server) Penalty(transient bool, errorCount int, retryAfter time.Duration, jitter float64) time.Duration {
	return s.penalty(transient, errorCount, retryAfter, jitter)
}
