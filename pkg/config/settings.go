package config

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Upper bounds for settings without a natural one. They fit 32 bits, so that no time overflows.
const (
	many        = math.MaxInt32
	longMillis  = many * time.Millisecond
	longSeconds = many * time.Second
)

// maxReplicateBody is the limit of the job layer for a job's args, in bytes. The body of a POST
// to _replicate becomes the args of its job.
const maxReplicateBody = 4_000_000

// maxDocumentSize is the limit of the databases' layer for the body of a document, in bytes.
const maxDocumentSize = 8_000_000

// The limits of a run, whatever its job or the settings ask for. A value above one counts as the limit.
const (
	maxWorkerProcesses = 100
	maxWorkerBatchSize = 10_000
	maxHTTPConnections = 1_000
	maxRetries         = 1_000
)

// The settings, by section. `settee config` prints the comments.

// [settee]: settings that CouchDB does not have.
var (
	Store = atStart(define("settee", "store", "pebble:./data", storeURL(),
		"The store of all data: an embedded store in a directory, a FoundationDB cluster\n"+
			"(needed for several nodes), or memory, which is lost when the process ends."))
	ClusterName = define("settee", "cluster_name", "", orNothing(displayName()),
		"The name of the cluster. The dashboard has it in its header and in the titles of its pages, and GET / as\n"+
			"cluster_name, which everybody may read. When not set, the dashboard has the host of its address.")
	MaxReplicateBody = define("settee", "max_replicate_body", "4000000", wholeBytes(1_000, maxReplicateBody),
		"The largest body of a POST to _replicate.")
	MemoryLimit = atStart(define("settee", "memory_limit_bytes", "0", memoryBytes(),
		"The memory that a node is to use, without that of its running jobs. Clients and the embedded store's cache\n"+
			"get a part of it. 0 is a quarter of the machine's or the container's memory, at most 1 GiB."))
	SpoolDir = atStart(define("settee", "spool_dir", "", filePath(),
		"The directory for large request bodies, in temporary files without a name. When not set, the system's\n"+
			"(TMPDIR, or /tmp)."))
	SpoolLimit = define("settee", "spool_limit_bytes", "8589934592", wholeBytes(1_000_000, math.MaxInt64),
		"The most disk space for large request bodies. Beyond it requests are refused with 503.")
	UpgradeAfter = define("settee", "upgrade_after_sec", "3600", seconds(0, longSeconds),
		"How long all live nodes must have known the next level of the store before one of them raises it.\n"+
			"0 means never: \"settee upgrade\" raises it.")
	DrainTime = define("settee", "drain_sec", "0", seconds(0, longSeconds),
		"How long an api_frontend node that was told to stop answers requests as before, while /_up fails, so\n"+
			"that a load balancer stops sending them. Its jobs go to other nodes at once.")
	GracePeriod = define("settee", "grace_period_sec", "15", seconds(0, longSeconds),
		"How long a stopping node waits, after drain_sec, for its running jobs to write a checkpoint and for\n"+
			"its requests to be answered.")
)

// [secrets]: encryption of secrets in the store. CouchDB has no such section.
var (
	SecretsKeyFile = atStart(define("secrets", "key_file", "", filePath(),
		"The keys that encrypt credentials and users in the store (\"settee secrets new-key\"). When not set, nothing is\n"+
			"encrypted. Its owner alone may have access to the file, or root and the group of the service (mode 640)."))
)

