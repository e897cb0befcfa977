package frontend

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"time"
)

const (
	// streamBuffer is how much of an answer is held back until it is worth sending.
	streamBuffer = 32 << 10
	// streamPiece is how much a client has to take within sendTimeout.
	streamPiece = 256 << 10
)

// stream is an answer that is sent in pieces, as it is made. Nothing is sent before the
// first flush, or before its buffer is full: an action that fails until then is still
// answered with an error. Of one that fails later the connection is cut, which is how a
// client learns that the answer is not whole.
type stream struct {
	w      http.ResponseWriter
	r      *http.Request
	status int
	buffer []byte
	begun  bool
}

var _ io.Writer = (*stream)(nil)

// errClientGone is the error of an answer that the client does not take.
var errClientGone = errors.New("the client does not take the answer")

// newStream returns an answer of a content type. Other headers are set on w, before
// anything is written.
func newStream(w http.ResponseWriter, r *http.Request, status int, contentType string) *stream {
	w.Header().Set("Content-Type", contentType)
	return &stream{w: w, r: r, status: status}
}

// Write implements io.Writer.
func (s *stream) Write(p []byte) (int, error) {
	s.buffer = append(s.buffer, p...)
	if len(s.buffer) < streamBuffer {
		return len(p), nil
	}
	return len(p), s.send()
}

// text writes texts.
func (s *stream) text(texts ...string) error {
	for _, text := range texts {
		s.buffer = append(s.buffer, text...)
	}
	if len(s.buffer) < streamBuffer {
		return nil
	}
	return s.send()
}

// flush sends what there is, so that the client sees it now.
func (s *stream) flush() error {
	if err := s.send(); err != nil {
		return err
	}
	if err := http.NewResponseController(s.w).Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return errClientGone
	}
	return nil
}

// end sends what is left.
func (s *stream) end() error { return s.send() }

func (s *stream) send() error {
	if out, ok := s.w.(*answer); ok && !s.begun {
		if err := out.needRest(s.r); err != nil {
			return err
		}
	}
	control := http.NewResponseController(s.w)
	_ = control.SetWriteDeadline(time.Now().Add(sendTimeout)) // see ServeHTTP
	if !s.begun {
		s.begun = true
		s.w.WriteHeader(s.status)
	}
	text := s.buffer
	s.buffer = s.buffer[:0]
	if s.r.Method == http.MethodHead {
		return nil
	}
	for piece := range slices.Chunk(text, streamPiece) {
		_ = control.SetWriteDeadline(time.Now().Add(sendTimeout))
		_, err := s.w.Write(piece)
		if errors.Is(err, http.ErrContentLength) { // a mistake of this node's
			return err
		}
		if err != nil {
			return errClientGone
		}
	}
	return nil
}
