package config

import (
	"slices"
	"strings"
)

// ineffective names the settings of CouchDB 3.5, and of the replicator that its RFC
// 016 describes, that settee does not honour, with what happens instead: the rest of
// the warning "has no effect: ...".
//
// Together with the table of settings it has every key of [replicator] in CouchDB's
// default.ini, documentation and code. What gets built moves from here to there.
var ineffective = map[name]string{
	// Scheduling.
	{"replicator", "startup_jitter"}:       "accept_jitter spreads the starts of jobs",
	{"replicator", "cluster_start_period"}: "a node takes jobs as soon as it is up",
	{"replicator", "cluster_quiet_period"}: "jobs are not divided among nodes in advance",
	{"replicator", "priority_coeff"}:       "jobs have no priority of their own, their databases take turns",

	// Requests.
	{"replicator", "ibrowse_options"}:       "it is for another HTTP client; IPv6 and IPv4 both work without",
	{"replicator", "valid_ibrowse_options"}: "it is for another HTTP client",

	// TLS.
	{"replicator", "cacert_reload_interval_hours"}: "the operating system's trusted certificates are read once; ssl_trusted_certificates_file is read again when it changes",

	{"ssl", "secure_renegotiate"}:        "there is no renegotiation",
	{"ssl", "signature_algs"}:            "those of Go are used",
	{"ssl", "ecc_curves"}:                "those of Go are used",
	{"ssl", "verify_fun"}:                "there is no Erlang here",
	{"ssl", "ssl_certificate_max_depth"}: "the certificates of clients may have any number between them and one of cacert_file",
	{"daemons", "httpsd"}:                "TLS is for [ssl] enable to switch on",

	// Settings elsewhere whose absence leaves open what an operator believes closed.
	{"chttpd_auth", "password_scheme"}:        "passwords are hashed with PBKDF2; simple ones that are there already are taken",
	{"chttpd_auth", "password_regexp"}:        "any password is taken",
	{"chttpd_auth", "proxy_use_secret"}:       "there is no proxy authentication",
	{"chttpd_auth", "users_db_public"}:        "documents of _users are read by their owner and administrators",
	{"chttpd_auth", "public_fields"}:          "documents of _users are read by their owner and administrators",
	{"chttpd_auth", "authentication_db"}:      "it is _users",
	{"chttpd", "admin_only_all_dbs"}:          "_all_dbs and _dbs_info are for administrators",
	{"couchdb", "default_security"}:           "new databases are for administrators only, until their _security says otherwise",
	{"couchdb", "users_db_security_editable"}: "the _security of _users cannot be changed",
}

// whollyKnown are the sections of which every key is either a setting, ineffective
// or a mistake.
var whollyKnown = []string{"settee", "replicator", "node_types", "secrets"}

// partlyUsed are the sections of CouchDB of which settee uses some keys.
var partlyUsed = []string{"chttpd", "chttpd_auth", "chttpd_auth_lockout", "cors", "couchdb", "daemons", "jwt_auth", "log", "prometheus", "ssl", "uuids"}

// couchDBSections are the sections of CouchDB 3.5 and of its predecessors that
// settee has nothing to do with. A file may have them.
var couchDBSections = []string{
	"attachments", "bt_engine_cache", "chttpd_auth_cache", "cluster", "compaction_daemon", "compactions",
	"config", "couch_auto_purge_plugin", "couch_httpd_auth", "couch_passwords_cache",
	"couch_peruser", "couch_quickjs_scanner_plugin", "couch_scanner", "couch_scanner_plugin_conflict_finder",
	"couch_scanner_plugin_ddoc_features", "couch_scanner_plugin_find", "couch_scanner_plugins",
	"couchdb_engines", "csp", "custodian", "database_compaction", "ddoc_cache", "disk_monitor",
	"dreyfus", "dreyfus_blacklist", "fabric", "feature_flags", "global_changes", "hibernate_after", "httpd",
	"httpd_db_handlers", "httpd_design_handlers", "httpd_global_handlers", "indexers", "ioq", "ken", "mango",
	"mem3", "mem3_reshard", "native_query_servers", "nouveau", "nouveau_index_upgrader", "off_heap_mqd",
	"os_daemons", "process_priority", "purge", "query_server_config", "query_servers",
	"quickjs", "reshard", "resharding", "rexi", "smoosh", "stats", "vendor", "vhosts",
	"view_compaction", "view_updater", "view_upgrade", "x_frame_options",
}

// ofCouchDB says whether a section is one of CouchDB's, or below one of them, as
// [smoosh.ratio_dbs] and [cors:http://example.com] are.
func ofCouchDB(section string) bool {
	if i := strings.IndexAny(section, ".:"); i > 0 {
		section = section[:i]
	}
	return slices.Contains(couchDBSections, section)
}
