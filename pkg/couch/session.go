package couch

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"settee/pkg/redact"
)

const (
	// sessionCookie is the name of the session cookie of CouchDB and PouchDB Server.
	sessionCookie = "AuthSession"
	// longestSession bounds the lifetime of a cookie.
	longestSession = time.Hour
	// withoutSession is the time until a server without sessions is asked for one again.
	withoutSession = 10 * time.Minute
	// idleSessions is the maximum number of logins kept that no database uses.
	idleSessions = 1000
	// firstSweep is the number of logins at which useless ones are first removed.
	firstSweep = 64
)

// Sessions holds logins at servers. Databases with the same user, the same password and the same [route.Key] share one, so
// that 500 jobs log in once. The zero value is ready to use. Sessions must not be copied.
//
// Passwords are not kept: a login's key is a keyed hash. A login is kept while an open database uses it. Of the others
// up to a thousand that are still valid are kept.
type Sessions struct {
	mu    sync.Mutex
	key   []byte // key of the hash
	all   map[[sha256.Size]byte]*session
	sweep int // number of logins at which useless ones are removed
}

// acquire returns the session for an identity. The caller must release it.
func (s *Sessions) acquire(identity ...string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.key = []byte(rand.Text())
		s.all = map[[sha256.Size]byte]*session{}
		s.sweep = firstSweep
	}
	hash := hmac.New(sha256.New, s.key)
	_, _ = hash.Write(mustJSON(identity)) // hashes do not fail
	name := [sha256.Size]byte(hash.Sum(nil))
	one := s.all[name]
	if one == nil {
		if len(s.all) >= s.sweep {
			s.drop()
		}
		one = &session{}
		s.all[name] = one
	}
	one.mu.Lock()
	one.users++
	one.mu.Unlock()
	return one
}

// drop removes logins that no database uses: those due for renewal, and those beyond idleSessions.
func (s *Sessions) drop() {
	now, idle := time.Now(), 0
	for name, one := range s.all {
		one.mu.Lock()
		if one.users == 0 {
			if idle++; idle > idleSessions || !now.Before(one.renew) {
				delete(s.all, name)
			}
		}
		one.mu.Unlock()
	}
	s.sweep = max(firstSweep, 2*len(s.all))
}

func mustJSON(list []string) []byte {
	b, err := json.Marshal(list)
	if err != nil {
		panic(err) // strings always encode
	}
	return b
}

// session is one login. It is nil for a database without one.
type session struct {
	mu    sync.Mutex
	users int // number of databases using it

	cookie  string    // "" if there is none
	epoch   int       // incremented with each new cookie
	since   time.Time // when the cookie came
	renew   time.Time // when to renew it
	expires time.Time // when it expires
	// refused is the epoch of a fresh cookie with which the server refused a request. Another cookie would not help.
	refused int

	without time.Time // the server counts as one without sessions until then

	login    *login // in progress, or nil
	basicToo bool   // a login needs basic authentication; only the caller that makes the login uses it, without mu
	failed   error  // error of the latest login
	again    time.Time
}

// login is an attempt to log in that other requests wait for.
type login struct {
	done chan struct{}
	err  error // also nil if the attempt was abandoned
}

// ticket is the authentication of a request. The zero ticket stands for basic authentication or none.
type ticket struct {
	cookie string
	epoch  int
}

// grant is the answer to a login. The zero grant means that the server has no sessions.
type grant struct {
	cookie string
	age    time.Duration // lifetime; 0 if unknown
}

// openSession returns the session of a database's user.
func (d *Database) openSession() {
	// A job's own authentication must not be mixed with another.
	own := d.cfg.Header.Get("Authorization") != "" || d.cfg.Header.Get("Cookie") != ""
	if d.cfg.Sessions != nil && d.cfg.Username != "" && !own {
		d.session = d.cfg.Sessions.acquire(d.route, d.cfg.Username, d.cfg.Password)
		d.inherited = d.session.latest()
	}
}

// latest returns the epoch of the latest cookie, or 0 before the first one.
func (s *session) latest() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch
}

// Login returns a number for the login with which requests are made: it changes with each new session cookie. It is 0
// while there is none.
func (d *Database) Login() int {
	if d.session == nil {
		return 0
	}
	return d.session.latest()
}

// LoginHolds reports whether the login that [Database.Login] has returned is still the current one, and valid. A server
// that does not know a cookie any more need not refuse requests: CouchDB carries them out without a user, and a validation
// function may refuse what they write. If the server says that there is no user, the next request logs in again. It asks
// GET /_session, unless there is no session. The answer is yes if the server does not tell.
func (d *Database) LoginHolds(ctx context.Context, login int) (bool, error) {
	if d.session == nil || !d.session.inUse() {
		return true, nil
	}
	user := true
	err := d.fetch(ctx, &request{method: http.MethodGet, path: loginPath, server: true}, maxInfo, func(body []byte) error {
		user = namesUser(body)
		return nil
	})
	if e, ok := errors.AsType[*Error](err); err != nil && (!ok || ctx.Err() != nil || e.Temporary()) {
		return false, err
	}
	if !user {
		d.session.lapse(login)
	}
	return user && d.session.latest() == login, nil
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

// inUse reports whether requests are made with a cookie.
func (s *session) inUse() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cookie != ""
}

// lapse expires the cookie of a login that the server no longer knows.
func (s *session) lapse(login int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch == login {
		s.expires = time.Now()
	}
}

// release is called once by each database that acquired the session.
func (s *session) release() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
}

