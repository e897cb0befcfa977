package couch

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"time"

	"settee/pkg/redact"
	"settee/pkg/retry"
)

const (
	// withoutSession is the time until a server without sessions is asked for one again.
	withoutSession = 10 * time.Minute
	// idleSessions is the maximum number of logins kept that no database uses.
	idleSessions = 1000
	// firstSweep is the number of logins at which useless ones are first removed.
	firstSweep = 64
)

// Sessions holds logins at servers, and access tokens. Databases with the same user, the same password and the same [route.Key]
// share a login, so that 500 jobs log in once. Those with the same Config.Token and the same proxy share a token. The zero value
// is ready to use. Sessions must not be copied.
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
func (s *Sessions) acquire(by signer, identity ...string) *session {
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
		one = &session{by: by}
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

	by      signer
	secret  string    // the cookie or the token; "" if there is none
	epoch   int       // incremented with each new secret
	since   time.Time // when the secret came
	renew   time.Time // when to renew it
	expires time.Time // when it expires
	lapsed  bool      // the secret was refused; the next one comes instead of it
	instead bool      // the secret came instead of one that was refused
	// refused is the epoch of a fresh cookie with which the server refused a request. Another cookie would not help.
	refused int

	without time.Time // the server counts as one without sessions until then

	login   *login // in progress, or nil
	failed  error  // error of the latest login
	again   time.Time
	backoff retry.Backoff // of access tokens

	// How a login is made. Only the caller that makes one uses them, without mu.
	basicToo bool // it needs basic authentication
	inForm   bool // the token server wants the client's secret in the form
}

// signer is a kind of sessions: the cookie of a login, or an access token. It says how the secret of a session is got, how
// long it is good, and how a request carries it.
type signer interface {
	// obtain gets a secret. The zero grant means that the server has no sessions.
	obtain(ctx context.Context, d *Database, s *session) (grant, error)
	// sign puts the secret into the header of a request.
	sign(header http.Header, secret string)
	// granted returns the secret that an answer to any request brings.
	granted(header http.Header) grant
	// schedule returns after how long a secret is renewed, and after how long it has expired. life is 0 if it is unknown.
	schedule(life time.Duration, cfg Config) (renew, expires time.Duration)
	// stale reports whether a status may mean that a secret is no longer valid. trusted says that a new one is valid.
	stale(status int) (may, trusted bool)
	// pause returns how long a failed login is not repeated, and whether requests without a secret fail meanwhile.
	pause(s *session, err error, cfg Config) (wait time.Duration, fail bool)
	// failed returns the error of a request for which no secret could be got.
	failed(d *Database, r *request, target *url.URL, err error) error
}

// login is an attempt to log in that other requests wait for.
type login struct {
	done chan struct{}
	err  error // also nil if the attempt was abandoned
}

// ticket is the authentication of a request. The zero ticket stands for basic authentication or none.
type ticket struct {
	secret string
	epoch  int
}

// grant is the answer to a login. The zero grant means that the server has no sessions.
type grant struct {
	secret string
	age    time.Duration // lifetime; 0 if unknown
}

