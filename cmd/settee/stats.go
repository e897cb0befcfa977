package main

import "strings"

// statsPaths are the metrics that CouchDB has at these paths of _node/{node}/_stats. The values of a label are one level
// more. Its other statistics are of what settee does not have or does not count: they are left out. Histograms are, too,
// because CouchDB's cover only the last seconds.
var statsPaths = map[string]string{
	"couchdb_httpd_requests_total":                                "couchdb/httpd/requests",
	"couchdb_httpd_request_methods":                               "couchdb/httpd_request_methods",
	"couchdb_httpd_status_codes":                                  "couchdb/httpd_status_codes",
	"couchdb_couch_replicator_jobs_starts_total":                  "couch_replicator/jobs/starts",
	"couchdb_couch_replicator_jobs_stops_total":                   "couch_replicator/jobs/stops",
	"couchdb_couch_replicator_jobs_crashes_total":                 "couch_replicator/jobs/crashes",
	"couchdb_couch_replicator_jobs_running":                       "couch_replicator/jobs/running",
	"couchdb_couch_replicator_jobs_pending":                       "couch_replicator/jobs/pending",
	"couchdb_couch_replicator_jobs_crashed":                       "couch_replicator/jobs/crashed",
	"couchdb_couch_replicator_jobs_total":                         "couch_replicator/jobs/total",
	"couchdb_couch_replicator_docs_completed_state_updates_total": "couch_replicator/docs/completed_state_updates",
	"couchdb_couch_replicator_docs_failed_state_updates_total":    "couch_replicator/docs/failed_state_updates",
	"couchdb_couch_replicator_requests_total":                     "couch_replicator/requests",
	"couchdb_couch_replicator_responses_success_total":            "couch_replicator/responses/success",
	"couchdb_couch_replicator_responses_failure_total":            "couch_replicator/responses/failure",
}

// stats returns the statistics in the form of CouchDB's _stats. Those that cannot be collected are missing.
func (m *metrics) stats() map[string]any {
	tree := map[string]any{}
	families, _ := m.registry.Gather() // with an error, the others
	for _, family := range families {
		path, ok := statsPaths[family.GetName()]
		if !ok {
			continue
		}
		for _, metric := range family.GetMetric() {
			at := strings.Split(path, "/")
			for _, label := range metric.GetLabel() {
				at = append(at, label.GetValue())
			}
			put(tree, at, map[string]any{
				"value": int64(metric.GetCounter().GetValue() + metric.GetGauge().GetValue()), // it is one of them
				"type":  strings.ToLower(family.GetType().String()),
				"desc":  family.GetHelp(),
			})
		}
	}
	return tree
}

// put puts a value at a path of a tree.
func put(tree map[string]any, path []string, value any) {
	for _, name := range path[:len(path)-1] {
		if tree[name] == nil {
			tree[name] = map[string]any{}
		}
		tree = tree[name].(map[string]any)
	}
	tree[path[len(path)-1]] = value
}
