package databases

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"settee/frontend/internal/access"
	"settee/frontend/internal/functions"
	"settee/frontend/internal/web"
	"settee/pkg/config"
	"settee/pkg/docstore"
)

// Endpoints answer the requests in databases.
type Endpoints struct {
	Documents   *docstore.Store
	Settings    web.Settings
	Connections *web.Connections
	Guard       *access.Guard
	Functions   *functions.Functions
	UUIDs       *web.UUIDs
	Node        string // the name of this node
}

// CreateDatabase answers PUT /{db}.
func (e *Endpoints) CreateDatabase(w http.ResponseWriter, r *http.Request) error {
	name := web.PathValue(r, "db")
	if docstore.CheckDatabaseName(name) != nil {
		return illegalName(name)
	}
	// The parameters of clusters (q, n, placement) are ignored: the store decides about them.
	q := web.NewQuery(r)
	if partitioned := q.Flag("partitioned", false); q.Err != nil {
		return q.Err
	} else if partitioned {
		return web.NotImplemented("there are no partitioned databases on this server: create it without `partitioned`")
	}
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	var security json.RawMessage // nil means the default
	if config.DefaultSecurity.Get(e.Settings.Current()) != "admin_only" {
		security = json.RawMessage("{}")
	}
	if _, err := e.Documents.CreateWith(ctx, name, security); err != nil {
		return web.StoreFailure(err)
	}
	w.Header().Set("Location", web.AbsoluteURL(r, couchEscape(name)))
	return web.RespondOK(w, r, http.StatusCreated)
}

// illegalName returns the failure, in CouchDB's words, for a name that no database can have.
func illegalName(name string) *web.Failure {
	if len(name) > docstore.MaxDatabaseNameSize {
		return web.NewFailure(http.StatusBadRequest, "database_name_too_long",
			fmt.Sprintf("At least one path segment of `%s` is too long.", web.Cut(name)))
	}
	return web.NewFailure(http.StatusBadRequest, "illegal_database_name", "Name: '"+name+"'. Only lowercase characters (a-z), "+
		"digits (0-9), and any of the characters _, $, (, ), +, -, and / are allowed. Must begin with a letter.")
}

// DeleteDatabase answers DELETE /{db}.
func (e *Endpoints) DeleteDatabase(w http.ResponseWriter, r *http.Request) error {
	if web.NewQuery(r).Has("rev") {
		// A script that meant to delete a document had no id.
		return web.BadRequest("You tried to DELETE a database with a ?=rev parameter. Did you mean to DELETE a document instead?")
	}
	return e.Guard.InDatabase(func(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
		ctx, cancel := web.StoreContext(r)
		defer cancel()
		if err := db.Delete(ctx); err != nil {
			return web.StoreFailure(err)
		}
		return web.RespondOK(w, r, http.StatusOK)
	})(w, r)
}

// DatabaseInfo answers GET /{db}.
func (e *Endpoints) DatabaseInfo(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	info, err := readInfo(r, db)
	if err != nil {
		return err
	}
	return web.Respond(w, r, http.StatusOK, web.NewDatabaseInfo(info))
}

func readInfo(r *http.Request, db *docstore.Database) (docstore.Info, error) {
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	info, err := db.Info(ctx)
	return info, web.StoreFailure(err)
}

// isMissing reports whether an error says that the database does not exist.
func isMissing(err error) bool { return errors.Is(err, docstore.ErrDatabaseNotFound) }
