package web

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
	headerTimeout = 30 * time.Second // to send the headers of a request
	idleTimeout   = 5 * time.Minute  // between two requests of a connection
	// maxHeaders is the size of the headers of a request, in bytes. net/http keeps them while they arrive, before anything
	// is known of the client. It allows 4,096 more than it is told.
	maxHeaders = 16 << 10
	// For HTTP/2, which connections with TLS speak.
	maxStreams   = 100         // requests of a connection at a time
	pingAfter    = time.Minute // of silence
	pingWithin   = 15 * time.Second
	writesWithin = sendTimeout // of any byte
)

// HTTPServer returns an HTTP server for a handler that calls Serve. It has neither a ReadTimeout nor a WriteTimeout:
// an answer may take as long as a replication. The time for a body and for an answer is bounded by OpenBody, ReadBody and Stream.
// Shutdown drains the connections.
func (s *Server) HTTPServer(h http.Handler) *http.Server {
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		ConnContext:       s.Connections.accept,
		ConnState:         s.Connections.note,
		MaxHeaderBytes:    maxHeaders - 4<<10,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, SendPingTimeout: pingAfter, PingTimeout: pingWithin, WriteByteTimeout: writesWithin,
		},
		ErrorLog: stdlog.New(serverLog{s.Log}, "", 0),
	}
	server.RegisterOnShutdown(s.Connections.Drain)
	return server
}

// serverLog logs what net/http writes about connections.
type serverLog struct{ log zerolog.Logger }

func (l serverLog) Write(line []byte) (int, error) {
	level := zerolog.WarnLevel
	if bytes.Contains(line, []byte("TLS handshake error")) { // port scanners cause these
		level = zerolog.DebugLevel
	}
	l.log.WithLevel(level).Str("reason", redact.Text(strings.TrimSpace(string(line)))).Msg("connection failed")
	return len(line), nil
}
