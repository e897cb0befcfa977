package couch

import (
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"syscall"

	"settee/pkg/outbound"
)

// Class is the kind of failure of a request. It follows from the types of errors, never from their texts.
type Class string

// The classes. The first group has failures without an answer, the second one answers.
const (
	ClassDNSNotFound      Class = "dns_not_found"          // there is no such host
	ClassDNSFailed        Class = "dns_failed"             // no name server has answered
	ClassConnectRefused   Class = "connect_refused"        // no program listens at the port
	ClassUnreachable      Class = "unreachable"            // no way to the host, or any other failure to connect
	ClassConnectTimeout   Class = "connect_timeout"        // the host does not answer
	ClassNetworkDenied    Class = "network_denied"         // this node's settings forbid the address
	ClassTLSAuthority     Class = "tls_unknown_authority"  // this node does not trust the authority of the server's certificate
	ClassTLSExpired       Class = "tls_expired"            // the server's certificate is not valid now
	ClassTLSName          Class = "tls_wrong_name"         // the server's certificate is for another name
	ClassTLSClient        Class = "tls_client_certificate" // the server wants a certificate of this node, or does not accept the one that it has
	ClassTLSNoAnswer      Class = "tls_no_answer"          // the server took the connection, and did not answer the handshake of TLS
	ClassTLSFailed        Class = "tls_failed"             // no common version, or any other failure of TLS
	ClassProxyRefused     Class = "proxy_refused"          // 407 of the proxy
	ClassProxyFailed      Class = "proxy_failed"           // the proxy could not be reached, or could not reach the server
	ClassNoAnswer         Class = "no_answer"              // the server took the connection, and did not answer
	ClassStalled          Class = "stalled"                // the answer did not go on, or too slowly
	ClassClosedEarly      Class = "closed_early"           // the connection was closed before the end of the answer
	ClassUnknown          Class = "unknown"                // any other failure, such as the end of the caller's context
	ClassRedirected       Class = "redirected"             // see ErrRedirect
	ClassMalformed        Class = "malformed_answer"       // see ErrMalformed, or the answer is not HTTP
	ClassNotDatabase      Class = "not_database"           // see ErrNotDatabase
	ClassTooLarge         Class = "too_large"              // see ErrLimit
	ClassDigest           Class = "digest_mismatch"        // see ErrDigest
	ClassUnauthorized     Class = "unauthorized"           // 401
	ClassLoginRefused     Class = "login_refused"          // 401 or 403 of a login
	ClassTokenRefused     Class = "token_refused"          // see ErrTokenRefused
	ClassTokenFailed      Class = "token_failed"           // see ErrToken
	ClassForbidden        Class = "forbidden"              // 403
	ClassDatabaseMissing  Class = "database_missing"       // see ErrNoDatabase
	ClassRateLimited      Class = "rate_limited"           // see ErrTooManyRequests
	ClassServerError      Class = "server_error"           // 5xx, or the server gave up in the middle of its answer
	ClassUnexpectedStatus Class = "unexpected_status"      // any other status
)

// Class returns what kind of failure e is.
func (e *Error) Class() Class {
	switch {
	case errors.Is(e.Err, ErrTokenRefused):
		return ClassTokenRefused
	case errors.Is(e.Err, ErrToken):
		return ClassTokenFailed
	case errors.Is(e, ErrTooManyRequests):
		return ClassRateLimited
	case e.Is(ErrNoDatabase):
		return ClassDatabaseMissing
	case (e.Is(ErrUnauthorized) || e.Is(ErrForbidden)) && strings.HasSuffix(e.URL, "/"+loginPath):
		return ClassLoginRefused
	case e.Is(ErrUnauthorized):
		return ClassUnauthorized
	case e.Is(ErrForbidden):
		return ClassForbidden
	case e.Status >= http.StatusInternalServerError:
		return ClassServerError
	case e.Status >= http.StatusBadRequest:
		return ClassUnexpectedStatus
	}
	class := classOf(e.Err)
	if e.proxy != "" && (class == ClassDNSFailed || class == ClassConnectTimeout) {
		return ClassProxyFailed // only the proxy is resolved and connected to
	}
	if class == ClassUnknown && e.Status >= http.StatusMultipleChoices {
		return ClassUnexpectedStatus
	}
	return class
}

