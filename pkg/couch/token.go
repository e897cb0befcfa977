package couch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"settee/pkg/outbound"
	"settee/pkg/redact"
)

const (
	// renewBefore is how long before its end a token is renewed, unless half of its life is later.
	renewBefore = 5 * time.Minute
	// shortestToken is the life of a token whose server says that it is shorter, or over. The database decides whether it is.
	shortestToken = 10 * time.Second
	// longestToken is the life of a token if its server does not say it.
	longestToken = time.Hour
	// maxToken is the size in bytes of the longest token. Servers refuse longer headers.
	maxToken = 16 << 10
)

// accessTokens is the signer of sessions with access tokens (RFC 6750).
type accessTokens struct{}

// tokenIdentity returns what the token of a database depends on.
func tokenIdentity(c *clientcredentials.Config, proxy string) []string {
	return append([]string{"token", proxy, c.TokenURL, c.ClientID, c.ClientSecret, c.EndpointParams.Encode()}, c.Scopes...)
}

// checkToken checks the URL of a token server. It does not quote it.
func checkToken(c *clientcredentials.Config) error {
	if c == nil {
		return nil
	}
	u, err := url.Parse(c.TokenURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("token server: not an http or https URL without a user, a query and a fragment")
	}
	return nil
}

// sign puts a token into the Authorization header.
func (accessTokens) sign(header http.Header, secret string) {
	header.Set("Authorization", "Bearer "+secret)
}

// granted returns none: only the token server gives tokens.
func (accessTokens) granted(http.Header) grant { return grant{} }

func (accessTokens) schedule(life time.Duration, cfg Config) (renew, expires time.Duration) {
	if life == 0 {
		return min(cfg.SessionRefresh, longestToken), longestToken
	}
	life = max(life, shortestToken)
	return max(life-renewBefore, life/2), life
}

// stale is true for 401. The database need not know a new token: it comes from another server.
func (accessTokens) stale(status int) (may, trusted bool) {
	return status == http.StatusUnauthorized, false
}

// pause makes all requests fail until the token server is asked again. So all jobs together ask it once.
func (accessTokens) pause(s *session, err error, cfg Config) (wait time.Duration, fail bool) {
	s.backoff.First, s.backoff.Most = cfg.RetryBase, MaxPause
	wait = s.backoff.Next()
	if e, ok := errors.AsType[*Error](err); ok {
		wait = max(wait, min(e.RetryAfter, MaxPause))
	}
	return wait, true
}

// failed returns the error of the token server, unless the request has ended.
func (accessTokens) failed(d *Database, r *request, target *url.URL, err error) error {
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	e := d.errorOf(r, shown(target))
	e.Err = fmt.Errorf("waiting for an access token: %w", err)
	return e
}

// obtain requests a token. Most servers accept the client's secret in a header, which RFC 6749 demands, and some only in the
// form.
func (accessTokens) obtain(ctx context.Context, d *Database, s *session) (grant, error) {
	style := d.cfg.Token.AuthStyle
	either := style == oauth2.AuthStyleAutoDetect
	if either {
		if style = oauth2.AuthStyleInHeader; s.inForm {
			style = oauth2.AuthStyleInParams
		}
	}
	g, err := d.requestToken(ctx, style)
	if either && errors.Is(err, ErrTokenRefused) && !s.inForm {
		if other, otherErr := d.requestToken(ctx, oauth2.AuthStyleInParams); otherErr == nil {
			s.inForm = true
			return other, nil
		}
	}
	return g, err
}

// requestToken makes one request to the token server. Its error is an *Error about that request, or why ctx has ended.
func (d *Database) requestToken(ctx context.Context, style oauth2.AuthStyle) (grant, error) {
	asked := *d.cfg.Token
	asked.AuthStyle = style
	slow := fmt.Errorf("%w: no answer within %s", ErrStalled, d.cfg.AnswerTimeout)
	limited, cancel := context.WithTimeoutCause(outbound.WithConnectTimeout(ctx, d.cfg.ConnectionTimeout), d.cfg.AnswerTimeout, slow)
	defer cancel()
	var seen tokenExchange
	client := &http.Client{
		Transport:     seen.through(d.transport, d.cfg.UserAgent),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // it would get the secret
	}
	token, err := asked.Token(context.WithValue(limited, oauth2.HTTPClient, client))
	switch {
	case ctx.Err() != nil:
		return grant{}, context.Cause(ctx)
	case err != nil && limited.Err() != nil:
		return grant{}, d.tokenError(&seen, context.Cause(limited))
	case err != nil:
		return grant{}, d.tokenError(&seen, err)
	case !sendable(token.AccessToken):
		return grant{}, d.tokenError(&seen, errNoToken)
	}
	g := grant{secret: token.AccessToken}
	if !token.Expiry.IsZero() {
		g.age = max(time.Until(token.Expiry), shortestToken)
	}
	return g, nil
}

