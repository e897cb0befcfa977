package couch

import (
	"errors"
	"net"
	"net/http"
	"os"
	"strconv"
)

// ConnectStep is how far a request came on its way to a connection.
type ConnectStep string

// The steps, as errors name them.
const (
	StepResolve ConnectStep = "resolving"          // the name has no address
	StepConnect ConnectStep = "connecting to"      // nobody answers there, or it is denied
	StepTLS     ConnectStep = "TLS handshake with" // there is no agreement, or no trust
	StepProxy   ConnectStep = "asking for"         // the proxy does not let it through
)

// ConnectError says why there is no connection: who failed, and doing what.
type ConnectError struct {
	Step ConnectStep
	// Proxy is the URL, without credentials, of the proxy that was used; empty for none.
	Proxy string
	// Host is the host and port of the endpoint that was to be reached, or empty if it is the proxy that
	// could not be reached.
	Host string
	// At is where Host is to be found instead, if ConnectTo says so.
	At string
	// Status is the proxy's answer, if it refused.
	Status int
	// Err is what went wrong; nil if Status says it.
	Err error
}

// Error is "connecting to couch.example.org:6984: 192.0.2.1:6984: connection refused", or "proxy
// http://proxy.example.org:3128: asking for couch.example.org:6984: 407 Proxy Authentication Required".
func (e *ConnectError) Error() string {
	text := string(e.Step) + " "
	if e.Host == "" {
		text += "it"
	} else {
		text += e.Host
	}
	if e.At != "" {
		text += " at " + e.At
	}
	if e.Proxy != "" {
		text = "proxy " + e.Proxy + ": " + text
	}
	if e.Status != 0 {
		return text + ": " + strconv.Itoa(e.Status) + " " + http.StatusText(e.Status)
	}
	return text + ": " + connectReason(e.Err)
}

// Unwrap returns Err.
func (e *ConnectError) Unwrap() error { return e.Err }

// final reports whether another try cannot end otherwise.
func (e *ConnectError) final() bool {
	return errors.Is(e.Err, ErrDenied) || e.Status == http.StatusProxyAuthRequired
}

// connectReason is an error without what the ConnectError around it has said.
func connectReason(err error) string {
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		return e.Err
	}
	e, ok := err.(*net.OpError) //nolint:errorlint // only the outermost one repeats what was said
	if !ok || e.Op != "dial" {
		return err.Error()
	}
	inner := e.Err
	if call, ok := errors.AsType[*os.SyscallError](inner); ok {
		inner = call.Err
	}
	if e.Addr == nil || errors.Is(inner, ErrDenied) {
		return inner.Error()
	}
	return e.Addr.String() + ": " + inner.Error()
}
