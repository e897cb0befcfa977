package frontend

import (
	stdlog "log"
	"net/http"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"settee/replicator"
)

const (
	headerTimeout = 30 * time.Second // to send a request's headers
	idleTimeout   = 5 * time.Minute  // between the requests of a connection
	maxHeaders    = 64 << 10         // bytes
)

// NewServer returns an HTTP server for h; its caller sets Addr, or calls Serve.
// Shutdown drains h, so that it need not wait for replications to end.
//
// The server has neither a ReadTimeout nor a WriteTimeout, because an answer may take
// as long as a replication: h itself bounds how long a client takes to send a body
// and to receive an answer.
func NewServer(h *Handler) *http.Server {
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaders,
		ErrorLog:          stdlog.New(serverLog{h.log}, "", 0),
	}
	server.RegisterOnShutdown(h.Drain)
	return server
}

// serverLog takes what net/http says of connections.
type serverLog struct{ log zerolog.Logger }

func (l serverLog) Write(line []byte) (int, error) {
	l.log.Warn().Str("reason", replicator.StripCredentials(strings.TrimSpace(string(line)))).Msg("connection failed")
	return len(line), nil
}
