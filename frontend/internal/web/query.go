package web

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Query has the parameters of a request's URL. Each is checked when it is read, and err is the first error. As in
// CouchDB unknown parameters are ignored.
type Query struct {
	Values url.Values
	Err    error
	read   map[string]bool // the names that were asked for; nil: they are not recorded
}

// Parameters returns the names of all parameters that a function reads. It must ask for each of them, with [Query.Has] at
// least, also of a request that has none.
func Parameters(read func(*Query)) []string {
	q := &Query{read: map[string]bool{}}
	read(q)
	return slices.Sorted(maps.Keys(q.read))
}

// NewQuery parses the parameters of a request's URL.
func NewQuery(r *http.Request) *Query {
	values, err := url.ParseQuery(r.URL.RawQuery)
	q := &Query{Values: values}
	if err != nil {
		q.Refuse("the query of the URL is not percent-encoded as it should be")
	}
	return q
}

// Refuse records an error, unless there is one already.
func (q *Query) Refuse(format string, args ...any) {
	q.Fail(NewFailure(http.StatusBadRequest, "query_parse_error", fmt.Sprintf(format, args...)))
}

// Has reports whether there is a parameter.
func (q *Query) Has(name string) bool {
	if q.read != nil {
		q.read[name] = true
	}
	return q.Values.Has(name)
}

// Text returns a parameter as it is. A missing one is empty.
func (q *Query) Text(name string) string {
	if !q.Has(name) {
		return ""
	}
	return q.Values.Get(name)
}

// Flag returns a parameter that is true or false, and missing if there is none.
func (q *Query) Flag(name string, missing bool) bool {
	switch text := q.Text(name); {
	case !q.Has(name):
		return missing
	case strings.EqualFold(text, "true"): // True is what Python writes
		return true
	case !strings.EqualFold(text, "false"):
		q.Refuse("Invalid value for boolean parameter `%s`: it must be true or false", name)
	}
	return false
}

// Switch returns whether a parameter is true. As in CouchDB any other text is ignored.
func (q *Query) Switch(name string) bool { return strings.EqualFold(q.Text(name), "true") }

// Count returns a parameter that is a whole number of at least 0, and missing if there is none. A number that is too
// large for an int becomes the largest int.
func (q *Query) Count(name string, missing int) int {
	if !q.Has(name) {
		return missing
	}
	n, err := strconv.ParseUint(q.Text(name), 10, 63)
	if err != nil && n != math.MaxInt64 {
		q.Refuse("Invalid value for integer parameter `%s`: it must be a whole number of at least 0", name)
		return 0
	}
	return int(min(n, math.MaxInt))
}

// JSON decodes a parameter that is JSON into a value, and reports whether there is a valid one. what is the kind of value
// that the error names.
func (q *Query) JSON(name, what string, into any) bool {
	if !q.Has(name) {
		return false
	}
	if err := json.Unmarshal([]byte(q.Text(name)), into); err != nil {
		q.Refuse("Invalid value for parameter `%s`: it must be %s, as JSON", name, what)
		return false
	}
	return true
}

// Fail records an error, unless there is one already.
func (q *Query) Fail(err error) {
	if q.Err == nil {
		q.Err = err
	}
}
