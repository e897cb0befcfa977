package frontend

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

const (
	// restWithin is how long an answer waits for the rest of a request's body that it does not
	// need, and how long afterwards the rest is read so that the client sees the answer.
	restWithin = time.Second
	// restMost is the most bytes that are read of such a rest.
	restMost = 256 << 10
)

// passRest is called before an answer begins whose request has a body. A body that was not
// read, because a request is refused or needs none, ends before the answer: net/http would read it
// then, for as long as the client likes and while the request counts as being answered. Where
// it does not end soon, the connection ends with the answer. While it is waited for, the
// connection may make room for others.
func (a *answer) passRest(r *http.Request) { _ = a.readRest(r, restWithin) }

// needRest is passRest for an answer that takes long. A body that does not come is an error then:
// for net/http the client has gone, and the context of its request ends.
func (a *answer) needRest(r *http.Request) error {
	err := a.readRest(r, receiveTimeout)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &failure{http.StatusRequestTimeout, "timeout",
			fmt.Sprintf("the request body was not received within %s", receiveTimeout)}
	}
	if err != nil {
		return badRequest("the request body ends too early or is malformed")
	}
	return nil
}

// readRest reads what is left of a body, if that is little, or has the connection end with the
// answer. The error is that of reading it.
func (a *answer) readRest(r *http.Request, within time.Duration) error {
	body, known := r.Body.(*receivedBody)
	if !known || body.whole || r.ProtoMajor != 1 { // a stream of HTTP/2 is closed without its rest
		return nil
	}
	// What is announced and not begun is not asked for.
	if a.Header().Get("Connection") == "close" || r.Header.Get("Expect") != "" || r.ContentLength > restMost {
		a.Header().Set("Connection", "close")
		return nil
	}
	readWithin(a, within)
	_, err := io.CopyN(io.Discard, body, restMost+1)
	if body.whole {
		_ = http.NewResponseController(a).SetReadDeadline(time.Time{})
		return nil
	}
	a.Header().Set("Connection", "close")
	return err
}

// leaveRest is called when a request has been answered. net/http reads some of what is left of a
// body before it closes the connection: a client that is still sending may lose the answer
// otherwise.
func (a *answer) leaveRest(r *http.Request) {
	if body, known := r.Body.(*receivedBody); known && !body.whole {
		readWithin(a, restWithin)
	}
}

// readWithin ends reading the connection after a time.
func readWithin(w http.ResponseWriter, d time.Duration) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(d))
}