// [chttpd]
var (
	BindAddress = atStart(define("chttpd", "bind_address", "127.0.0.1", ipAddress(),
		"The address that an api_frontend node listens on."))
	Port = atStart(define("chttpd", "port", "5984", portNumber(),
		"The port that an api_frontend node listens on. 0 takes a free one."))
	MaxHTTPRequestSize = define("chttpd", "max_http_request_size", "4294967296", wholeBytes(1, math.MaxInt64),
		"The largest body of any request.")
	MaxConnections = define("chttpd", "max_connections", "10000", whole(1, many),
		"The most client connections to an api_frontend node, and the most concurrent requests.\n"+
			"Idle connections are closed first, then stalled bodies, then feeds of the busiest address.")
	ChangesTimeout = define("chttpd", "changes_timeout", "60000", milliseconds(time.Millisecond, longMillis),
		"How long a changes feed without heartbeats waits for a change before it ends, and the\n"+
			"longest time between heartbeats.")
	EnableCORS = define("chttpd", "enable_cors", "false", boolean(),
		"Whether browsers may use this node from pages of other origins, as [cors] says.")
	DecodePlusToSpace = define("chttpd", "decode_plus_to_space", "true", boolean(),
		"Whether a + in the path of a request means a space. %2B always means a +.")
	ForwardedHost = define("chttpd", "x_forwarded_host", "X-Forwarded-Host", headerName(),
		"The header in which a proxy says which host a client has asked.")
	ForwardedProto = define("chttpd", "x_forwarded_proto", "X-Forwarded-Proto", headerName(),
		"The header in which a proxy says https, if the client's connection to it is encrypted.")
	ForwardedSSL = define("chttpd", "x_forwarded_ssl", "X-Forwarded-Ssl", headerName(),
		"The header in which a proxy says on, if the client's connection to it is encrypted.")
	PeerHeader = define("chttpd", "peer_header", "", orNothing(headerName()),
		"The header in which a proxy says the address of a client. When not set, the connection's address counts.\n"+
			"Set it only if all clients come through a proxy that overwrites the header.")
	MaxDatabaseInfos = define("chttpd", "max_db_number_for_dbs_info_req", "100", whole(1, 10_000),
		"The most databases in a POST to _dbs_info.")
	configWhitelist = define("chttpd", "config_whitelist", "", orNothing(settingNames()),
		"The only settings that can be changed over HTTP. When not set, all except those that are read when a\n"+
			"node starts. To change the list over HTTP, it must have {chttpd, config_whitelist} itself.")
	RequireValidUser = define("chttpd", "require_valid_user", "false", boolean(),
		"Whether all requests except logins must be authenticated.")
	RequireValidUserExceptUp = define("chttpd", "require_valid_user_except_for_up", "false", boolean(),
		"The same, except for /_up.")
	AuthenticationHandlers = define("chttpd", "authentication_handlers",
		"{chttpd_auth, cookie_authentication_handler}, {chttpd_auth, default_authentication_handler}", handlers(),
		"How requests may be authenticated, in this order: with a session cookie, with basic authentication\n"+
			"(default), with a JSON web token (jwt), or by the headers of a proxy (proxy).")
)

// [chttpd_auth]
var (
	ProxyUserName = define("chttpd_auth", "x_auth_username", "X-Auth-CouchDB-UserName", headerName(),
		"The header in which an authenticating proxy says who the user is.")
	ProxyRoles = define("chttpd_auth", "x_auth_roles", "X-Auth-CouchDB-Roles", headerName(),
		"The header with the roles of the user, separated by commas.")
	ProxyToken = define("chttpd_auth", "x_auth_token", "X-Auth-CouchDB-Token", headerName(),
		"The header with the proof that the proxy knows the secret: the HMAC of the user's name in\n"+
			"hexadecimal digits, with one of hash_algorithms.")
	ProxyUseSecret = define("chttpd_auth", "proxy_use_secret", "true", boolean(),
		"Whether a proxy has to send that proof. With false anybody who reaches the node can be any user.")
	SessionTimeout = define("chttpd_auth", "timeout", "600", seconds(time.Second, longSeconds),
		"How long an unused session is valid.")
	CookieSecret = define("chttpd_auth", "secret", "", secretText(),
		"The secret that signs session cookies. When not set, a secret is made once and kept\n"+
			"in the store.")
	PersistentCookies = define("chttpd_auth", "allow_persistent_cookies", "true", boolean(),
		"Whether browsers keep the session cookie when they are closed.")
	SameSite = define("chttpd_auth", "same_site", "lax", oneOf("none", "lax", "strict"),
		"Whether browsers send the session cookie with requests of pages of other sites.")
	HashAlgorithms = define("chttpd_auth", "hash_algorithms", "sha256,sha", protocols("sha", "sha224", "sha256", "sha384", "sha512"),
		"The hash functions of session cookies: the first one signs new ones, all are accepted.")
	PasswordRules = define("chttpd_auth", "password_regexp", "[]", passwordRules(),
		"What a new password in a document of _users must match: regular expressions, each alone or with a\n"+
			"reason that is told to the user.")
	PasswordPRF = define("chttpd_auth", "pbkdf2_prf", "sha256", oneOf("sha", "sha224", "sha256", "sha384", "sha512"),
		"The hash function of new passwords.")
	PasswordIterations = define("chttpd_auth", "iterations", "600000", whole(1, 100_000_000),
		"The PBKDF2 iterations of new password hashes, at most max_iterations. Half a million take about 0.1 s.")
	MaxPasswordIterations = define("chttpd_auth", "max_iterations", "1000000", whole(1, 100_000_000),
		"The most PBKDF2 iterations: a password hash with more is refused.")
	UpgradeHashOnAuth = define("chttpd_auth", "upgrade_hash_on_auth", "true", boolean(),
		"Whether a password with a weaker hash than a new one is hashed again when its user logs in.\n"+
			"Passwords of [admins] in files, the environment or flags are not changed.")
)

