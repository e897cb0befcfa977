package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"

	"settee/frontend/internal/web"
	"settee/pkg/config"
	"settee/pkg/docstore"
	"settee/pkg/jsontext"
)

// nameListing is which names of databases are listed.
type nameListing struct {
	docstore.ListOptions
	exclusive   bool // End itself is not listed
	nothing     bool // the range is empty, because a bound is the empty name
	skip, limit int  // a negative limit is no limit
}

// NameParameters are the parameters that AllDatabases reads.
var NameParameters = web.Parameters(func(q *web.Query) { readNameListing(q) })

func readNameListing(q *web.Query) nameListing {
	l := nameListing{
		exclusive: !q.Flag("inclusive_end", true),
		skip:      q.Count("skip", 0),
		limit:     q.Count("limit", -1),
	}
	l.Descending = q.Flag("descending", false)
	start := readBound(q, "startkey", "start_key", &l.Start)
	end := readBound(q, "endkey", "end_key", &l.End)
	// For docstore the empty name is no bound.
	l.nothing = !l.Descending && end && l.End == "" || l.Descending && start && l.Start == ""
	return l
}

// readBound reads a parameter that is a name, and has two names itself.
func readBound(q *web.Query, name, other string, into *string) bool {
	return q.JSON(name, "a string", into) || q.JSON(other, "a string", into)
}

// names yields the names of databases.
func (e *Endpoints) names(ctx context.Context, l nameListing) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if l.nothing || l.limit == 0 {
			return
		}
		skipped, listed := 0, 0
		for name, err := range e.Documents.Databases(ctx, l.ListOptions) {
			switch {
			case err != nil:
				yield("", err)
				return
			case l.exclusive && name == l.End:
				return // it is the last one
			case skipped < l.skip:
				skipped++
				continue
			}
			if !yield(name, nil) {
				return
			}
			if listed++; listed == l.limit {
				return
			}
		}
	}
}

// Missing answers GET of what is below /_all_dbs and /_dbs_info: nothing.
func Missing(http.ResponseWriter, *http.Request) error { return web.NotFound("missing") }

// AllDatabases answers GET /_all_dbs.
func (e *Endpoints) AllDatabases(w http.ResponseWriter, r *http.Request) error {
	q := web.NewQuery(r)
	listing := readNameListing(q)
	if q.Err != nil {
		return q.Err
	}
	return web.SendList(w, r, web.ScanRows(e.Scans, r, e.names(r.Context(), listing)))
}

// keyedInfo is a database in the answer to _dbs_info.
type keyedInfo struct {
	Key   string            `json:"key"`
	Info  *web.DatabaseInfo `json:"info,omitempty"`
	Error string            `json:"error,omitempty"`
}

// AllInfos answers GET /_dbs_info.
func (e *Endpoints) AllInfos(w http.ResponseWriter, r *http.Request) error {
	q := web.NewQuery(r)
	listing := readNameListing(q)
	if q.Err != nil {
		return q.Err
	}
	return e.sendInfos(w, r, web.ScanRows(e.Scans, r, e.names(r.Context(), listing)), false)
}

// SomeInfos answers POST /_dbs_info.
func (e *Endpoints) SomeInfos(w http.ResponseWriter, r *http.Request) error {
	members, err := web.ReadObject(w, r, e.Config.Current())
	if err != nil {
		return err
	}
	text, given := members["keys"]
	var keys []string
	if !given {
		return web.BadRequest("`keys` member must exist.")
	}
	if err := json.Unmarshal(text, &keys); err != nil || keys == nil {
		return web.BadRequest("`keys` must be a list of names of databases, as strings")
	}
	if most := config.MaxDatabaseInfos.Get(e.Config.Current()); len(keys) > most {
		return web.BadRequest(fmt.Sprintf("`keys` has %d names; the most is %d (%s)", len(keys), most, config.MaxDatabaseInfos))
	}
	names := func(yield func(string, error) bool) {
		for _, key := range keys {
			if !yield(key, nil) {
				return
			}
		}
	}
	return e.sendInfos(w, r, names, true)
}

// sendInfos answers with the infos of databases. If the client asked for them by name, those that do not exist are
// errors in the list. Otherwise they are left out: they were deleted meanwhile.
func (e *Endpoints) sendInfos(w http.ResponseWriter, r *http.Request, names iter.Seq2[string, error], byName bool) error {
	return web.SendList(w, r, func(yield func(keyedInfo, error) bool) {
		for name, err := range names {
			row := keyedInfo{Key: name}
			var info docstore.Info
			if err == nil {
				info, err = e.info(r, name)
			}
			missing := errors.Is(err, docstore.ErrDatabaseNotFound)
			switch {
			case err == nil:
				shown := web.NewDatabaseInfo(info)
				shown.SecurityDigest = jsontext.Digest(info.Security)
				row.Info = &shown
			case missing && byName:
				row.Error = "not_found"
			case missing:
				continue
			default:
				yield(row, err)
				return
			}
			if !yield(row, nil) {
				return
			}
		}
	})
}

func (e *Endpoints) info(r *http.Request, name string) (docstore.Info, error) {
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	db, err := e.Documents.Database(ctx, name)
	if err != nil {
		return docstore.Info{}, err
	}
	return db.Info(ctx)
}
