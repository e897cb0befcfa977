package outbound

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"strconv"
)

// ConnectStep is the step on the way to a connection that failed.
type ConnectStep string

// The steps, as errors name them.
const (
	StepResolve ConnectStep = "resolving"          // the name has no address
	StepConnect ConnectStep = "connecting to"      // the address does not answer, or is denied
	StepTLS     ConnectStep = "TLS handshake with" // no common version, or no trust
	StepProxy   ConnectStep = "asking for"         // the proxy refuses the endpoint
)

// ConnectError is a connection that could not be made: it says which side failed, and in which step.
type ConnectError struct {
	Step ConnectStep
	// Proxy is the URL of the proxy, without credentials; empty for none.
	Proxy string
	// Host is the host and port of the endpoint; empty if the proxy could not be reached.
	Host string
	// At is the address that PoolConfig.ConnectTo has for Host; empty for none.
	At string
	// Status is the status of the proxy's answer if it refused, and otherwise 0.
	Status int
	// Err is the cause; nil if Status says it.
	Err error
}

// Error is "connecting to couch.example.org:6984: 192.0.2.1:6984: connection refused", without the address if that is the host,
// or "proxy http://proxy.example.org:3128: asking for couch.example.org:6984: 407 Proxy Authentication Required".
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
	return text + ": " + e.reason()
}

// Unwrap returns Err.
func (e *ConnectError) Unwrap() error { return e.Err }

// Final reports whether a request that failed with err would fail again: its address is denied, a certificate is not
// trusted or cannot be read, or the proxy does not accept the credentials.
func Final(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	e, ok := errors.AsType[*ConnectError](err)
	return ok && e.Status == http.StatusProxyAuthRequired || errors.Is(err, ErrDenied) || errors.Is(err, ErrCertificates)
}

// reason returns the text of Err without what the error says already.
func (e *ConnectError) reason() string {
	if named, ok := errors.AsType[*net.DNSError](e.Err); ok {
		return named.Err
	}
	dialed, ok := e.Err.(*net.OpError) //nolint:errorlint // only the outermost error repeats it
	if !ok || dialed.Op != "dial" {
		return e.Err.Error()
	}
	inner := dialed.Err
	if call, ok := errors.AsType[*os.SyscallError](inner); ok {
		inner = call.Err
	}
	if dialed.Addr == nil || errors.Is(inner, ErrDenied) {
		return inner.Error()
	}
	if at := dialed.Addr.String(); at != e.Host && at != e.At {
		return at + ": " + inner.Error()
	}
	return inner.Error()
}
