package frontend

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/gorilla/mux"

	"settee/pkg/docstore"
)

// databaseRoutes are the paths of databases as wholes.
func (h *Handler) databaseRoutes(r *mux.Router) {
	r.Handle("/{db}", h.endpoint(methods{
		http.MethodPut:    h.createDatabase,
		http.MethodGet:    h.inDatabase(h.databaseInfo),
		http.MethodPost:   h.inDatabase(h.postDocument),
		http.MethodDelete: h.deleteDatabase,
	}))
	h.changesRoutes(r)
	r.Handle("/{db}/_revs_diff", h.endpoint(methods{http.MethodPost: h.inDatabase(h.revsDiff)}))
	r.Handle("/{db}/_missing_revs", h.endpoint(methods{http.MethodPost: h.inDatabase(h.missingRevs)}))
	r.Handle("/{db}/_security", h.endpoint(methods{
		http.MethodGet: h.inDatabase(h.getSecurity), http.MethodPut: h.inDatabase(h.putSecurity),
	}))
	r.Handle("/{db}/_revs_limit", h.endpoint(methods{
		http.MethodGet: h.inDatabase(h.getRevsLimit), http.MethodPut: h.inDatabase(h.putRevsLimit),
	}))
	h.maintenanceRoutes(r)
	h.absentRoutes(r)
}

// okay is the answer to what was done.
type okay struct {
	OK bool `json:"ok"`
}

func (h *Handler) createDatabase(w http.ResponseWriter, r *http.Request) error {
	name := pathValue(r, "db")
	if docstore.CheckDatabaseName(name) != nil {
		return illegalName(name)
	}
	// How a database is spread over a cluster (q, n, placement) is the store's business.
	q := newQuery(r)
	if partitioned := q.flag("partitioned", false); q.err != nil {
		return q.err
	} else if partitioned {
		return notImplemented("there are no partitioned databases on this server: create it without `partitioned`")
	}
	ctx, cancel := storeContext(r)
	defer cancel()
	if _, err := h.docs.Create(ctx, name); err != nil {
		return docFailure(err)
	}
	w.Header().Set("Location", absoluteURL(r, url.PathEscape(name)))
	return respond(w, r, http.StatusCreated, okay{true})
}

// illegalName says what CouchDB says of a name that no database can have.
func illegalName(name string) *failure {
	if len(name) > docstore.MaxDatabaseNameSize {
		return &failure{http.StatusBadRequest, "database_name_too_long",
			fmt.Sprintf("At least one path segment of `%s` is too long.", cut(name))}
	}
	return &failure{http.StatusBadRequest, "illegal_database_name", "Name: '" + name + "'. Only lowercase characters (a-z), " +
		"digits (0-9), and any of the characters _, $, (, ), +, -, and / are allowed. Must begin with a letter."}
}

// absoluteURL returns the URL of a path on this server, as the client sees it: a proxy says
// in headers what it was asked for.
func absoluteURL(r *http.Request, path string) string {
	scheme, host := "http", r.Host
	if isSecure(r) {
		scheme = "https"
	}
	if forwarded := r.Header.Get("X-Forwarded-Host"); forwarded != "" {
		host = forwarded
	}
	return scheme + "://" + host + "/" + path
}

func (h *Handler) deleteDatabase(w http.ResponseWriter, r *http.Request) error {
	if newQuery(r).has("rev") {
		// A script that deletes a document of which it has no id means another thing.
		return badRequest("You tried to DELETE a database with a ?=rev parameter. Did you mean to DELETE a document instead?")
	}
	return h.inDatabase(func(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
		ctx, cancel := storeContext(r)
		defer cancel()
		if err := db.Delete(ctx); err != nil {
			return docFailure(err)
		}
		return respond(w, r, http.StatusOK, okay{true})
	})(w, r)
}

// databaseInfo is what a database says of itself, in CouchDB's order.
type databaseInfo struct {
	InstanceStartTime string        `json:"instance_start_time"`
	Name              string        `json:"db_name"`
	PurgeSeq          string        `json:"purge_seq"`
	UpdateSeq         string        `json:"update_seq"`
	Sizes             databaseSizes `json:"sizes"`
	Props             struct{}      `json:"props"`
	DeletedCount      int64         `json:"doc_del_count"`
	DocCount          int64         `json:"doc_count"`
	DiskFormatVersion int           `json:"disk_format_version"`
	CompactRunning    bool          `json:"compact_running"`
	Cluster           clusterInfo   `json:"cluster"`
}

// databaseSizes are in bytes. Nothing here is larger on disk until it is compacted.
type databaseSizes struct {
	File     int64 `json:"file"`
	External int64 `json:"external"`
	Active   int64 `json:"active"`
}

// clusterInfo is one shard with one copy: whatever the store makes of it.
type clusterInfo struct {
	Q int `json:"q"`
	N int `json:"n"`
	W int `json:"w"`
	R int `json:"r"`
}

// diskFormatVersion is that of the CouchDB whose interface this is.
const diskFormatVersion = 8

func shownInfo(info docstore.Info) databaseInfo {
	size := info.BodyBytes + info.AttachmentBytes
	return databaseInfo{
		InstanceStartTime: info.InstanceStartTime,
		Name:              info.Name,
		PurgeSeq:          docstore.Sequence{}.String(),
		UpdateSeq:         info.UpdateSeq.String(),
		Sizes:             databaseSizes{File: size, External: size, Active: size},
		DeletedCount:      info.DeletedCount,
		DocCount:          info.DocCount,
		DiskFormatVersion: diskFormatVersion,
		Cluster:           clusterInfo{Q: 1, N: 1, W: 1, R: 1},
	}
}

func (h *Handler) databaseInfo(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	info, err := readInfo(r, db)
	if err != nil {
		return err
	}
	return respond(w, r, http.StatusOK, shownInfo(info))
}

func readInfo(r *http.Request, db *docstore.Database) (docstore.Info, error) {
	ctx, cancel := storeContext(r)
	defer cancel()
	info, err := db.Info(ctx)
	if err != nil {
		return info, docFailure(err)
	}
	return info, nil
}

// isMissing reports whether the error says that there is no such database.
func isMissing(err error) bool { return errors.Is(err, docstore.ErrDatabaseNotFound) }
