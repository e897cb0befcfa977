package databases

import (
	"net/http"

	"github.com/gorilla/mux"

	"settee/frontend/internal/web"
	"settee/pkg/docstore"
)

// Route adds the paths of databases and documents to a router. Paths that were added before are taken first. watched makes an
// action one that a request can wait in ([views.Views.Watched]).
func (e *Endpoints) Route(r *mux.Router, s *web.Server, watched func(web.Action, ...string) web.Action) {
	handle := func(path string, m web.Methods) { r.Handle(path, s.Endpoint(m)) }
	handle("/_db_updates", web.Methods{http.MethodGet: e.DatabaseUpdates})
	e.routeDatabases(handle)
	e.routeAbsent(r, s)
	e.routeDocuments(handle, watched) // the last: {doc} is any name
}

func (e *Endpoints) routeDatabases(handle func(string, web.Methods)) {
	in := e.Guard.InDatabase
	handle("/{db}", web.Methods{
		http.MethodPut: e.CreateDatabase, http.MethodGet: in(e.DatabaseInfo), http.MethodPost: in(e.PostDocument),
		http.MethodDelete: e.DeleteDatabase,
	})
	handle("/{db}/_changes", web.Methods{http.MethodGet: in(e.Changes), http.MethodPost: in(e.Changes)})
	handle("/{db}/_revs_diff", web.Methods{http.MethodPost: in(e.RevsDiff)})
	handle("/{db}/_missing_revs", web.Methods{http.MethodPost: in(e.MissingRevs)})
	handle("/{db}/_security", web.Methods{http.MethodGet: in(e.Guard.GetSecurity), http.MethodPut: in(e.Guard.PutSecurity)})
	handle("/{db}/_revs_limit", web.Methods{http.MethodGet: in(e.GetRevsLimit), http.MethodPut: in(e.PutRevsLimit)})
	handle("/{db}/_time_seq", web.Methods{http.MethodGet: in(e.TimeSeq), http.MethodDelete: in(e.ResetTimeSeq)})
	handle("/{db}/_ensure_full_commit", web.Methods{http.MethodPost: in(e.EnsureFullCommit)})
	handle("/{db}/_compact", web.Methods{http.MethodPost: in(e.Compact)})
	handle("/{db}/_compact/{ddoc:[^/]+}{rest:(?:/.*)?}", web.Methods{http.MethodPost: in(e.CompactViews)})
	for _, cleanup := range []string{"_view_cleanup", "_search_cleanup", "_nouveau_cleanup"} {
		handle("/{db}/"+cleanup, web.Methods{http.MethodPost: in(e.Compact)})
	}
}

// routeAbsent adds paths of CouchDB's databases that settee does not serve, and the reasons.
func (e *Endpoints) routeAbsent(r *mux.Router, s *web.Server) {
	const designFunctions = "/{function:_(?:view|show|list|update|rewrite|info|search|search_info|nouveau|nouveau_info)(?:/.*)?}"
	for _, absent := range []struct {
		reason string
		paths  []string
	}{
		{"there are no views, shows, lists, updates, rewrites or searches on this server: of the functions of design documents " +
			"only those that validate writes and filter changes are run", []string{
			"/{db}/_design/{ddoc}" + designFunctions, "/{db}/{ddoc:_design%2F[^/]+}" + designFunctions, "/{db}/_temp_view",
		}},
		{"there are no queries by selector, nor indexes for them, on this server", []string{
			"/{db}/{function:_(?:find|explain|index)(?:/.*)?}",
		}},
		{"there are no partitioned databases on this server", []string{"/{db}/{function:_partition(?:/.*)?}"}},
		{"documents cannot be purged on this server: deleted ones are kept as CouchDB keeps them", []string{
			"/{db}/{function:_(?:purge|purged_infos|purged_infos_limit|auto_purge)}",
		}},
		{"databases have no shards on this server", []string{"/{db}/{function:_(?:shards(?:/.*)?|sync_shards)}"}},
	} {
		refuse := s.Action(e.Guard.InDatabase(func(http.ResponseWriter, *http.Request, *docstore.Database) error {
			return web.NotImplemented(absent.reason)
		}))
		for _, path := range absent.paths {
			r.Handle(path, refuse)
		}
	}
}

// documentPath is the path of a document. The slash behind _design and _local may be unencoded.
const documentPath = "/{db}/{doc:(?:_(?:design|local)/)?[^/]+}"

// routeDocuments adds the paths of documents and their attachments.
func (e *Endpoints) routeDocuments(handle func(string, web.Methods), watched func(web.Action, ...string) web.Action) {
	in := e.Guard.InDatabase
	handle("/{db}/_all_docs", web.Methods{http.MethodGet: in(e.AllDocs), http.MethodPost: in(e.AllDocs)})
	handle("/{db}/_all_docs/queries", web.Methods{http.MethodPost: in(e.AllDocsQueries)})
	handle("/{db}/_design_docs", web.Methods{http.MethodGet: in(e.DesignDocs), http.MethodPost: in(e.DesignDocs)})
	handle("/{db}/_design_docs/queries", web.Methods{http.MethodPost: in(e.DesignDocsQueries)})
	handle("/{db}/_local_docs", web.Methods{http.MethodGet: in(e.LocalDocs), http.MethodPost: in(e.LocalDocs)})
	handle("/{db}/_local_docs/queries", web.Methods{http.MethodPost: in(e.LocalDocsQueries)})
	handle("/{db}/_bulk_get", web.Methods{http.MethodPost: in(e.BulkGet)})
	handle("/{db}/_bulk_docs", web.Methods{http.MethodPost: in(e.BulkDocs)})
	handle(documentPath, web.Methods{
		http.MethodGet: watched(in(e.GetDocument), documentParameters...), http.MethodPut: in(e.PutDocument), http.MethodDelete: in(e.DeleteDocument),
		http.MethodPost: in(e.PostForm), "COPY": in(e.CopyDocument),
	})
	handle(documentPath+"/{attachment:.+}", web.Methods{
		http.MethodGet: in(e.GetAttachment), http.MethodPut: in(e.PutAttachment), http.MethodDelete: in(e.DeleteAttachment),
	})
}
