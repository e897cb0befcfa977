package scheduler

import "time"

// Penalty returns the wait of a crashed job.
func (s *Server) Penalty(awaited bool, errorCount int, retryAfter time.Duration, jitter float64) time.Duration {
	return s.penalty(awaited, errorCount, retryAfter, jitter)
}
