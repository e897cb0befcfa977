package frontend

import (
	"net/http"

	"github.com/gorilla/mux"

	"settee/frontend/internal/dashboard"
	"settee/frontend/internal/replication"
	"settee/frontend/internal/server"
	"settee/frontend/internal/web"
)

// routes returns the paths of the interface. A request has a path in the form that web.Canonical gives it. The first route
// that matches a path is taken.
func (h *Handler) routes() *mux.Router {
	r := mux.NewRouter().UseEncodedPath().SkipClean(true)
	h.serverRoutes(r)
	h.dashboardRoutes(r)
	h.replicationRoutes(r)
	h.nodeRoutes(r)
	h.databases.Route(r, h.web, h.views.Watched) // the last: {db} and {doc} are any names
	r.NotFoundHandler = h.web.Action(web.UnknownPath)
	if h.web.Tracer != nil {
		r.Use(nameSpans)
	}
	return r
}

// nameSpans names the spans of requests after their routes.
func nameSpans(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if route, err := mux.CurrentRoute(r).GetPathTemplate(); err == nil {
			web.NameSpan(r, route)
		}
		next.ServeHTTP(w, r)
	})
}

func (h *Handler) handle(r *mux.Router, path string, m web.Methods) {
	r.Handle(path, h.web.Endpoint(m))
}

func (h *Handler) serverRoutes(r *mux.Router) {
	s, g := h.server, h.guard
	h.handle(r, "/", web.Methods{http.MethodGet: s.Welcome})
	h.handle(r, "/_up", web.Methods{http.MethodGet: s.Up})
	h.handle(r, "/_session", web.Methods{
		http.MethodGet: g.GetSession, http.MethodPost: g.PostSession, http.MethodDelete: g.DeleteSession,
	})
	h.handle(r, "/_all_dbs", web.Methods{http.MethodGet: h.views.Watched(s.AllDatabases, server.NameParameters...)})
	h.handle(r, "/_dbs_info", web.Methods{http.MethodGet: s.AllInfos, http.MethodPost: s.SomeInfos})
	h.handle(r, "/_all_dbs/{rest:.+}", web.Methods{http.MethodGet: server.Missing})
	h.handle(r, "/_dbs_info/{rest:.+}", web.Methods{http.MethodGet: server.Missing, http.MethodPost: server.Missing})
	h.handle(r, "/_membership", web.Methods{http.MethodGet: s.Membership})
	h.handle(r, "/_cluster_setup", web.Methods{http.MethodGet: s.SetupState, http.MethodPost: s.SetUp})
	h.handle(r, "/_scheduler/nodes", web.Methods{http.MethodGet: h.views.Watched(s.ListNodes)})
	if s.Cordon != nil {
		h.handle(r, "/_scheduler/nodes/{node}/_cordon", web.Methods{http.MethodPost: s.CordonNode, http.MethodDelete: s.UncordonNode})
		h.handle(r, "/_scheduler/nodes/{node}/_drain", web.Methods{http.MethodPost: s.DrainNode})
	}
	h.handle(r, "/_uuids", web.Methods{http.MethodGet: s.UUIDs})
}

func (h *Handler) dashboardRoutes(r *mux.Router) {
	h.handle(r, "/_utils", web.Methods{http.MethodGet: dashboard.Index})
	h.handle(r, "/_utils/{file}", web.Methods{http.MethodGet: dashboard.File})
}

