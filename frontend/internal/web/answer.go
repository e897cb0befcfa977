package web

import (
	"io"
	"net/http"
	"time"
)

// answer is the writer of an answer. It records what was answered, for the log.
type answer struct {
	http.ResponseWriter
	request *connectedRequest // nil before the request is counted
	status  int               // 0: nothing was sent, for instance because the client hung up
	bytes   int64
	user    string // the name of the user, if it is known
	begins  func() // called once, before the answer begins
}

// SetUser records the name of the user of a request, for the log.
func SetUser(w http.ResponseWriter, name string) {
	if out, ok := w.(*answer); ok {
		out.user = name
	}
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *answer) begin(status int) {
	if a.status != 0 {
		return
	}
	a.status = status
	if a.begins != nil {
		a.begins()
	}
}

func (a *answer) WriteHeader(status int) {
	a.begin(status)
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(text []byte) (int, error) {
	a.begin(http.StatusOK)
	defer a.request.stall()()
	n, err := a.ResponseWriter.Write(text)
	a.bytes += int64(n)
	return n, err
}

// FlushError is for http.ResponseController.
func (a *answer) FlushError() error {
	a.begin(http.StatusOK)
	defer a.request.stall()()
	return http.NewResponseController(a.ResponseWriter).Flush()
}

const (
	// restWithin is how long an answer waits for the rest of a request's body that it does not need, and how long the
	// rest is read after the answer, so that the client sees the answer.
	restWithin = time.Second
	// restMost is the most bytes that are read of such a rest.
	restMost = 256 << 10
)

// passRest is called before the answer to a request with a body begins. A body that was not read, because the request
// is refused or needs none, has to end before the answer. Otherwise net/http would read it then, for as long as the
// client likes, while the request counts as being answered. If the body does not end soon, the connection ends with
// the answer. While the body is waited for, the connection may make room for others.
func (a *answer) passRest(r *http.Request) { _ = a.readRest(r, restWithin) }

// needRest is passRest for an answer that takes long. There a body that does not arrive is an error: net/http takes
// the client for gone, and ends the context of the request.
func (a *answer) needRest(r *http.Request) error {
	if err := a.readRest(r, receiveTimeout); err != nil {
		return bodyFailed(err)
	}
	return nil
}

// readRest reads the rest of a body if it is short. Otherwise the connection ends with the answer. The error is that
// of reading the body.
func (a *answer) readRest(r *http.Request, within time.Duration) error {
	body, known := r.Body.(*receivedBody)
	if !known || body.whole || r.ProtoMajor != 1 { // a stream of HTTP/2 is closed without its rest
		return nil
	}
	// A client that expects 100-continue has not begun to send.
	if a.Header().Get("Connection") == "close" || r.Header.Get("Expect") != "" || r.ContentLength > restMost {
		CloseConnection(a)
		return nil
	}
	readWithin(a, within)
	_, err := io.CopyN(io.Discard, body, restMost+1)
	if body.whole {
		_ = http.NewResponseController(a).SetReadDeadline(time.Time{})
		return nil
	}
	CloseConnection(a)
	return err
}

// leaveRest is called when a request has been answered. net/http reads some of the rest of a body before it closes the
// connection. Otherwise a client that is still sending could lose the answer.
func (a *answer) leaveRest(r *http.Request) {
	if body, known := r.Body.(*receivedBody); known && !body.whole {
		readWithin(a, restWithin)
	}
}

// readWithin ends reading from the connection after a time.
func readWithin(w http.ResponseWriter, d time.Duration) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(d))
}