// sendable reports whether a header can have a token (RFC 6750, section 2.1).
func sendable(token string) bool {
	return len(token) <= maxToken && !strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' })
}

// tokenExchange is what was seen of a request to a token server. The package oauth2 drops it.
type tokenExchange struct {
	status     int
	retryAfter time.Duration
}

// through returns a transport that notes the answer.
func (x *tokenExchange) through(inner http.RoundTripper, userAgent string) http.RoundTripper {
	return tokenTransport(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		r.Header.Set("User-Agent", userAgent)
		r.Header.Set("Accept", jsonType)
		answer, err := inner.RoundTrip(r)
		if err == nil {
			x.status, x.retryAfter = answer.StatusCode, retryAfter(answer.Header.Get("Retry-After"), time.Now())
		}
		return answer, err
	})
}

type tokenTransport func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (t tokenTransport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

var (
	// ErrToken means that the token server gave no access token, and that the database was not asked. The error's Method and URL are those of
	// the request to the token server, its Status is 0, and its Code and Reason are what the token server said.
	ErrToken = errors.New("no access token")
	// ErrTokenRefused implies ErrToken and ErrUnauthorized: the token server refuses the credentials.
	ErrTokenRefused = errors.New("the token server refuses the credentials")

	errNoToken = errors.New("the answer has no usable token")
)

// tokenError is the cause of an error of a token server.
type tokenError struct {
	refused bool  // the server refuses the credentials
	status  int   // 0 if there was no answer
	err     error // nil if the status says it all
}

// Error returns what is wrong, with the status of the answer.
func (e *tokenError) Error() string {
	text := ErrToken.Error()
	if e.refused {
		text = ErrTokenRefused.Error()
	}
	if e.status != 0 {
		text += fmt.Sprintf(": %d %s", e.status, http.StatusText(e.status))
	}
	if e.err != nil {
		text += ": " + inWords(e.err)
	}
	return text
}

// Unwrap returns the cause.
func (e *tokenError) Unwrap() error { return e.err }

// Is reports whether target is a sentinel that applies.
func (e *tokenError) Is(target error) bool {
	return target == ErrToken || e.refused && target == ErrTokenRefused
}

// temporary reports whether the same request may succeed later.
func (e *tokenError) temporary() bool {
	switch {
	case e.refused:
		return false
	case e.status == http.StatusRequestTimeout, e.status == http.StatusTooManyRequests, e.status >= http.StatusInternalServerError:
		return true
	case e.status >= http.StatusMultipleChoices:
		return false
	}
	return e.err == nil || !outbound.Final(e.err)
}

// tokenError returns the error of a request to the token server that failed with err.
func (d *Database) tokenError(seen *tokenExchange, err error) *Error {
	e := &Error{Method: http.MethodPost, URL: d.cfg.Token.TokenURL, RetryAfter: seen.retryAfter}
	cause := &tokenError{status: seen.status}
	e.Err = cause
	refused, answered := errors.AsType[*oauth2.RetrieveError](err)
	switch _, failed := errors.AsType[*url.Error](err); {
	case answered:
		e.Code, e.Reason = saidByTokenServer(refused, d.hidden)
		cause.refused = refusesCredentials(seen.status)
		if isRedirect(seen.status) {
			cause.err = ErrRedirect
		}
	case failed || errors.Is(err, ErrStalled):
		cause.status, cause.err = 0, clean(d.hidden, err)
	default:
		cause.err = errNoToken // the package oauth2 quotes the answer
	}
	return e
}

// refusesCredentials reports whether a status without a token means that the credentials are wrong (RFC 6749, section 5.2). Some
// servers refuse with 200 and an "error".
func refusesCredentials(status int) bool {
	switch status {
	case http.StatusOK, http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden:
		return true
	}
	return false
}

// saidByTokenServer returns the code and the reason in an answer: those of RFC 6749, or of IBM Cloud.
func saidByTokenServer(refused *oauth2.RetrieveError, hidden redact.Set) (code, reason string) {
	code, reason = refused.ErrorCode, refused.ErrorDescription
	if code == "" {
		var ibm struct {
			Code   string `json:"errorCode"`
			Reason string `json:"errorMessage"`
		}
		if json.Unmarshal(refused.Body, &ibm) == nil && ibm.Code != "" {
			code, reason = ibm.Code, ibm.Reason
		}
	}
	return excerpt(said(hidden, code)), excerpt(said(hidden, reason))
}