func (h *Handler) replicationRoutes(r *mux.Router) {
	e, watched := h.replication, h.views.Watched
	h.handle(r, "/_replicate", web.Methods{http.MethodPost: e.Replicate})
	h.handle(r, "/_scheduler/jobs", web.Methods{http.MethodGet: watched(e.ListJobs, replication.JobParameters...)})
	h.handle(r, "/_scheduler/jobs/{id}", web.Methods{http.MethodGet: watched(e.GetJob)})
	h.handle(r, "/_scheduler/jobs/{id}/_run", web.Methods{http.MethodPost: e.RunNow})
	h.handle(r, "/_scheduler/jobs/{id}/_verify", web.Methods{http.MethodPost: e.VerifyNow})
	h.handle(r, "/_scheduler/jobs/{id}/_acknowledge", web.Methods{http.MethodPost: e.Acknowledge, http.MethodDelete: e.Unacknowledge})
	h.handle(r, "/_scheduler/jobs/{id}/definition", web.Methods{http.MethodGet: watched(e.GetDefinition)})
	h.handle(r, "/_scheduler/jobs/{id}/lag", web.Methods{http.MethodGet: e.Lag})
	h.handle(r, "/_scheduler/jobs/{id}/failures", web.Methods{http.MethodGet: watched(e.ListFailures)})
	h.handle(r, "/_scheduler/check", web.Methods{http.MethodPost: e.Check})
	h.handle(r, "/_scheduler/summary", web.Methods{http.MethodGet: watched(e.Summary)})
	h.handle(r, "/_scheduler/problems", web.Methods{http.MethodGet: watched(e.Problems)})
	h.handle(r, "/_scheduler/problems/_acknowledge", web.Methods{http.MethodPost: e.AcknowledgeProblem})
	h.handle(r, "/_scheduler/rates", web.Methods{http.MethodGet: watched(e.Rates, replication.RateParameters...)})
	h.handle(r, "/_scheduler/shares", web.Methods{http.MethodGet: watched(e.ListShares)})
	h.handle(r, "/_scheduler/audit", web.Methods{http.MethodGet: watched(e.Audit, replication.AuditParameters...)})
	h.handle(r, "/_scheduler/docs", web.Methods{http.MethodGet: watched(e.ListDocs, replication.DocParameters...)})
	h.handle(r, "/_scheduler/docs/{rest:.+}", web.Methods{http.MethodGet: watched(e.DocsBelow, replication.DocParameters...)})
	h.handle(r, "/_active_tasks", web.Methods{http.MethodGet: watched(e.ActiveTasks)})
}

// nodeRoutes are the paths of this node.
func (h *Handler) nodeRoutes(r *mux.Router) {
	s := h.server
	handle := func(path string, m web.Methods) {
		r.Handle("/_node/{node}"+path, h.web.Action(s.OfNode(h.web.Endpoint(m))))
	}
	r.Handle("/_node", h.web.Action(func(http.ResponseWriter, *http.Request) error {
		return web.BadRequest("Incomplete path to _node request")
	}))
	handle("", web.Methods{http.MethodGet: s.NodeName})
	handle("/_config", web.Methods{http.MethodGet: h.views.Watched(s.WholeConfig, "origins")})
	handle("/_config/_reload", web.Methods{http.MethodPost: s.ReloadConfig})
	if s.Metrics != nil {
		handle("/_prometheus", web.Methods{http.MethodGet: s.Prometheus})
	}
	if s.Stats != nil {
		handle("/_stats{path:(?:/.*)?}", web.Methods{http.MethodGet: s.Statistics})
	}
	if s.Upgrade != nil {
		handle("/_upgrade", web.Methods{http.MethodGet: s.UpgradeStatus, http.MethodPost: s.RaiseLevel})
	}
	handle("/_backup", web.Methods{http.MethodPost: s.BackUp})
	handle("/_system", web.Methods{http.MethodGet: s.System})
	handle("/_versions", web.Methods{http.MethodGet: s.Versions})
	handle("/_config/{section}", web.Methods{http.MethodGet: s.ConfigSection})
	handle("/_config/{section}/{key}", web.Methods{
		http.MethodGet: s.ConfigValue, http.MethodPut: s.SetConfigValue, http.MethodDelete: s.DeleteConfigValue,
	})
	r.Handle("/_node/{node}/{rest:.+}", h.web.Action(web.UnknownPath))
}
