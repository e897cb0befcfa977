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
	// sessionCookie is the name that CouchDB and PouchDB Server give to the cookie of a session.
	sessionCookie = "AuthSession"
	// longestSession bounds for how long a cookie is believed to be good.
	longestSession = time.Hour
	// withoutSession is how long a server that has no sessions is not asked for one again.
	withoutSession = 10 * time.Minute
	// idleSessions is how many logins are kept that no database uses.
	idleSessions = 1000
	// firstSweep is how many logins there are before any is looked at whether it is still of use.
	firstSweep = 64
)

// Sessions are logins at servers, which all databases share that have the same server, user and password, and go
// there through the same proxy or none: 500 jobs log in once. The zero value is ready; Sessions are not to be
// copied.
//
// A password is not kept, nor can one be found out from what is kept: what a login is found by is a keyed
// hash. Logins are kept while a database that uses them is open; of others as many as are still good, up
// to a thousand.
type Sessions struct {
	mu    sync.Mutex
	key   []byte // of the hash
	all   map[[sha256.Size]byte]*session
	sweep int // how many there may be until the useless ones are looked for
}

// acquire returns the session of what has this identity, to be released.
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

// drop forgets the logins that are of no use, and of those that nobody uses all but a number.
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

// session is one login. A nil session is that of a database that has none.
type session struct {
	mu    sync.Mutex
	users int // databases that have it

	cookie  string    // "" for none
	epoch   int       // raised with each new cookie
	since   time.Time // when the cookie came
	renew   time.Time // when it is to be renewed
	expires time.Time // when it is over
	// refused is the epoch of a cookie that was fresh when the server forbade something: no other cookie
	// is going to change that.
	refused int

	without  time.Time // until when the server counts as one without sessions
	basicToo bool      // to log in takes basic authentication

	login  *login // under way
	failed error  // why the latest login was refused
	again  time.Time
}

// login is an attempt to log in, which others wait for.
type login struct {
	done chan struct{}
	err  error // nil also if it was given up
}

// ticket is what a request shows. The zero ticket is that of basic authentication, or of none.
type ticket struct {
	cookie string
	epoch  int
}

// grant is what a login is answered with. The zero grant says that there are no sessions.
type grant struct {
	cookie string
	age    time.Duration // how long it is good for; 0 if the server does not say
}

// openSession finds the session of a database's user.
func (d *Database) openSession() {
	// What a job says of its authentication itself is not to be mixed with another.
	own := d.cfg.Header.Get("Authorization") != "" || d.cfg.Header.Get("Cookie") != ""
	if d.cfg.Sessions != nil && d.cfg.Username != "" && !own {
		// A proxy, or another host than the URL's, may answer in the server's name: see limitKey.
		d.session = d.cfg.Sessions.acquire(d.server, d.cfg.Header.Get("Host"), d.proxy, d.cfg.Username, d.cfg.Password)
	}
}

// release is called once by each database that has acquired the session.
func (s *session) release() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
}

// authorize adds to a request what shows who makes it. Headers of the job's own are left alone.
func (d *Database) authorize(hr *http.Request, t ticket) {
	switch {
	case t.cookie != "":
		hr.Header.Set("Cookie", sessionCookie+"="+t.cookie)
	case t.epoch == loggingIn, d.cfg.Header.Get("Authorization") != "":
	case d.cfg.Username != "" || d.cfg.Password != "":
		hr.Header.Set("Authorization", "Basic "+redact.BasicToken(d.cfg.Username, d.cfg.Password))
	}
}

// loggingIn is the epoch of a ticket for a login, which has the user and the password in its body.
const loggingIn = -1

// ticket returns what the next request shows, after a login if there has to be one first.
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
			granted, basicToo, err := d.logIn(ctx, s)
			s.settle(ctx, attempt, granted, basicToo, err, d.cfg)
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

// show returns the ticket that is good now, or the login to wait for, which is the caller's to make if it
// is the first to want it.
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

// copyOf is an error of its own for each who is told.
func copyOf(err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	own := *e
	return &own
}

// lacks reports whether there is no cookie that could be used in spite of a login that failed.
func (s *session) lacks() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cookie == "" || !time.Now().Before(s.expires)
}