// Proxy returns the URL of the proxy that the request failed at, without credentials. It is empty if no proxy was used, or the
// proxy is not at fault.
func (e *Error) Proxy() string {
	if class := e.Class(); class != ClassProxyRefused && class != ClassProxyFailed {
		return ""
	}
	if failed, ok := errors.AsType[*outbound.ConnectError](e.Err); ok {
		return failed.Proxy
	}
	return e.proxy
}

// sentinelClasses are the classes of errors that say what they are, the most specific ones first.
var sentinelClasses = []struct {
	err   error
	class Class
}{
	{ErrRedirect, ClassRedirected},
	{ErrLimit, ClassTooLarge},
	{ErrDigest, ClassDigest},
	{ErrNotDatabase, ClassNotDatabase},
	{ErrMalformed, ClassMalformed},
	{errNotHTTP, ClassMalformed},
	{errGaveUp, ClassServerError},
	{outbound.ErrDenied, ClassNetworkDenied},
	{outbound.ErrCertificates, ClassTLSFailed},
}

// classOf returns the class of a failure on the way.
func classOf(err error) Class {
	if err == nil {
		return ClassUnknown
	}
	for _, known := range sentinelClasses {
		if errors.Is(err, known.err) {
			return known.class
		}
	}
	if failed, ok := errors.AsType[*outbound.ConnectError](err); ok {
		return classOfConnection(failed)
	}
	if refusesClient(err) {
		return ClassTLSClient // the alert comes after the handshake of TLS 1.3
	}
	if stalled, ok := errors.AsType[*stallError](err); ok {
		return stallClasses[stalled.step]
	}
	if errors.Is(err, ErrStalled) {
		return ClassStalled
	}
	for _, closed := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, closed) {
			return ClassClosedEarly
		}
	}
	if strings.Contains(err.Error(), closedIdle) {
		return ClassClosedEarly
	}
	return ClassUnknown
}

// closedIdle is the text of an error of net/http, which has no name there: the server closed the connection just before the request
// was sent.
const closedIdle = "server closed idle connection"

// stallClasses are the classes of stalls.
var stallClasses = map[step]Class{
	stepResolve: ClassDNSFailed, stepConnect: ClassConnectTimeout, stepTLS: ClassTLSNoAnswer, stepSend: ClassNoAnswer,
	stepAnswer: ClassNoAnswer, stepBody: ClassStalled,
}

// classOfConnection returns the class of a connection that could not be made.
func classOfConnection(e *outbound.ConnectError) Class {
	var unresolved *net.DNSError
	switch {
	case e.Proxy != "" && e.Status == http.StatusProxyAuthRequired:
		return ClassProxyRefused
	case e.Step == outbound.StepTLS && (e.Proxy == "" || e.Host != ""):
		return classOfTLS(e.Err)
	case e.Proxy != "":
		return ClassProxyFailed
	case errors.As(e.Err, &unresolved) && unresolved.IsNotFound:
		return ClassDNSNotFound
	case unresolved != nil:
		return ClassDNSFailed
	case errors.Is(e.Err, syscall.ECONNREFUSED):
		return ClassConnectRefused
	case isTimeout(e.Err):
		return ClassConnectTimeout
	}
	return ClassUnreachable
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// classOfTLS returns the class of an error of TLS.
func classOfTLS(err error) Class {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return ClassTLSAuthority
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return ClassTLSName
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return ClassTLSExpired
	}
	if refusesClient(err) {
		return ClassTLSClient
	}
	if isTimeout(err) {
		return ClassTLSNoAnswer
	}
	return ClassTLSFailed
}

// clientAlerts are the alerts with which a server refuses the certificate of a client, or the lack of one (RFC 8446, section
// 6.2).
var clientAlerts = map[uint64]bool{
	42:  true, // bad_certificate; before TLS 1.3 also for a missing one
	43:  true, // unsupported_certificate
	44:  true, // certificate_revoked
	45:  true, // certificate_expired
	46:  true, // certificate_unknown
	48:  true, // unknown_ca
	49:  true, // access_denied
	116: true, // certificate_required
}

// refusesClient reports whether err is the alert of a server that refuses the certificate of this node. Before TLS 1.3 there
// is no alert for a missing one.
func refusesClient(err error) bool {
	remote, ok := errors.AsType[*net.OpError](err)
	if !ok || remote.Op != "remote error" {
		return false
	}
	// crypto/tls does not export the type, a number.
	alert := reflect.ValueOf(remote.Err)
	return alert.Kind() == reflect.Uint8 && clientAlerts[alert.Uint()]
}
