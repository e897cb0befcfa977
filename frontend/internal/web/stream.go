package web

import (
	"errors"
	"io"
	"net/http"
	"slices"
)

const (
	// StreamBuffer is how many bytes of an answer are held back until they are worth sending.
	StreamBuffer = 32 << 10
	// streamPiece is how many bytes a client has to receive within sendTimeout.
	streamPiece = 256 << 10
)

// Stream is an answer that is sent in pieces, while it is made. Nothing is sent before the first flush, or before the
// buffer is full: an action that fails before that is answered with its error. If it fails later, the connection is
// cut, which tells the client that the answer is not whole.
type Stream struct {
	w      http.ResponseWriter
	r      *http.Request
	status int
	buffer []byte
	sent   bool
}

var _ io.Writer = (*Stream)(nil)

// NewStream returns an answer of a content type. The caller sets other headers before it writes anything.
func NewStream(w http.ResponseWriter, r *http.Request, status int, contentType string) *Stream {
	w.Header().Set("Content-Type", contentType)
	return &Stream{w: w, r: r, status: status}
}

// Write implements io.Writer. What is larger than the buffer is not copied into it.
func (s *Stream) Write(p []byte) (int, error) {
	if len(s.buffer)+len(p) < StreamBuffer {
		s.buffer = append(s.buffer, p...)
		return len(p), nil
	}
	if err := s.send(); err != nil {
		return 0, err
	}
	if len(p) < StreamBuffer {
		s.buffer = append(s.buffer, p...)
		return len(p), nil
	}
	return len(p), s.sendText(p)
}

// Begun reports whether something of the answer was sent.
func (s *Stream) Begun() bool { return s.sent }

// Text writes texts.
func (s *Stream) Text(texts ...string) error {
	for _, text := range texts {
		s.buffer = append(s.buffer, text...)
	}
	if len(s.buffer) < StreamBuffer {
		return nil
	}
	return s.send()
}

// Flush sends what was written, so that the client sees it now.
func (s *Stream) Flush() error {
	if err := s.send(); err != nil {
		return err
	}
	if err := http.NewResponseController(s.w).Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return ErrClientGone
	}
	return nil
}

// End sends the rest.
func (s *Stream) End() error { return s.send() }

// Idle frees the buffer of a stream that was flushed, and may have nothing to send for hours.
func (s *Stream) Idle() { s.buffer = nil }

func (s *Stream) send() error {
	if out, ok := s.w.(*answer); ok && !s.sent {
		if err := out.needRest(s.r); err != nil {
			return err
		}
	}
	ExtendDeadline(s.w)
	if !s.sent {
		s.sent = true
		s.w.WriteHeader(s.status)
	}
	text := s.buffer
	s.buffer = s.buffer[:0]
	return s.sendText(text)
}

// sendText sends a text after send has begun the answer.
func (s *Stream) sendText(text []byte) error {
	if s.r.Method == http.MethodHead {
		return nil
	}
	for piece := range slices.Chunk(text, streamPiece) {
		ExtendDeadline(s.w)
		_, err := s.w.Write(piece)
		if errors.Is(err, http.ErrContentLength) { // a bug of this node
			return err
		}
		if err != nil {
			return ErrClientGone
		}
	}
	return nil
}
