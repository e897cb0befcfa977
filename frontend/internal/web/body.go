package web

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"settee/pkg/config"
)

const (
	// receiveTimeout is how long a client may take to send the whole body of a small request, and how long the
	// body of a large one may pause.
	receiveTimeout = time.Minute
	// deadlineStep is the least time between two moves of the deadline of a body that may pause.
	deadlineStep = receiveTimeout / 60
)

// Limit is the size of the largest body that a request may have.
type Limit struct {
	Bytes int64
	// Words follow "which is the limit" in the reason that a larger body is refused with.
	Words string
}

// RequestLimit returns the limit for all requests.
func RequestLimit(cfg *config.Config) Limit {
	return Limit{config.MaxHTTPRequestSize.Get(cfg), " (" + config.MaxHTTPRequestSize.String() + ")"}
}

// exceeded refuses a larger body, and ends the connection with the answer.
func (l Limit) exceeded(w http.ResponseWriter) error {
	CloseConnection(w)
	return NewFailure(http.StatusRequestEntityTooLarge, "too_large",
		fmt.Sprintf("the request body has more than %d bytes, which is the limit%s", l.Bytes, l.Words))
}

// body reads the body of a request while it arrives. Its errors are failures for the client, and after each of
// them the connection ends with the answer.
type body struct {
	w       http.ResponseWriter
	from    io.Reader
	limit   Limit
	control *http.ResponseController
	pauses  bool      // it may take any time in all, and receiveTimeout between two reads
	moved   time.Time // when the deadline was last moved
	read    int64     // bytes so far
}

func newBody(w http.ResponseWriter, r *http.Request, limit Limit, pauses bool) (*body, error) {
	if r.ContentLength > limit.Bytes {
		return nil, limit.exceeded(w)
	}
	return &body{
		w: w, from: http.MaxBytesReader(w, r.Body, limit.Bytes), limit: limit, control: http.NewResponseController(w),
		pauses: pauses,
	}, nil
}

// OpenBody returns the body of a request. The client may take as long as it likes to send it, if it does not
// pause for longer than a minute. The errors of the reader are failures.
func OpenBody(w http.ResponseWriter, r *http.Request, limit Limit) (io.Reader, error) {
	b, err := newBody(w, r, limit, true)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// ReadBody reads the body of a request into memory, without its Content-Encoding, which may be gzip. The limit holds
// for what the body becomes. The client has a minute to send it.
func ReadBody(w http.ResponseWriter, r *http.Request, cfg *config.Config, limit Limit) ([]byte, error) {
	if all := RequestLimit(cfg); all.Bytes < limit.Bytes {
		limit = all
	}
	return readPlain(w, r, limit, false)
}

// readPlain is ReadBody for a body that may pause as the body of OpenBody may, or may not.
func readPlain(w http.ResponseWriter, r *http.Request, limit Limit, pauses bool) ([]byte, error) {
	plain, err := openPlain(w, r, limit, pauses)
	if err != nil {
		return nil, err
	}
	text, err := readAll(r, io.LimitReader(plain, limit.Bytes+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(text)) > limit.Bytes:
		return nil, limit.exceeded(w)
	}
	return text, nil
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if now := time.Now(); b.pauses && now.Sub(b.moved) >= deadlineStep {
		b.moved = now
		_ = b.control.SetReadDeadline(now.Add(receiveTimeout)) // see Server.Serve
	}
	n, err := b.from.Read(p)
	b.read += int64(n)
	switch {
	case err == nil:
		return n, nil
	case err == io.EOF:
		// From now on the connection is read only to notice that the client hangs up.
		_ = b.control.SetReadDeadline(time.Time{})
		return n, io.EOF
	case errors.As(err, new(*http.MaxBytesError)):
		return n, b.limit.exceeded(b.w)
	}
	CloseConnection(b.w)
	if b.pauses && errors.Is(err, os.ErrDeadlineExceeded) {
		return n, NewFailure(http.StatusRequestTimeout, "timeout",
			fmt.Sprintf("no more of the request body was received for %s", receiveTimeout))
	}
	return n, bodyFailed(err)
}

// CloseConnection ends the connection with the answer. The rest of the request's body is not read.
func CloseConnection(w http.ResponseWriter) { w.Header().Set("Connection", "close") }

// bodyFailed returns the failure for an error of reading a body that has to arrive within receiveTimeout.
func bodyFailed(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return NewFailure(http.StatusRequestTimeout, "timeout",
			fmt.Sprintf("the request body was not received within %s", receiveTimeout))
	}
	return BadRequest("the request body ends too early or is malformed")
}

// A compressed body may become maxRatio times as large as what has arrived of it, and inflatedFreely bytes in any
// case. gzip can make a thousand bytes of one, so with the configured limit alone one megabyte could take a
// gigabyte of disk. JSON that is worth storing becomes 3 to 15 times smaller. JSON that is more uniform than that
// is seldom large, and can be sent uncompressed or in several requests.
const (
	inflatedFreely = 64 << 20 // bytes
	maxRatio       = 32
)

// inflated is a compressed body without its compression.
type inflated struct {
	from  *body
	plain io.Reader
	bytes int64 // so far
}

// Read implements io.Reader.
func (f *inflated) Read(p []byte) (int, error) {
	n, err := f.plain.Read(p)
	f.bytes += int64(n)
	if f.bytes > max(inflatedFreely, maxRatio*f.from.read) {
		CloseConnection(f.from.w)
		return n, NewFailure(http.StatusRequestEntityTooLarge, "too_large", fmt.Sprintf(
			"the request body becomes more than %d times as large when it is decompressed, which only one of up to %d bytes may: send it as it is, or in several requests",
			maxRatio, inflatedFreely))
	}
	if err == nil || err == io.EOF {
		return n, err
	}
	return n, badGzip(err)
}

// badGzip returns the failure for an error of reading a compressed body: the failure of the body itself, or else that
// the body is not compressed, is corrupt, or is truncated.
func badGzip(err error) error {
	if errors.As(err, new(*Failure)) {
		return err
	}
	return BadRequest("the request body is not compressed as its Content-Encoding says")
}

// OpenPlain returns the body of a request without its Content-Encoding, which may be gzip. The body may pause, as
// the body of OpenBody may.
func OpenPlain(w http.ResponseWriter, r *http.Request, limit Limit) (io.Reader, error) {
	return openPlain(w, r, limit, true)
}

func openPlain(w http.ResponseWriter, r *http.Request, limit Limit, pauses bool) (io.Reader, error) {
	b, err := newBody(w, r, limit, pauses)
	if err != nil {
		return nil, err
	}
	switch strings.ToLower(r.Header.Get("Content-Encoding")) {
	case "", "identity":
		return b, nil
	case "gzip":
		plain, err := gzip.NewReader(b)
		if err != nil {
			return nil, badGzip(err)
		}
		return &inflated{from: b, plain: plain}, nil
	}
	return nil, BadContentType("Content-Encoding must be gzip or identity")
}
