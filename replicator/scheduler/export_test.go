package scheduler

import "time"

// Penalty returns the wait of a crashed job.
func (s *Server) Penalty(transient bool, errorCount int, retryAfter time.Duration, jitter float64) time.Duration {
	return s.penalty(transient, errorCount, retryAfter, jitter)
}
