package tracing

import (
	"sync"
	"time"

	"github.com/rs/zerolog"

	"settee/pkg/redact"
)

const (
	// complainEvery is the shortest time between two lines in the log about traces.
	complainEvery = time.Minute
	// maxComplaint is the length of an error in the log, in bytes. It may repeat what the collector has answered.
	maxComplaint = 500
)

// complaints logs that traces could not be sent, once in a while. It is the error handler of the SDK.
type complaints struct {
	log     zerolog.Logger
	secrets redact.Set

	mu   sync.Mutex
	next time.Time // no line before it
	more int       // errors since the last line that were not logged
}

// Handle implements otel.ErrorHandler.
func (c *complaints) Handle(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Before(c.next) {
		c.more++
		return
	}
	c.next = now.Add(complainEvery)
	text := c.secrets.Text(err.Error())
	c.log.Warn().Str("error", text[:min(len(text), maxComplaint)]).Int("more", c.more).Msg("traces could not be sent")
	c.more = 0
}