// [chttpd_auth_lockout]
var (
	LockoutMode = define("chttpd_auth_lockout", "mode", "enforce", oneOf("off", "warn", "enforce"),
		"What happens after repeated failed logins: nothing, a warning, or the account is locked\n"+
			"for the client's address and further attempts are slowed down.")
	LockoutThreshold = define("chttpd_auth_lockout", "threshold", "5", whole(1, many),
		"The number of failed logins that count as repeated.")
	LockoutLifetime = define("chttpd_auth_lockout", "max_lifetime", "300000", milliseconds(time.Second, longMillis),
		"How long failed logins count, from the first one on.")
)

// [jwt_auth]
var (
	RequiredClaims = define("jwt_auth", "required_claims", "exp", claims(),
		"The claims that tokens must have.")
	RolesClaimName = define("jwt_auth", "roles_claim_name", "_couchdb.roles", someText("the name of a claim"),
		"The claim with the roles of a token's user.")
	RolesClaimPath = define("jwt_auth", "roles_claim_path", "", orNothing(claimPath()),
		"The path of the roles in a token, if they are not in a claim of their own.")
)

// Admins are the server administrators, names and passwords. A password is hashed before it is
// used; the store has only hashed ones.
var Admins = defineFamily("admins", "none", someText("a password, or its hash in CouchDB's form"),
	"The server administrators: names and passwords.")

// TokenKeys are the keys of JSON web tokens, by KIND:ID. By kind the values are: hmac []byte, rsa
// *rsa.PublicKey, ec *ecdsa.PublicKey, ed ed25519.PublicKey.
var TokenKeys = defineNamed("jwt_keys", "none", "a secret in base64, or a public key as PEM with \\n for line ends", tokenKey,
	"The keys of JSON web tokens, as hmac:ID, rsa:ID, ec:ID or ed:ID. The ID for tokens without one\n"+
		"is _default.")

// [ssl]: TLS for api_frontend nodes, on a port of its own.
var (
	TLSEnable = atStart(define("ssl", "enable", "false", boolean(),
		"Whether an api_frontend node also listens for TLS connections."))
	// TLSAddress is the zero Addr if it is not set; then BindAddress applies.
	TLSAddress = atStart(define("ssl", "bind_address", "", orNothing(ipAddress()),
		"The address for TLS, if it differs from that of [chttpd]. Plain HTTP can be kept on\n"+
			"loopback that way."))
	TLSPort = atStart(define("ssl", "port", "6984", portNumber(),
		"The port for TLS. 0 takes a free one."))
	TLSCertFile = atStart(define("ssl", "cert_file", "", filePath(),
		"The node's certificate (PEM), followed by intermediate ones. This file and the next ones are\n"+
			"read again when they change."))
	TLSKeyFile = atStart(define("ssl", "key_file", "", filePath(),
		"The private key of cert_file (PEM). When not set, the key is read from cert_file."))
	TLSKeyPassword = atStart(define("ssl", "password", "", secretText(),
		"The password of key_file, if that is encrypted."))
	// TLSVersions are constants of crypto/tls, the lowest first.
	TLSVersions = atStart(define("ssl", "tls_versions", "['tlsv1.2', 'tlsv1.3']", tlsVersions(),
		"The accepted versions of TLS."))
	// TLSCiphers are constants of crypto/tls; none means Go's default.
	TLSCiphers = atStart(define("ssl", "ciphers", "", tlsCiphers(),
		"The ciphers for TLS 1.2, by OpenSSL's names. When not set, all secure ones. Those of\n"+
			"TLS 1.3 are always accepted."))
	TLSClientCAFile = atStart(define("ssl", "cacert_file", "", filePath(),
		"The certificates of the authorities for client certificates (PEM)."))
	TLSVerifyClients = atStart(define("ssl", "verify_ssl_certificates", "false", boolean(),
		"Whether clients are asked for a certificate, which cacert_file must verify."))
	TLSRequireClients = atStart(define("ssl", "fail_if_no_peer_cert", "false", boolean(),
		"Whether clients that are asked must have a certificate."))
)

