package couch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

const (
	// maxNames is the maximum number of databases that [Server.Databases] asks for at a time.
	maxNames = 1_000
	// maxNamesSize is the maximum size in bytes of an answer, which some servers give for all databases at once.
	maxNamesSize = 64 << 20
)

// Databases is a page of the names of a server's databases, in the order of their bytes.
type Databases struct {
	Names []string
	// Last reports whether there are no more databases.
	Last bool
}

// Databases reads the names of the databases after one, or the first ones if after is empty (GET /_all_dbs), at most 1,000
// of them unless the server does not know the parameters for pages: then it returns all that are left. CouchDB 3 requires
// an administrator of the server by default: see [ErrUnauthorized].
func (s *Server) Databases(ctx context.Context, after string) (page Databases, err error) {
	query := url.Values{"limit": {strconv.Itoa(maxNames + 1)}} // one may be after itself
	if after != "" {
		text, err := json.Marshal(after)
		if err != nil {
			return page, fmt.Errorf("_all_dbs: %w", err)
		}
		query.Set("startkey", string(text))
	}
	err = s.d.fetch(ctx, &request{method: http.MethodGet, path: "_all_dbs", query: query}, maxNamesSize, func(body []byte) error {
		var names []string
		if err := json.Unmarshal(body, &names); err != nil || names == nil {
			return errors.Join(fmt.Errorf("%w: the list of databases", ErrMalformed), err)
		}
		page = pageOf(names, after)
		if len(page.Names) == 0 && !page.Last {
			return fmt.Errorf("%w: the list of databases does not begin where it should", ErrMalformed)
		}
		return nil
	})
	return page, err
}

// pageOf returns the page that an answer has. A server that does not know limit answers more names than were asked for,
// and one that does not know startkey names before it, each of them all names.
func pageOf(names []string, after string) Databases {
	page := Databases{Last: len(names) != maxNames+1}
	slices.Sort(names)
	names = slices.Compact(names)
	names = slices.DeleteFunc(names, func(name string) bool { return name <= after })
	page.Names = names
	return page
}

// Exists reports whether a database exists (GET /db). false means that the server says so. Any other answer than its
// description is an error.
func (s *Server) Exists(ctx context.Context, database string) (bool, error) {
	err := s.d.fetch(ctx, &request{method: http.MethodGet, path: escapeSegment(database)}, maxInfo, func(body []byte) error {
		var info struct {
			Name *string `json:"db_name"`
		}
		if err := json.Unmarshal(body, &info); err != nil || info.Name == nil {
			return errors.Join(fmt.Errorf("%w: the database's description", ErrMalformed), err)
		}
		return nil
	})
	if e, ok := errors.AsType[*Error](err); ok && e.Status == http.StatusNotFound && isNoDatabase(e.Reason) {
		return false, nil
	}
	return err == nil, err
}

// Delete deletes a database. It returns no error if there is none.
func (s *Server) Delete(ctx context.Context, database string) error {
	err := s.d.fetch(ctx, &request{method: http.MethodDelete, path: escapeSegment(database)}, maxInfo, nil)
	if e, ok := errors.AsType[*Error](err); ok && e.Status == http.StatusNotFound && isNoDatabase(e.Reason) {
		return nil
	}
	return err
}