// openSession returns the session of a database's user.
func (d *Database) openSession() {
	var (
		by       signer = cookies{}
		identity        = []string{d.route, d.cfg.Username, d.cfg.Password}
	)
	switch {
	case d.cfg.Token != nil:
		by, identity = accessTokens{}, tokenIdentity(d.cfg.Token, d.proxy)
	case d.cfg.Sessions == nil, d.cfg.Username == "":
		return
	case d.cfg.Header.Get("Authorization") != "", d.cfg.Header.Get("Cookie") != "":
		return // a job's own authentication must not be mixed with another
	}
	d.session = cmp.Or(d.cfg.Sessions, &Sessions{}).acquire(by, identity...)
	d.inherited = d.session.latest()
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
// GET /_session, unless there is no session. The answer is yes if the server does not tell, and for access tokens: a server
// refuses those that have expired.
func (d *Database) LoginHolds(ctx context.Context, login int) (bool, error) {
	if d.session == nil || d.cfg.Token != nil || !d.session.inUse() {
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

// inUse reports whether requests are made with a cookie.
func (s *session) inUse() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.secret != ""
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

// authorize adds the credentials or the session's secret to a request. Only an access token replaces a header of the job.
func (d *Database) authorize(hr *http.Request, t ticket) {
	switch {
	case t.secret != "":
		d.session.by.sign(hr.Header, t.secret)
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
			granted, err := s.by.obtain(ctx, d, s)
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
	good := s.secret != "" && now.Before(s.expires)
	switch {
	case now.Before(s.without):
		return ticket{}, nil, false, nil
	case good && (s.login != nil || now.Before(s.renew)):
		return ticket{s.secret, s.epoch}, nil, false, nil
	case s.login != nil:
		return ticket{}, s.login, false, nil
	case s.failed != nil && now.Before(s.again):
		return ticket{}, nil, false, until(copyOf(s.failed), s.again.Sub(now))
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

// until returns err, an *Error that asks to wait before a repetition, if that may help.
func until(err error, wait time.Duration) error {
	if e, ok := errors.AsType[*Error](err); ok && e.Temporary() {
		e.RetryAfter = max(e.RetryAfter, wait)
	}
	return err
}

// lacks reports whether there is no usable secret after a login that failed.
func (s *session) lacks() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.secret == "" || !time.Now().Before(s.expires)
}

// settle ends a login.
func (s *session) settle(ctx context.Context, attempt *login, g grant, err error, cfg Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(attempt.done)
	now := time.Now()
	s.login, s.failed = nil, nil
	switch {
	case err == nil && g.secret == "":
		s.without = now.Add(withoutSession)
	case err == nil:
		s.take(g, now, cfg)
	case ctx.Err() != nil:
		// Each waiting request makes an attempt of its own.
	default:
		wait, fail := s.by.pause(s, err, cfg)
		s.renew = now.Add(wait) // for a secret that is still valid
		if attempt.err = copyOf(err); fail {
			attempt.err = copyOf(until(err, wait))
			s.failed, s.again = attempt.err, s.renew
		}
	}
}

// take stores a new secret. The caller holds s.mu.
func (s *session) take(g grant, now time.Time, cfg Config) {
	renew, expires := s.by.schedule(g.age, cfg)
	s.secret, s.since, s.renew, s.expires = g.secret, now, now.Add(renew), now.Add(expires)
	s.epoch++
	s.instead, s.lapsed = s.lapsed, false
	s.backoff.Reset()
}

// answered stores the new cookie that a server may send with any answer when the old one is about to expire.
func (s *session) answered(t ticket, p *response, cfg Config) {
	if s == nil || t.secret == "" || p.status >= 300 {
		return
	}
	g := s.by.granted(p.header)
	if g.secret == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch == t.epoch && g.secret != s.secret {
		s.take(g, time.Now(), cfg)
	}
}

// rejected handles a request that was refused although it had a ticket, and reports whether another ticket may help. It
// does not renew a secret that this request has renewed, or that is trusted, younger than SessionMinAge and not expired: then
// the server does not accept it, or the user lacks the permission. A cookie of a login is trusted, and a token that came instead
// of a refused one. A 401 renews the secret that the database has inherited, however young that is: its user may have changed
// since. As in CouchDB, a new job can so log in.
func (s *session) rejected(t ticket, status int, renewed bool, inherited int, cfg Config) bool {
	if s == nil || t.secret == "" {
		return false
	}
	may, trusted := s.by.stale(status)
	if !may {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	forbidden := status == http.StatusForbidden
	inheritedOne := status == http.StatusUnauthorized && t.epoch == inherited
	fresh := (trusted || s.instead) && now.Sub(s.since) < cfg.SessionMinAge && now.Before(s.renew)
	switch young := renewed || fresh && !inheritedOne; {
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
	s.expires, s.lapsed = now, true
	return true
}

// doubted expires the secret of a request that got no answer: after a restart, PouchDB Server does not answer requests
// that anonymous users may not make.
func (s *session) doubted(t ticket) {
	if s != nil && t.secret != "" {
		s.lapse(t.epoch)
	}
}