// [cors]: the pages that may use a node from a browser if [chttpd] enable_cors is true. An empty
// list has CouchDB's default.
var (
	// CORSOrigins are in lower case; * means any.
	CORSOrigins = define("cors", "origins", "", webOrigins(),
		"The origins of pages that may use this node. * means all.")
	CORSCredentials = define("cors", "credentials", "false", boolean(),
		"Whether they may send the browser's credentials for this node. Not those of origins\n"+
			"that only * allows.")
	CORSHeaders = define("cors", "headers", "", tokens(strings.ToLower),
		"The request headers that they may send. When not set, those that CouchDB's clients use.")
	CORSMethods = define("cors", "methods", "", tokens(strings.ToUpper),
		"The methods that they may use. When not set, all.")
	CORSExposedHeaders = define("cors", "exposed_headers", "", tokens(strings.ToLower),
		"The response headers that they may read, beside content-type and cache-control. When not set,\n"+
			"those that CouchDB exposes.")
	CORSMaxAge = define("cors", "max_age", "600", seconds(0, longSeconds),
		"How long a browser may cache what this node allows.")
)

// [couchdb]
var (
	// UUID is empty if it is not set.
	UUID = atStart(define("couchdb", "uuid", "", identifier(256),
		"This server's id, which is part of every replication id. With the uuid of a CouchDB\n"+
			"cluster, jobs continue from its checkpoints. When not set, one is made once and kept in the store."))
	MaxDocumentSize = define("couchdb", "max_document_size", "8000000", wholeBytes(1, maxDocumentSize),
		"The largest body of a document, as JSON, without its attachments. In replicator databases the\n"+
			"limit is 4000000.")
	DefaultSecurity = define("couchdb", "default_security", "admin_only", oneOf("admin_only", "admin_local", "everyone"),
		"Who may use a database that is created over HTTP until its _security says so: only administrators,\n"+
			"or everyone, which admin_local means, too.")
	UsersSecurityEditable = define("couchdb", "users_db_security_editable", "false", boolean(),
		"Whether the _security of _users can be changed.")
	// MaxAttachmentSize is math.MaxInt64 for no limit.
	MaxAttachmentSize = define("couchdb", "max_attachment_size", "1073741824", bytesOrInfinity(),
		"The largest attachment.")
	FunctionTimeout = define("couchdb", "os_process_timeout", "5000", milliseconds(time.Millisecond, longMillis),
		"How long a function of a design document may take for one document, or to be compiled.")
)

// [query_server_config] and [quickjs]: the functions of design documents.
var (
	FunctionLimit = atStart(define("query_server_config", "os_process_limit", "16", whole(1, 10_000),
		"The most functions of design documents that run at a time (no more than the processors can run), or are\n"+
			"kept compiled. At least 2."))
	FunctionIdleLimit = define("query_server_config", "os_process_idle_limit", "300", seconds(time.Second, longSeconds),
		"How long a compiled function is kept that is not used.")
	FunctionRevsLimit = define("query_server_config", "revs_limit", "20", whole(1, many),
		"The most revisions in the _revisions of a stored document that a function gets.")
	FunctionMemory = define("quickjs", "memory_limit_bytes", "67108864", wholeBytes(4<<20, 1<<32),
		"The most memory of a function that runs, and at most a quarter of the memory of all clients. The\n"+
			"documents that it gets have to fit, too.")
)

