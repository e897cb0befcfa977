package frontend

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"

	"github.com/gorilla/mux"

	"settee/pkg/config"
	"settee/pkg/docstore"
)

// serverRoutes are the paths that are about the server's databases and tasks.
func (h *Handler) serverRoutes(r *mux.Router) {
	r.Handle("/_all_dbs", h.endpoint(methods{http.MethodGet: h.allDatabases}))
	r.Handle("/_dbs_info", h.endpoint(methods{http.MethodGet: h.allInfos, http.MethodPost: h.someInfos}))
	r.Handle("/_uuids", h.endpoint(methods{http.MethodGet: h.uuids}))
	r.Handle("/_active_tasks", h.endpoint(methods{http.MethodGet: h.activeTasks}))
}

// nameListing says which names of databases are listed.
type nameListing struct {
	docstore.ListOptions
	exclusive   bool // without End itself
	nothing     bool // a bound is the empty name, which lies before all
	skip, limit int  // a negative limit is none
}

func (q *query) nameListing() nameListing {
	l := nameListing{
		exclusive: !q.flag("inclusive_end", true),
		skip:      q.count("skip", 0),
		limit:     q.count("limit", -1),
	}
	l.Descending = q.flag("descending", false)
	start := q.bound("startkey", "start_key", &l.Start)
	end := q.bound("endkey", "end_key", &l.End)
	// docstore takes the empty name for no bound.
	l.nothing = !l.Descending && end && l.End == "" || l.Descending && start && l.Start == ""
	return l
}

// bound reads a parameter with two names that is a name.
func (q *query) bound(name, other string, into *string) bool {
	return q.json(name, "a string", into) || q.json(other, "a string", into)
}

// names yields the names of databases.
func (h *Handler) names(ctx context.Context, l nameListing) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if l.nothing || l.limit == 0 {
			return
		}
		skipped, listed := 0, 0
		for name, err := range h.docs.Databases(ctx, l.ListOptions) {
			switch {
			case err != nil:
				yield("", err)
				return
			case l.exclusive && name == l.End:
				return // it is the last
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

func (h *Handler) allDatabases(w http.ResponseWriter, r *http.Request) error {
	q := newQuery(r)
	listing := q.nameListing()
	if q.err != nil {
		return q.err
	}
	out := newStream(w, r, http.StatusOK, "application/json")
	list := appender{to: out}
	list.raw("[")
	comma := ""
	for name, err := range h.names(r.Context(), listing) {
		if err != nil {
			return err
		}
		if list.raw(comma).value(name); list.err != nil {
			return list.err
		}
		comma = ","
	}
	if list.raw("]\n"); list.err != nil {
		return list.err
	}
	return out.end()
}

// keyedInfo is a database in the answer of _dbs_info.
type keyedInfo struct {
	Key   string        `json:"key"`
	Info  *databaseInfo `json:"info,omitempty"`
	Error string        `json:"error,omitempty"`
}

func (h *Handler) allInfos(w http.ResponseWriter, r *http.Request) error {
	q := newQuery(r)
	listing := q.nameListing()
	if q.err != nil {
		return q.err
	}
	return h.sendInfos(w, r, h.names(r.Context(), listing), false)
}

func (h *Handler) someInfos(w http.ResponseWriter, r *http.Request) error {
	members, err := h.readObject(w, r)
	if err != nil {
		return err
	}
	text, given := members["keys"]
	var keys []string
	if !given {
		return badRequest("`keys` member must exist.")
	}
	if err := json.Unmarshal(text, &keys); err != nil || keys == nil {
		return badRequest("`keys` must be a list of names of databases, as strings")
	}
	if most := config.MaxDatabaseInfos.Get(h.config.Current()); len(keys) > most {
		return badRequest(fmt.Sprintf("`keys` has %d names; the most is %d (%s)", len(keys), most, config.MaxDatabaseInfos))
	}
	names := func(yield func(string, error) bool) {
		for _, key := range keys {
			if !yield(key, nil) {
				return
			}
		}
	}
	return h.sendInfos(w, r, names, true)
}

// sendInfos sends the infos of databases; of missing ones that, if they were asked for.
func (h *Handler) sendInfos(w http.ResponseWriter, r *http.Request, names iter.Seq2[string, error], asked bool) error {
	out := newStream(w, r, http.StatusOK, "application/json")
	list := appender{to: out}
	list.raw("[")
	comma := ""
	for name, err := range names {
		if err != nil {
			return err
		}
		info, err := h.info(r, name)
		row := keyedInfo{Key: name}
		switch {
		case err == nil:
			shown := shownInfo(info)
			row.Info = &shown
		case isMissing(err) && asked:
			row.Error = "not_found"
		case isMissing(err):
			continue // it was deleted meanwhile
		default:
			return err
		}
		if list.raw(comma).value(row); list.err != nil {
			return list.err
		}
		comma = ","
	}
	if list.raw("]\n"); list.err != nil {
		return list.err
	}
	return out.end()
}

func (h *Handler) info(r *http.Request, name string) (docstore.Info, error) {
	ctx, cancel := storeContext(r)
	defer cancel()
	db, err := h.docs.Database(ctx, name)
	if err != nil {
		return docstore.Info{}, err
	}
	return db.Info(ctx)
}