// authorize adds the credentials or the session's cookie to a request. It does not replace the job's own headers.
func (d *Database) authorize(hr *http.Request, t ticket) {
	switch {
	case t.cookie != "":
		hr.Header.Set("Cookie", sessionCookie+"="+t.cookie)
	case t.epoch == loggingIn, d.cfg.Header.Get("Authorization") != "":
	case d.cfg.Username != "" || d.cfg.Password != "":
		hr.Header.Set("Authorization", "Basic "+redact.BasicToken(d.cfg.Username, d.cfg.Password))
	}
}

// loggingIn is the epoch of a login's ticket. A login has the user and the password in its body.
const loggingIn = -1

// ticket returns the ticket for the next request, after a login if needed.
func (d *Database) ticket(ctx context.Context) (ticket, error) {
	s := d.session
	if s == nil {
		return ticket{}, nil
	}
	for {
		t, attempt, first, err := s.show()
		switch {
		case err != nil:
			return ticket{}, err
		case attempt == nil:
			return t, nil
		case first:
			granted, err := d.logIn(ctx, s)
			s.settle(ctx, attempt, granted, err, d.cfg)
			if err != nil && (ctx.Err() != nil || s.lacks()) {
				return ticket{}, err
			}
			continue
		}
		select {
		case <-attempt.done:
			if attempt.err != nil && s.lacks() {
				return ticket{}, copyOf(attempt.err)
			}
		case <-ctx.Done():
			return ticket{}, context.Cause(ctx)
		}
	}
}

// show returns the valid ticket, or the login to wait for. The first caller to need a login makes it.
func (s *session) show() (t ticket, attempt *login, first bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	good := s.cookie != "" && now.Before(s.expires)
	switch {
	case now.Before(s.without):
		return ticket{}, nil, false, nil
	case good && (s.login != nil || now.Before(s.renew)):
		return ticket{s.cookie, s.epoch}, nil, false, nil
	case s.login != nil:
		return ticket{}, s.login, false, nil
	case s.failed != nil && now.Before(s.again):
		return ticket{}, nil, false, copyOf(s.failed)
	}
	s.login = &login{done: make(chan struct{})}
	return ticket{}, s.login, true, nil
}

// copyOf returns a copy of an error for one of several requests that fail with it.
func copyOf(err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	own := *e
	return &own
}

// lacks reports whether there is no usable cookie after a login that failed.
func (s *session) lacks() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cookie == "" || !time.Now().Before(s.expires)
}

// settle ends a login.
func (s *session) settle(ctx context.Context, attempt *login, g grant, err error, cfg Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(attempt.done)
	now := time.Now()
	s.login, s.failed = nil, nil
	switch {
	case err == nil && g.cookie == "":
		s.without = now.Add(withoutSession)
	case err == nil:
		s.take(g, now, cfg)
	case ctx.Err() != nil:
		// Each waiting request makes an attempt of its own.
	default:
		attempt.err = copyOf(err)
		again := now.Add(max(cfg.SessionMinAge, time.Second))
		s.renew = again // for a cookie that is still valid
		if errors.Is(err, ErrUnauthorized) || errors.Is(err, ErrForbidden) {
			// Another login at once could lock the account.
			s.failed, s.again = attempt.err, again
		}
	}
}

// take stores a new cookie. The caller holds s.mu.
func (s *session) take(g grant, now time.Time, cfg Config) {
	s.cookie, s.since = g.cookie, now
	s.epoch++
	age := g.age
	if age == 0 {
		s.renew, s.expires = now.Add(cfg.SessionRefresh), now.Add(longestSession)
		return
	}
	age = min(age, longestSession)
	s.renew, s.expires = now.Add(age-age/10), now.Add(age)
}

// answered stores the new cookie that a server may send with any answer when the old one is about to expire.
func (s *session) answered(t ticket, p *response, cfg Config) {
	if s == nil || t.cookie == "" || p.status >= 300 {
		return
	}
	g := granted(p.header)
	if g.cookie == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch == t.epoch && g.cookie != s.cookie {
		s.take(g, time.Now(), cfg)
	}
}

// rejected handles a request that was refused although it had a ticket, and reports whether another ticket may help. It
// does not renew a cookie that this request has renewed, or that is younger than SessionMinAge and not expired: then
// the server does not accept cookies, or the user lacks the permission. A 401 renews the cookie that the database has
// inherited, however young that is: its user may have changed since. As in CouchDB, a new job can so log in.
func (s *session) rejected(t ticket, status int, renewed bool, inherited int, cfg Config) bool {
	if s == nil || t.cookie == "" || status != http.StatusUnauthorized && status != http.StatusForbidden {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	forbidden := status == http.StatusForbidden
	mayBeStale := status == http.StatusUnauthorized && t.epoch == inherited
	switch young := renewed || now.Sub(s.since) < cfg.SessionMinAge && now.Before(s.renew) && !mayBeStale; {
	case t.epoch != s.epoch:
		return !renewed // another request has renewed it
	case forbidden && s.refused == s.epoch:
		return false
	case young && forbidden:
		s.refused = s.epoch
		return false
	case young:
		if renew := s.since.Add(cfg.SessionMinAge); renew.Before(s.renew) {
			s.renew = renew
		}
		return false
	}
	s.expires = now
	return true
}

// doubted expires the cookie of a request that got no answer: after a restart, PouchDB Server does not answer requests
// that anonymous users may not make.
func (s *session) doubted(t ticket) {
	if s != nil && t.cookie != "" {
		s.lapse(t.epoch)
	}
}

// loginPath is the path of sessions, which is not below a database.
const loginPath = "_session"

// logIn requests a cookie. A server without sessions is not an error.
func (d *Database) logIn(ctx context.Context, s *session) (grant, error) {
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

// loginFailed returns the error of a request whose login failed. A network failure of the login counts as one of the
// request.
func (d *Database) loginFailed(r *request, target *url.URL, err error) error {
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
		g := grant{cookie: cookie.Value}
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