// [prometheus]
var (
	MetricsListen = atStart(define("prometheus", "additional_port", "false", boolean(),
		"Whether metrics are also served on a port of their own. A node that is not an api_frontend\n"+
			"has no other port."))
	MetricsAddress = atStart(define("prometheus", "bind_address", "127.0.0.1", ipAddress(),
		"The address for metrics."))
	MetricsPort = atStart(define("prometheus", "port", "17986", portNumber(),
		"The port for metrics. 0 takes a free one."))
)

// [uuids]
var (
	UUIDAlgorithm = define("uuids", "algorithm", "sequential", oneOf("sequential", "random", "utc_random", "utc_id"),
		"The ids of new documents: random ones that increase, random ones, or the time with a random\n"+
			"end or with utc_id_suffix.")
	UTCIDSuffix = define("uuids", "utc_id_suffix", "", identifier(100),
		"The end of ids that utc_id makes. It has to differ between nodes.")
	MaxUUIDs = define("uuids", "max_count", "1000", whole(1, 100_000),
		"The most ids in a request to _uuids.")
)

// [node_types]: see Config.Roles.
var (
	apiFrontend = atStart(define("node_types", "api_frontend", "true", boolean(),
		"Whether this node accepts HTTP requests. COUCHDB_NODE_TYPE_API_FRONTEND overrides it."))
	replication = atStart(define("node_types", "replication", "true", boolean(),
		"Whether this node runs replication jobs. COUCHDB_NODE_TYPE_REPLICATION overrides it."))
)

// [log]
var (
	// LogLevel is CouchDB's level as a zerolog level: notice becomes info, and levels above error
	// become fatal.
	LogLevel = define("log", "level", "info", logLevel(),
		"The least severe level that is logged.")
)