// settle ends a login.
func (s *session) settle(ctx context.Context, attempt *login, g grant, basicToo bool, err error, cfg Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(attempt.done)
	now := time.Now()
	s.login, s.failed, s.basicToo = nil, nil, basicToo
	switch {
	case err == nil && g.cookie == "":
		s.without = now.Add(withoutSession)
	case err == nil:
		s.take(g, now, cfg)
	case ctx.Err() != nil:
		// Who waits for it makes an attempt of its own.
	default:
		attempt.err = copyOf(err)
		again := now.Add(max(cfg.SessionMinAge, time.Second))
		s.renew = again // if there still is a cookie
		if errors.Is(err, ErrUnauthorized) || errors.Is(err, ErrForbidden) {
			// To ask again at once would lock the account.
			s.failed, s.again = attempt.err, again
		}
	}
}

// take keeps a new cookie. s.mu is held.
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

// answered takes the new cookie that a server may send with any answer when the old one nears its end.
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

// rejected takes account of a request that was refused although it had a ticket, and reports whether
// another ticket may help. A cookie that is younger than SessionMinAge and that was to last longer, or that the
// request has had renewed, is not renewed: the server, or what stands before it, does not want cookies, or the
// user may not do what was asked for.
func (s *session) rejected(t ticket, status int, renewed bool, cfg Config) bool {
	if s == nil || t.cookie == "" || status != http.StatusUnauthorized && status != http.StatusForbidden {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	forbidden := status == http.StatusForbidden
	switch young := renewed || now.Sub(s.since) < cfg.SessionMinAge && now.Before(s.renew); {
	case t.epoch != s.epoch:
		return !renewed // there is a new one already
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

// doubted has the cookie of a request renewed that was never answered: PouchDB Server, started again, does
// so with what anonymous clients may not do.
func (s *session) doubted(t ticket) {
	if s == nil || t.cookie == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.epoch == s.epoch {
		s.expires = time.Now()
	}
}

// logIn asks for a cookie. A server that has no sessions is no error.
func (d *Database) logIn(ctx context.Context, s *session) (g grant, basicToo bool, err error) {
	s.mu.Lock()
	basicToo = s.basicToo
	s.mu.Unlock()
	target, err := url.Parse(d.server + "/_session")
	if err != nil {
		return grant{}, false, err // it is part of a URL that was parsed before
	}
	for {
		t := ticket{epoch: loggingIn}
		if basicToo {
			t = ticket{}
		}
		p, err := d.send(ctx, &request{
			method: http.MethodPost, content: jsonType, path: "_session", body: d.credentials(),
		}, target, t)
		if err == nil {
			defer p.finish()
			return granted(p.header), basicToo, nil
		}
		e, ok := errors.AsType[*Error](err)
		switch {
		case !ok:
			return grant{}, basicToo, err
		case e.Status == http.StatusUnauthorized && e.challenged && !basicToo:
			basicToo = true // whoever is not known already may not even log in
			continue
		case e.Status == http.StatusUnauthorized, e.Status == http.StatusForbidden:
			e.session = true
			return grant{}, basicToo, err
		case e.Status == http.StatusRequestTimeout, e.Status == http.StatusTooManyRequests:
			return grant{}, basicToo, err
		case e.Status >= 400 && e.Status < 500, e.Status == http.StatusNotImplemented:
			return grant{}, basicToo, nil // there is no _session, or none that is like CouchDB's
		}
		return grant{}, basicToo, err
	}
}

// loginFailed is the error of a request that needs a login. What the network did to the login it would have
// done to the request.
func (d *Database) loginFailed(r *request, target *url.URL, err error) error {
	login, ok := errors.AsType[*Error](err)
	if ok && login.Status != 0 {
		return err
	}
	if ok {
		err = login.Err
	}
	e := d.errorOf(r, shown(target))
	e.Err = fmt.Errorf("logging in: %w", err)
	return e
}

// credentials is the body of a login.
func (d *Database) credentials() requestBody {
	body := appendQuoted([]byte(`{"name":`), d.cfg.Username)
	body = appendQuoted(append(body, `,"password":`...), d.cfg.Password)
	return bytesBody(append(body, '}'))
}

// granted finds the cookie of a session in an answer. A cookie that is over, or empty, is none.
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
		case cookie.Expires.IsZero() || dated != nil: // by which clock?
		case !cookie.Expires.After(date):
			continue
		default:
			g.age = cookie.Expires.Sub(date)
		}
		return g
	}
	return grant{}
}
