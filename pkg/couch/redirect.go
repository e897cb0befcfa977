package couch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"settee/pkg/redact"
)

// maxRedirects is the maximum number of redirects of a request.
const maxRedirects = 5

// follow makes one try of a request, and follows redirects within the database's origin.
func (d *Database) follow(ctx context.Context, r *request) (*response, error) {
	where := d.where(r)
	if query := r.query.Encode(); query != "" {
		where += "?" + query
	}
	target, err := url.Parse(where)
	if err != nil {
		return nil, fmt.Errorf("%s: not a URL", d.where(r))
	}
	moves := r.tellsBase()
	for n := range maxRedirects {
		p, err := d.exchange(ctx, r, target)
		if moves && n > 0 {
			d.moved(r, target, p, err)
		}
		if err != nil || !isRedirect(p.status) {
			return p, err
		}
		moves = moves && movesBase(p.status)
		if target, err = d.next(r, target, p); err != nil {
			return nil, err
		}
	}
	e := d.errorOf(r, d.where(r))
	e.Err = fmt.Errorf("%w: more than %d in a row", ErrRedirect, maxRedirects)
	return nil, e
}

// next returns where the redirect p, of a request to target, leads.
func (d *Database) next(r *request, target *url.URL, p *response) (*url.URL, error) {
	location := p.header.Get("Location")
	p.finish()
	next, err := target.Parse(location)
	switch safe := r.method == http.MethodGet; {
	case err != nil || location == "":
		err = fmt.Errorf("%w: %d without a location", ErrRedirect, p.status)
	case origin(next) != d.origin && p.hidden().Has(origin(next)):
		err = fmt.Errorf("%w: to %s", ErrRedirect, redact.Mask)
	case origin(next) != d.origin:
		err = fmt.Errorf("%w: to %s", ErrRedirect, excerpt(origin(next)))
	case !safe && movesBase(p.status):
		err = fmt.Errorf("%w: %d of a %s to %w", ErrRedirect, p.status, r.method, quoted(shown(next)))
	case !r.again():
		err = fmt.Errorf("%w: its body is spent", ErrRedirect)
	}
	if err != nil {
		return nil, p.fail(err)
	}
	return next, nil
}

func isRedirect(status int) bool {
	return movesBase(status) || status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect
}

// movesBase reports whether a redirect is followed only with GET. A browser would follow it with GET whatever the method was.
func movesBase(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther:
		return true
	}
	return false
}

// tellsBase reports whether a redirect of the request tells where the whole database is.
func (r *request) tellsBase() bool {
	return r.method == http.MethodGet && !r.server && len(r.query) == 0 && (r.path == "" || strings.HasPrefix(r.path, "_local/"))
}

// moved looks at the answer of a request that was redirected to target. If there is a database, then all further requests
// go there at once: a redirect is not followed with other methods than GET. p is nil if there is an error.
func (d *Database) moved(r *request, target *url.URL, p *response, err error) {
	base, below := strings.CutSuffix(strings.TrimRight(target.EscapedPath(), "/"), strings.TrimRight("/"+r.path, "/"))
	if !below || target.RawQuery != "" {
		return
	}
	base = target.Scheme + "://" + target.Host + strings.TrimRight(base, "/")
	e, refused := errors.AsType[*Error](err)
	switch {
	case err == nil:
		p.moved = base // call moves when the answer turns out to be one of a database
	case refused && e.Code == "not_found":
		d.move(base)
	}
}

// move makes further requests go to another base. It does nothing if base is empty.
func (d *Database) move(base string) {
	if base != "" {
		d.at.Store(&base)
	}
}

// base returns the URL of the database, without a slash at its end.
func (d *Database) base() string {
	if moved := d.at.Load(); moved != nil {
		return *moved
	}
	return d.root
}