// [replicator]: which jobs run.
var (
	MaxJobs = define("replicator", "max_jobs", "500", whole(0, many),
		"The most replication jobs that one node runs at a time. 0 starts none.")
	Interval = define("replicator", "interval_sec", "15", seconds(time.Second, longSeconds),
		"How often the scheduler compares the running and the waiting jobs.",
		alias[time.Duration]{"interval", millisecondsFrom(time.Second, longMillis)})
	MaxChurn = define("replicator", "max_churn", "100", whole(0, many),
		"The most running jobs that one node stops each interval to make room for waiting\n"+
			"ones. 0 stops none.")
	MinRunTime = define("replicator", "min_run_time_sec", "60", seconds(0, longSeconds),
		"The shortest time that a job runs before it is stopped to make room for a waiting one.")
	UsageCoeff = define("replicator", "usage_coeff", "0.5", decimal(0, 1),
		"The part of a database's usage that still counts after an interval. With 0 past usage\n"+
			"is forgotten at once, with 1 never.")
	MaxAcceptors = define("replicator", "max_acceptors", "2", whole(1, 1_000),
		"How many acceptors of one node wait for jobs while it may run more.")
	AcceptJitter = define("replicator", "accept_jitter", "2000", milliseconds(0, longMillis),
		"An acceptor that could not reach the store waits a random time up to this before it\n"+
			"tries again, so that nodes do not retry all at the same time.")
	HealthThreshold = define("replicator", "health_threshold_sec", "120", seconds(0, longSeconds),
		"A run that was well for longer than this without interruption clears the job's count of\n"+
			"errors. It is well while its databases are open and no request is being repeated.",
		alias[time.Duration]{"health_threshold", seconds(0, longSeconds)})
	StuckAfter = define("replicator", "stuck_after_sec", "120", seconds(time.Second, longSeconds),
		"A job whose runs have something to do, and make no progress for longer than this, is\n"+
			"listed as stuck. It stays so over crashes, until a run makes progress.")
	CrashAlert = define("replicator", "crash_alert_sec", "3600", seconds(time.Second, longSeconds),
		"A job that has crashed for longer than this, without recovering, is counted in the metric\n"+
			"settee_replicator_long_crashing_jobs, which raises an alert.")
	MinBackoffPenalty = define("replicator", "min_backoff_penalty_sec", "32", seconds(time.Second, longSeconds),
		"After n crashes in a row a job waits min_backoff_penalty_sec times 2^n, at most max_backoff_penalty_sec,\n"+
			"less up to a quarter at random: 48 to 64 seconds after the first crash with the defaults.")
	MaxBackoffPenalty = define("replicator", "max_backoff_penalty_sec", "172800", seconds(time.Second, longSeconds),
		"The longest time that a crashed job waits.")
	TransientJobMaxAge = define("replicator", "transient_job_max_age_sec", "86400", seconds(0, longSeconds),
		"How long a job posted to _replicate is kept after its end, so that its result can be\n"+
			"read. With 0 it is kept for the requests that wait for it.")
	// MaxHistory is bounded because a job's history is part of its state of at most 100,000
	// bytes, and every event may have a reason.
	MaxHistory = define("replicator", "max_history", "10", whole(1, 100),
		"How many of the latest events of a job are kept.")
	// IdleTimeout is 0 for idle runs that end only to make room.
	IdleTimeout = define("replicator", "idle_timeout_sec", "600", seconds(0, longSeconds),
		"How long a continuous job stays connected that has nothing to copy. Then it is parked until its\n"+
			"source changes. When due jobs need room, idle ones are parked at once. With 0 only then.")
	MaxIdle = define("replicator", "max_idle_sec", "3600", seconds(time.Second, longSeconds),
		"How often the databases of parked jobs are compared with what they were, in case the source's _db_updates has missed a change. Jobs of mirrors\n"+
			"notice a change of _security within five minutes, and with very many databases in this time. Targets of parked jobs are looked at within this time, or each five minutes if that is shorter.")
	MaxQuestions = define("replicator", "max_questions_per_sec", "10", whole(1, 1_000),
		"The most requests a second that ask the servers of one host, for one user or replicator database, whether sources of parked jobs have changed,\n"+
			"if it has no _db_updates or nobody may read it, or whether targets of parked jobs are still there.")
	MaxWatches = define("replicator", "max_watches", "500", whole(0, many),
		"The most servers that one node watches for changes in the sources of parked jobs. 0 watches none.")
	MaxMirrors = define("replicator", "max_mirrors", "100", whole(0, many),
		"The most mirrors of servers that run on one node without taking a slot of max_jobs.\n"+
			"Further ones take slots.")
	MirrorStarts = define("replicator", "mirror_starts", "20", whole(1, many),
		"The most databases of one mirror that are copied for the first time side by side.")
	MirrorDatabases = define("replicator", "mirror_databases", "100000", whole(1, many),
		"The most databases of one mirror. Further ones are left out, and are among its failures.")
	MirrorDeleteAfter = define("replicator", "mirror_delete_after_sec", "86400", seconds(0, longSeconds),
		"How long after a database was deleted at the source a mirror with \"deleted\": \"delete\"\n"+
			"deletes it at the target, too.")
	UpdateDocs = define("replicator", "update_docs", "false", boolean(),
		"Whether replication documents also record that their job runs or crashes (triggered and\n"+
			"error), as before CouchDB 2.1, and not only its end.")
)

