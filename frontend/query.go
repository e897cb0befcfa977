package frontend

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// query is the parameters of a request's URL. What they may be is checked as they are
// read; the first that is wrong is the error. Those that nobody reads are ignored, as
// CouchDB does.
type query struct {
	values url.Values
	err    error
}

func newQuery(r *http.Request) *query {
	values, err := url.ParseQuery(r.URL.RawQuery)
	q := &query{values: values}
	if err != nil {
		q.refuse("the query of the URL is not percent-encoded as it should be")
	}
	return q
}

func (q *query) refuse(format string, args ...any) {
	if q.err == nil {
		q.err = &failure{http.StatusBadRequest, "query_parse_error", fmt.Sprintf(format, args...)}
	}
}

func (q *query) has(name string) bool { return q.values.Has(name) }

// text returns a parameter as it is, empty if there is none.
func (q *query) text(name string) string { return q.values.Get(name) }

// flag returns a parameter that is true or false; otherwise, if there is none.
func (q *query) flag(name string, otherwise bool) bool {
	switch text := q.text(name); {
	case !q.has(name):
		return otherwise
	case strings.EqualFold(text, "true"): // True is what Python writes
		return true
	case !strings.EqualFold(text, "false"):
		q.refuse("Invalid value for boolean parameter `%s`: %q must be true or false", name, text)
	}
	return false
}

// count returns a parameter that is a whole number of at least 0; otherwise, if there is
// none. Larger numbers than an int holds are the largest one.
func (q *query) count(name string, otherwise int) int {
	if !q.has(name) {
		return otherwise
	}
	n, err := strconv.ParseUint(q.text(name), 10, 63)
	if err != nil && n != math.MaxInt64 {
		q.refuse("Invalid value for integer parameter `%s`: %q must be a whole number of at least 0", name, q.text(name))
		return 0
	}
	return int(min(n, math.MaxInt))
}

// json reads a parameter that is JSON into a value, and reports whether there is one.
// what says what it must be.
func (q *query) json(name, what string, into any) bool {
	if !q.has(name) {
		return false
	}
	if err := json.Unmarshal([]byte(q.text(name)), into); err != nil {
		q.refuse("Invalid value for parameter `%s`: it must be %s, as JSON", name, what)
		return false
	}
	return true
}
