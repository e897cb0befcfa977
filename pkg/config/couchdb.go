package config

import (
	"slices"
	"strings"
)

// ineffective has the settings of CouchDB 3.5, and of the replicator in RFC 016, that settee does
// not support. The text says what happens instead and completes the warning "has no effect: ...".
//
// Together with the table of settings it has every key of [replicator] in CouchDB's default.ini,
// documentation and code.
var ineffective = map[name]string{
	// Scheduling.
	{"replicator", "startup_jitter"}:       "accept_jitter spreads the starts of jobs",
	{"replicator", "cluster_start_period"}: "a node accepts jobs as soon as it has started",
	{"replicator", "cluster_quiet_period"}: "jobs are not divided among nodes in advance",
	{"ibm", "token_timeout"}:               "a token is waited for as long as any answer: see [replicator] request_timeout",
	{"replicator", "priority_coeff"}:       "jobs have no priority, their databases share the running time",

	// Of prototypes of CouchDB 4.
	{"replicator", "create_replicator_db"}:      "the database _replicator is created when a node first starts",
	{"replicator", "stats_update_interval_sec"}: "the progress of a job is updated within seconds of a change",

	// Requests.
	{"replicator", "ibrowse_options"}:       "it is for another HTTP client; IPv6 and IPv4 work without it",
	{"replicator", "valid_ibrowse_options"}: "it is for another HTTP client",

	// TLS.
	{"replicator", "cacert_reload_interval_hours"}: "trusted certificates are read again when their files change: ssl_trusted_certificates_file, and on Linux the operating system's",

	{"ssl", "secure_renegotiate"}:        "renegotiation is not supported",
	{"ssl", "signature_algs"}:            "Go's defaults are used",
	{"ssl", "ecc_curves"}:                "Go's defaults are used",
	{"ssl", "verify_fun"}:                "Erlang functions are not supported",
	{"ssl", "ssl_certificate_max_depth"}: "client certificates may have any number of intermediate certificates",
	{"daemons", "httpsd"}:                "[ssl] enable switches TLS on",

	// Settings whose absence could leave open what the operator has closed.
	{"chttpd_auth", "password_scheme"}:   "new passwords are hashed with PBKDF2; existing simple hashes are accepted",
	{"chttpd_auth", "users_db_public"}:   "only its owner and administrators can read a document of _users",
	{"chttpd_auth", "public_fields"}:     "only its owner and administrators can read a document of _users",
	{"chttpd_auth", "authentication_db"}: "it is always _users",
	{"chttpd", "admin_only_all_dbs"}:     "only administrators can use _all_dbs and _dbs_info",
	{"chttpd", "config_blacklist"}:       "config_whitelist lists the settings that can be changed over HTTP",

	{"disk_monitor", "enable"}:                                diskMonitor,
	{"disk_monitor", "background_view_indexing_threshold"}:    diskMonitor,
	{"disk_monitor", "interactive_view_indexing_threshold"}:   diskMonitor,
	{"disk_monitor", "interactive_database_writes_threshold"}: diskMonitor,

	{"couch_peruser", "enable"}: "no database is created for a user: create it together with the user",

	{"httpd", "require_valid_user"}: "CouchDB does not ask for users because of it either: set it in [chttpd]",

	{"chttpd", "allow_jsonp"}: "answers are JSON, and callback is ignored; pages of other origins need [cors]",
}

const diskMonitor = "writes are accepted until the disk is full; let your monitoring watch the disk"

// withoutLoss are the values of settings in ineffective that ask for what settee does anyway. For the others that is false: a
// switch that is off.
var withoutLoss = map[name]string{
	{"chttpd", "admin_only_all_dbs"}:       "true",
	{"chttpd_auth", "authentication_db"}:   "_users",
	{"chttpd_auth", "password_scheme"}:     "pbkdf2",
	{"replicator", "create_replicator_db"}: "true",
}

// switched are the sections of CouchDB whose other keys have no effect in CouchDB either unless enable is true.
var switched = []string{"couch_peruser", "disk_monitor"}

// nearOnes are the settings of CouchDB without effect whose names are near to others that settee has.
var nearOnes = []name{
	{"chttpd_auth", "min_iterations"}, {"couchdb", "max_attachment_chunk_size"}, {"couchdb", "os_process_limit"},
	{"query_server_config", "os_process_soft_limit"},
}

// whyIneffective returns what happens instead of a setting that settee does not support, in whichever section it is.
func whyIneffective(n name) (why string, ok bool) {
	n, _ = current(n)
	why, ok = ineffective[n]
	return why, ok
}

// whollyKnown are the sections whose keys are all known: any other key in them is a mistake.
var whollyKnown = []string{"settee", "replicator", "node_types", "secrets"}

// partlyUsed are the sections of CouchDB of which settee uses some keys.
var partlyUsed = []string{
	"chttpd", "chttpd_auth", "chttpd_auth_lockout", "cors", "couch_peruser", "couchdb", "daemons", "disk_monitor", "ibm", "jwt_auth", "log", "prometheus",
	"query_server_config", "quickjs", "ssl", "uuids",
}

// usedInPart reports whether a setting is in one of these sections, by its present name.
func usedInPart(n name) bool {
	n, _ = current(n)
	return slices.Contains(partlyUsed, n.section)
}

// couchDBSections are the other sections of CouchDB 3.5 and earlier, which settee ignores.
var couchDBSections = []string{
	"attachments", "bt_engine_cache", "chttpd_auth_cache", "cluster", "compaction_daemon", "compactions",
	"config", "couch_auto_purge_plugin", "couch_httpd_auth", "couch_httpd_oauth", "couch_passwords_cache",
	"couch_quickjs_scanner_plugin", "couch_scanner", "couch_scanner_plugin_conflict_finder",
	"couch_scanner_plugin_ddoc_features", "couch_scanner_plugin_find", "couch_scanner_plugins",
	"couchdb_engines", "csp", "custodian", "database_compaction", "ddoc_cache",
	"dreyfus", "dreyfus_blacklist", "external", "fabric", "feature_flags", "global_changes", "hibernate_after", "httpd",
	"httpd_db_handlers", "httpd_design_handlers", "httpd_global_handlers", "indexers", "ioq", "ken", "log_level_by_module", "mango",
	"mem3", "mem3_reshard", "native_query_servers", "nouveau", "nouveau_index_upgrader", "off_heap_mqd",
	"oauth_consumer_secrets", "oauth_token_secrets", "oauth_token_users", "os_daemons", "process_priority", "purge", "query_servers",
	"reshard", "resharding", "rexi", "smoosh", "stats", "update_notification", "vendor", "vhosts",
	"view_compaction", "view_updater", "view_upgrade", "x_frame_options",
}

// ofCouchDB reports whether a section is one of these, or below one, such as [smoosh.ratio_dbs]
// and [cors:http://example.com].
func ofCouchDB(section string) bool {
	if i := strings.IndexAny(section, ".:"); i > 0 {
		section = section[:i]
	}
	return slices.Contains(couchDBSections, section)
}