// [replicator]: how a job runs. Jobs may set most of these for themselves.
var (
	WorkerProcesses = define("replicator", "worker_processes", "4", whole(1, maxWorkerProcesses),
		"How many batches of changes of one job are compared, how many are read and how many are written\n"+
			"side by side. A batch has up to four requests at a time, if http_connections suffice.")
	WorkerBatchSize = define("replicator", "worker_batch_size", "500", whole(1, maxWorkerBatchSize),
		"How many changes a worker takes at a time. Smaller batches need less memory and\n"+
			"make progress visible more often.")
	HTTPConnections = define("replicator", "http_connections", "20", whole(1, maxHTTPConnections),
		"How many connections one job opens to each of its endpoints, beside that of its changes feed.\n"+
			"With HTTP/2, how many requests at a time share one.")
	ConnectionTimeout = define("replicator", "connection_timeout", "30000", milliseconds(time.Millisecond, longMillis),
		"How long a connection to an endpoint may be silent: while it is made, and while a request\n"+
			"is sent or an answer comes. A connection with almost no traffic ends, too.")
	// RequestTimeout is 0 for infinity.
	RequestTimeout = define("replicator", "request_timeout", "infinity",
		millisecondsOrInfinity(time.Millisecond, longMillis),
		"How long an endpoint may take until it answers a request that was sent. Unless it is set,\n"+
			"that is connection_timeout. For changes feeds it always is.")
	RetriesPerRequest = define("replicator", "retries_per_request", "5", whole(0, maxRetries),
		"How often a failed request is tried again before the job crashes.")
	// SessionAuth reports whether jobs use sessions.
	SessionAuth = define("replicator", "auth_plugins", "couch_replicator_auth_session,couch_replicator_auth_noop",
		authPlugins(),
		"How jobs authenticate: with a session's cookie if the endpoint has sessions, otherwise with\n"+
			"basic authentication. With couch_replicator_auth_noop first, always with basic authentication.")
	// UserAgent is empty for the default, which depends on the version.
	UserAgent = define("replicator", "user_agent", "", headerText(),
		"The User-Agent header of requests to endpoints whose headers have none. When not set,\n"+
			"CouchDB-Replicator/3.5.3 and then settee/ with its version.")
	SessionRefreshInterval = define("replicator", "session_refresh_interval_sec", "550", seconds(time.Second, longSeconds),
		"After how long a session is renewed if its cookie does not say how long it is valid. Other\n"+
			"sessions are renewed after nine tenths of their time.")
	SessionMinUpdateInterval = define("replicator", "session_min_update_interval", "5", seconds(0, longSeconds),
		"A session that its endpoint refuses is renewed if it is at least this old, in seconds.")
	CheckpointInterval = define("replicator", "checkpoint_interval", "30000",
		milliseconds(time.Millisecond, longMillis),
		"How often a running job writes a checkpoint.")
	UseCheckpoints = define("replicator", "use_checkpoints", "true", boolean(),
		"Whether jobs write checkpoints. Without them every run starts at the beginning.")
	UseBulkGet = define("replicator", "use_bulk_get", "true", boolean(),
		"Whether documents are fetched with _bulk_get where the source has it.")
	MissingDocRetry = define("replicator", "missing_doc_retry_msec", "2000", milliseconds(0, longMillis),
		"How long a job waits before it requests a revision again that the source listed but did\n"+
			"not return. The nodes of the source may be out of step for a moment.")
	// MaxDocumentIDLength is math.MaxInt64 for no limit.
	MaxDocumentIDLength = define("replicator", "max_document_id_length", "infinity", bytesOrInfinity(),
		"The longest document id that is replicated. Documents with longer ids count as\n"+
			"refused by the target.")
	// MaxReplicatedDocument fits an int on any machine.
	MaxReplicatedDocument = define("replicator", "max_document_size", "67108864", wholeBytes(1<<20, 1<<30),
		"The largest document, without its attachments, that is read from a source. A larger one\n"+
			"makes the job fail. Each running job may need memory for six such documents.")
	ValidEndpointProtocols = define("replicator", "valid_endpoint_protocols", "http,https",
		protocols("http", "https"),
		"The protocols of sources and targets.")
	ValidProxyProtocols = define("replicator", "valid_proxy_protocols", "http,https,socks5",
		protocols("http", "https", "socks5"),
		"The protocols of proxies.")
)

// [ibm]: access tokens of IBM Cloud, for endpoints with an API key.
var (
	IBMTokenURL = define("ibm", "token_url", "https://iam.cloud.ibm.com/identity/token", tokenServer(),
		"The server that gives access tokens for the API keys in auth.ibm and auth.iam of endpoints.")
)

// DefaultShares is the share of a replicator database that [replicator.shares] does not list.
const DefaultShares = 100

// Shares are the configured shares of replicator databases, by name. Running time is divided in
// proportion to the shares.
var Shares = defineFamily("replicator.shares", strconv.Itoa(DefaultShares), whole(0, 1_000),
	"The shares of running time: the jobs of a replicator database with twice the shares of\n"+
		"another one run twice as long, and those of one with 0 shares do not run. The keys are the\n"+
		"names of replicator databases.")

