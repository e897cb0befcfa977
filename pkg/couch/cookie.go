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
)

// cookies is the signer of CouchDB's sessions.
type cookies struct{}

const (
	// sessionCookie is the name of the session cookie of CouchDB and PouchDB Server.
	sessionCookie = "AuthSession"
	// longestSession bounds the lifetime of a cookie.
	longestSession = time.Hour
)

func (cookies) sign(header http.Header, secret string) {
	header.Set("Cookie", sessionCookie+"="+secret)
}

func (cookies) granted(header http.Header) grant { return granted(header) }

// schedule renews a cookie after nine tenths of its life, or after SessionRefresh.
func (cookies) schedule(life time.Duration, cfg Config) (renew, expires time.Duration) {
	if life == 0 {
		return cfg.SessionRefresh, longestSession
	}
	life = min(life, longestSession)
	return life - life/10, life
}

func (cookies) stale(status int) (may, trusted bool) {
	return status == http.StatusUnauthorized || status == http.StatusForbidden, true
}

// pause makes all requests fail for a while after a refused login. Another login at once could lock the account.
func (cookies) pause(_ *session, err error, cfg Config) (wait time.Duration, fail bool) {
	return max(cfg.SessionMinAge, time.Second), errors.Is(err, ErrUnauthorized) || errors.Is(err, ErrForbidden)
}

// loginPath is the path of sessions, which is not below a database.
const loginPath = "_session"

// obtain requests a cookie. A server without sessions is not an error.
func (cookies) obtain(ctx context.Context, d *Database, s *session) (grant, error) {
	target, err := url.Parse(d.server + "/" + loginPath)
	if err != nil {
		return grant{}, err // cannot fail: the URL was parsed before
	}
	for {
		t := ticket{epoch: loggingIn}
		if s.basicToo {
			t = ticket{}
		}
		p, err := d.send(ctx, &request{
			method: http.MethodPost, content: jsonType, path: loginPath, body: d.credentials(),
		}, target, t)
		if err == nil {
			defer p.finish()
			return granted(p.header), nil
		}
		e, ok := errors.AsType[*Error](err)
		switch {
		case !ok:
			return grant{}, err
		case e.Status == http.StatusUnauthorized && e.challenged && !s.basicToo:
			s.basicToo = true // the login itself needs credentials
			continue
		case e.Status == http.StatusUnauthorized, e.Status == http.StatusForbidden:
			e.session = true
			return grant{}, err
		case e.Status == http.StatusRequestTimeout, e.Status == http.StatusTooManyRequests:
			return grant{}, err
		case e.Status >= 400 && e.Status < 500, e.Status == http.StatusNotImplemented:
			return grant{}, nil // there is no _session like CouchDB's
		}
		return grant{}, err
	}
}

// failed returns the error of a request whose login failed. A network failure of the login counts as one of the
// request.
func (cookies) failed(d *Database, r *request, target *url.URL, err error) error {
	login, ok := errors.AsType[*Error](err)
	if ok && login.Status != 0 {
		return err
	}
	if ok {
		err = login.Err
	}
	e := d.errorOf(r, shown(target))
	e.Err = fmt.Errorf("logging in at %s/%s: %w", d.server, loginPath, err)
	return e
}

func (d *Database) credentials() requestBody {
	body := appendQuoted([]byte(`{"name":`), d.cfg.Username)
	body = appendQuoted(append(body, `,"password":`...), d.cfg.Password)
	return bytesBody(append(body, '}'))
}

// granted returns the session cookie in an answer. An expired or empty cookie counts as none.
func granted(header http.Header) grant {
	for _, line := range header.Values("Set-Cookie") {
		cookie, err := http.ParseSetCookie(line)
		if err != nil || !strings.EqualFold(cookie.Name, sessionCookie) || cookie.Value == "" {
			continue
		}
		g := grant{secret: cookie.Value}
		date, dated := http.ParseTime(header.Get("Date"))
		switch {
		case cookie.MaxAge < 0:
			continue
		case cookie.MaxAge > 0:
			g.age = time.Duration(min(cookie.MaxAge, int(longestSession/time.Second))) * time.Second
		case cookie.Expires.IsZero() || dated != nil: // the clocks may differ
		case !cookie.Expires.After(date):
			continue
		default:
			g.age = cookie.Expires.Sub(date)
		}
		return g
	}
	return grant{}
}

// namesUser reports whether an answer to GET /_session names a user. It is also true for answers that are not CouchDB's.
func namesUser(body []byte) bool {
	var said struct {
		UserCtx *struct {
			Name *string `json:"name"`
		} `json:"userCtx"`
	}
	return json.Unmarshal(body, &said) != nil || said.UserCtx == nil || said.UserCtx.Name != nil
}
