package frontend

import (
	"net/http"

	"github.com/gorilla/mux"

	"settee/pkg/docstore"
)

func notImplemented(reason string) error {
	return &failure{http.StatusNotImplemented, "not_implemented", reason}
}

// absentRoutes are the paths of CouchDB's databases that are not served, and why.
func (h *Handler) absentRoutes(r *mux.Router) {
	const designFunctions = "/{function:_(?:view|show|list|update|rewrite|info|search|search_info|nouveau|nouveau_info)(?:/.*)?}"
	for _, absent := range []struct {
		reason string
		paths  []string
	}{
		{"there are no views, nor other functions of design documents, on this server: design documents are kept and " +
			"replicated, and not run", []string{
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
		refuse := h.action(h.inDatabase(func(http.ResponseWriter, *http.Request, *docstore.Database) error {
			return notImplemented(absent.reason)
		}))
		for _, path := range absent.paths {
			r.Handle(path, refuse)
		}
	}
}