// Watches are the user names and passwords for the _db_updates of sources' servers, by the servers' URLs. Use
// [Config.WatchLogin] to find the one for a server.
var Watches = defineNamed("replicator.watches", "none", wantLogin, watchLogin,
	"The logins with which servers are watched for changes in the sources of parked jobs, and asked whether\n"+
		"their targets are still there. The keys are the servers' URLs. A server that is not listed is watched with the login of a job, if that is enough.")

// Budgets are the budgets of servers, by patterns of their hosts: see [serverbudget.Node.Set].
var Budgets = defineNamed("replicator.budgets", "none", wantBudget, serverBudget,
	"What all nodes together may ask of a server. The keys are HOST, HOST:PORT or *.SUFFIX, for each host with\n"+
		"that suffix. The values are up to three limits, such as 20 requests/s, 2 MB/s, 8 connections.")

// [replicator]: connections, shared by all jobs of a node. A change applies from the next request
// on.
var (
	ConnectionCloseInterval = define("replicator", "connection_close_interval", "90000",
		milliseconds(time.Millisecond, longMillis),
		"How long an unused connection is kept.")
	ConnectToOverrides = define("replicator", "connect_to", "", connectTo(),
		"Other addresses for endpoints. Certificates and Host headers are still those of the URL.\n"+
			"Endpoints behind a proxy are not affected.")
	// DeniedNetworks contains link-local addresses, among them 169.254.169.254, the metadata
	// service of most clouds, and other addresses at which clouds hand out credentials or manage
	// machines: AWS over IPv6 (and its agent for containers), Google over IPv6, Alibaba, Oracle,
	// Azure.
	DeniedNetworks = define("replicator", "denied_networks",
		"169.254.0.0/16, fe80::/10, fd00:ec2::254, fd00:ec2::23, fd20:ce::254, 100.100.100.200, 192.0.0.192, 168.63.129.16",
		networks(),
		"Networks that are never connected to: by default link-local ones and those where clouds hand out\n"+
			"credentials. The word private is for these and all private and loopback ones: see docs/security.md.")
	SocketOptionDefaults = define("replicator", "socket_options", "[{keepalive, true}, {nodelay, true}]",
		socketOptions(),
		"The socket options of jobs that set none. buffer and priority have no effect.")
	ValidSocketOptions = define("replicator", "valid_socket_options",
		"buffer,keepalive,nodelay,priority,recbuf,sndbuf", words(),
		"The socket options that jobs may set. Others are ignored.")
	CompressRequests = define("replicator", "compress_requests", "true", boolean(),
		"Whether large requests to CouchDB and settee are compressed. Those to loopback and private\n"+
			"addresses never are, because such networks are faster than the compression.")
	PropagateTrace = define("replicator", "propagate_trace", "false", boolean(),
		"Whether requests to endpoints carry the header traceparent, if traces are switched on. Endpoints\n"+
			"may belong to others, which could then follow the traces of this service.")
	ValidEndpointProtocolsLog = define("replicator", "valid_endpoint_protocols_log", "false", boolean(),
		"Whether a warning is logged for each run with a plain http endpoint.")
)

// [replicator]: TLS.
var (
	VerifyCertificates = define("replicator", "verify_ssl_certificates", "true", boolean(),
		"Whether the certificates of endpoints and proxies are verified. CouchDB does not, unless told\n"+
			"to. With false an attacker on the network can read and change everything.")
	VerifyCertificatesLog = define("replicator", "verify_ssl_certificates_log", "false", boolean(),
		"Whether a warning is logged for invalid certificates that are accepted without verification.")
	TrustedCertificatesFile = define("replicator", "ssl_trusted_certificates_file", "", filePath(),
		"The trusted certificates (PEM), instead of the operating system's. This file and\n"+
			"the next two are read again when they change.")
	CertificateFile = define("replicator", "cert_file", "", filePath(),
		"This node's certificate for endpoints that ask for one (PEM).")
	KeyFile = define("replicator", "key_file", "", filePath(),
		"The private key of cert_file (PEM). When not set, the key is read from cert_file.")
	KeyPassword = define("replicator", "password", "", secretText(),
		"The password of key_file, if that is encrypted.")
	CertificateMaxDepth = define("replicator", "ssl_certificate_max_depth", "3", whole(0, 100),
		"The most intermediate certificates between that of an endpoint and one that\n"+
			"is trusted.")
)
