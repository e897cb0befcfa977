package worker

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// moved is when bytes of documents last came from an endpoint of a run or went to one. A large document may take longer than
// a run may go without a batch that ends. Changes feeds do not count: an idle one sends heartbeats.
type moved struct{ seconds atomic.Int64 }

func (m *moved) note(n int) {
	if now := time.Now().Unix(); n > 0 && m.seconds.Load() != now {
		m.seconds.Store(now)
	}
}

// last returns the moment, zero if there is none.
func (m *moved) last() time.Time {
	if at := m.seconds.Load(); at > 0 {
		return time.Unix(at, 0)
	}
	return time.Time{}
}

// through returns a transport that notes what goes through another one.
func (m *moved) through(inner http.RoundTripper) http.RoundTripper { return movingTransport{inner, m} }

type movingTransport struct {
	inner http.RoundTripper
	moved *moved
}

// RoundTrip implements http.RoundTripper. The body of an error does not count, so that a request that is repeated in vain is
// no progress.
func (t movingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/_changes") {
		return t.inner.RoundTrip(r)
	}
	if r.Body != nil && r.Body != http.NoBody {
		r = r.Clone(r.Context())
		r.Body = movingBody{r.Body, t.moved}
	}
	response, err := t.inner.RoundTrip(r)
	if err == nil && response.StatusCode < http.StatusBadRequest {
		response.Body = movingBody{response.Body, t.moved}
	}
	return response, err
}

type movingBody struct {
	io.ReadCloser
	moved *moved
}

// Read implements io.Reader.
func (b movingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.moved.note(n)
	return n, err
}
