package frontend

import (
	"bytes"
	stdlog "log"
	"net/http"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"settee/pkg/redact"
)

const (
	headerTimeout = 30 * time.Second // to send a request's headers
	idleTimeout   = 5 * time.Minute  // between the requests of a connection
	maxHeaders    = 64 << 10         // bytes
	// Of HTTP/2, which TLS connections speak: how many requests at a time share a connection,
	// and how long one may be silent before it is asked whether anybody is there.
	maxStreams   = 100
	pingAfter    = time.Minute
	pingWithin   = 15 * time.Second
	writesWithin = sendTimeout // of any byte
)

// NewServer returns an HTTP server for h; its caller sets Addr, or calls Serve.
// Shutdown drains h, so that it need not wait for replications to end.
//
// The server has at most [chttpd] max_connections connections, of all its listeners, and
// answers as many requests at a time.
//
// It has neither a ReadTimeout nor a WriteTimeout, because an answer may take
// as long as a replication: h itself bounds how long a client takes to send a body
// and to receive an answer.
func NewServer(h *Handler) *http.Server {
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		ConnContext:       h.connections.accept,
		ConnState:         h.connections.note,
		MaxHeaderBytes:    maxHeaders,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, SendPingTimeout: pingAfter, PingTimeout: pingWithin, WriteByteTimeout: writesWithin,
		},
		ErrorLog: stdlog.New(serverLog{h.log}, "", 0),
	}
	server.RegisterOnShutdown(h.Drain)
	return server
}

// serverLog takes what net/http says of connections.
type serverLog struct{ log zerolog.Logger }

func (l serverLog) Write(line []byte) (int, error) {
	level := zerolog.WarnLevel
	if bytes.Contains(line, []byte("TLS handshake error")) { // of whoever scans the ports
		level = zerolog.DebugLevel
	}
	l.log.WithLevel(level).Str("reason", redact.Text(strings.TrimSpace(string(line)))).Msg("connection failed")
	return len(line), nil
}
