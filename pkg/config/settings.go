package config

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Bounds that stand for "as much as one likes": what a 32-bit number holds, so that
// no time overflows and no count needs another type.
const (
	many        = math.MaxInt32
	longMillis  = many * time.Millisecond
	longSeconds = many * time.Second
)

// maxReplicateBody is the limit of the job layer for a job's args, in bytes. What is
// posted to _replicate becomes the args of its job.
const maxReplicateBody = 4_000_000

// The settings, by section. The comment is what an operator reads in `settee config`.

// [settee]: what CouchDB has no setting for.
var (
	Store = atStart(define("settee", "store", "pebble:./data", storeURL(),
		"Where everything is kept: an embedded store in a directory, a FoundationDB cluster\n"+
			"(several nodes need that), or memory, which is gone when the process is."))
	MaxReplicateBody = define("settee", "max_replicate_body", "4000000", wholeBytes(1_000, maxReplicateBody),
		"The largest body of a POST to _replicate.")
	GracePeriod = define("settee", "grace_period_sec", "15", seconds(0, longSeconds),
		"How long a node that is told to stop waits for its running jobs to write a checkpoint\n"+
			"and for its requests to be answered.")
)

// [secrets]: what the store has of them. CouchDB has no such section.
var (
	SecretsKeyFile = atStart(define("secrets", "key_file", "", filePath(),
		"The keys that credentials and users in the store are encrypted with (\"settee secrets new-key\").\n"+
			"Nobody but its owner may have access to the file. When not set, they are stored as they are."))
)

// [chttpd]
var (
	BindAddress = atStart(define("chttpd", "bind_address", "127.0.0.1", ipAddress(),
		"The address that an api_frontend node listens on."))
	Port = atStart(define("chttpd", "port", "5984", whole(0, math.MaxUint16),
		"The port that an api_frontend node listens on. 0 takes a free one."))
	MaxHTTPRequestSize = define("chttpd", "max_http_request_size", "4294967296", wholeBytes(1, math.MaxInt64),
		"The largest body of any request.")
	MaxConnections = define("chttpd", "max_connections", "10000", whole(1, many),
		"How many connections clients may have to an api_frontend node, and requests at a time. Idle\n"+
			"connections make room first, then stalled bodies, then feeds of the address with the most.")
	ChangesTimeout = define("chttpd", "changes_timeout", "60000", milliseconds(time.Millisecond, longMillis),
		"How long a changes feed waits for a change before it ends, unless it sends heartbeats;\n"+
			"and the time between heartbeats where a request does not say more often.")
	EnableCORS = define("chttpd", "enable_cors", "false", boolean(),
		"Whether pages of other origins may use this node from a browser, as [cors] says.")
	MaxDatabaseInfos = define("chttpd", "max_db_number_for_dbs_info_req", "100", whole(1, 10_000),
		"How many databases a POST to _dbs_info may ask about.")
	RequireValidUser = define("chttpd", "require_valid_user", "false", boolean(),
		"Whether nobody may ask for anything without saying who they are, but to log in.")
	RequireValidUserExceptUp = define("chttpd", "require_valid_user_except_for_up", "false", boolean(),
		"The same, with /_up for everybody.")
	AuthenticationHandlers = define("chttpd", "authentication_handlers",
		"{chttpd_auth, cookie_authentication_handler}, {chttpd_auth, default_authentication_handler}", handlers(),
		"How requests may say whose they are, in this order: with the cookie of a session, with basic\n"+
			"authentication (default), or with a JSON web token (jwt).")
)

// [chttpd_auth]
var (
	SessionTimeout = define("chttpd_auth", "timeout", "600", seconds(time.Second, longSeconds),
		"How long a session lasts that is not used.")
	CookieSecret = define("chttpd_auth", "secret", "", secretText(),
		"What the cookies of sessions are signed with. When not set, a secret is made once and kept\n"+
			"in the store.")
	PersistentCookies = define("chttpd_auth", "allow_persistent_cookies", "true", boolean(),
		"Whether browsers keep the cookie when they are closed.")
	SameSite = define("chttpd_auth", "same_site", "lax", oneOf("none", "lax", "strict"),
		"Whether browsers send the cookie along with what pages of other sites ask for.")
	HashAlgorithms = define("chttpd_auth", "hash_algorithms", "sha256,sha", protocols("sha", "sha224", "sha256", "sha384", "sha512"),
		"The hash functions of cookies: new ones are signed with the first, and all are taken.")
	PasswordPRF = define("chttpd_auth", "pbkdf2_prf", "sha256", oneOf("sha", "sha224", "sha256", "sha384", "sha512"),
		"The hash function of new passwords.")
	PasswordIterations = define("chttpd_auth", "iterations", "600000", whole(1, 100_000_000),
		"How often new passwords are hashed, at most max_iterations. Half a million is about a tenth of a second.")
	MaxPasswordIterations = define("chttpd_auth", "max_iterations", "1000000", whole(1, 100_000_000),
		"How often passwords are hashed at most: one that says more of itself lets nobody in.")
	UpgradeHashOnAuth = define("chttpd_auth", "upgrade_hash_on_auth", "true", boolean(),
		"Whether a password whose hash is weaker than a new one is hashed again when its user logs in.\n"+
			"Those of [admins] that are in files, the environment or flags stay as they are.")
)

// [chttpd_auth_lockout]
var (
	LockoutMode = define("chttpd_auth_lockout", "mode", "enforce", oneOf("off", "warn", "enforce"),
		"What is done about repeated failures to log in: nothing; a warning; or the account is locked\n"+
			"for the address that they came from, and further attempts are slowed down.")
	LockoutThreshold = define("chttpd_auth_lockout", "threshold", "5", whole(1, many),
		"How many failures those are.")
	LockoutLifetime = define("chttpd_auth_lockout", "max_lifetime", "300000", milliseconds(time.Second, longMillis),
		"How long failures count, from the first on.")
)

// [jwt_auth]
var (
	RequiredClaims = define("jwt_auth", "required_claims", "exp", claims(),
		"The claims that tokens must have.")
	RolesClaimName = define("jwt_auth", "roles_claim_name", "_couchdb.roles", someText("the name of a claim"),
		"The claim that has the roles of a token's user.")
	RolesClaimPath = define("jwt_auth", "roles_claim_path", "", secretText(),
		"Where the roles are in a token, with stops between the names, if not in a claim of their own.")
)

// Admins are the server administrators: names and passwords. One that was not hashed is hashed
// before it is used; the store has hashed ones only.
var Admins = defineFamily("admins", "none", someText("a password, or one that CouchDB has hashed"),
	"The server administrators: a name, and its password.")

// TokenKeys are the keys of JSON web tokens: KIND:ID, where KIND is hmac, rsa, ec or ed. They are a []byte, an
// *rsa.PublicKey, an *ecdsa.PublicKey or an ed25519.PublicKey.
var TokenKeys = defineNamed("jwt_keys", "none", "a secret in base64, or a public key as PEM with \\n for the ends of lines", tokenKey,
	"The keys of JSON web tokens, as hmac:ID, rsa:ID, ec:ID or ed:ID; the ID of tokens that name none\n"+
		"is _default.")

// [ssl]: TLS for api_frontend nodes, on a port of its own. The files are read again when they change.
var (
	TLSEnable = atStart(define("ssl", "enable", "false", boolean(),
		"Whether an api_frontend node listens for TLS too."))
	// TLSAddress is not valid where none is set: it is BindAddress then.
	TLSAddress = atStart(define("ssl", "bind_address", "", addressOrNone(),
		"The address that it does so on, where it is not that of [chttpd]: so plain HTTP can be kept\n"+
			"on loopback."))
	TLSPort = atStart(define("ssl", "port", "6984", whole(0, math.MaxUint16),
		"The port that it does so on. 0 takes a free one."))
	TLSCertFile = atStart(define("ssl", "cert_file", "", filePath(),
		"The node's certificate (PEM), and intermediate ones behind it. This file and the next ones are\n"+
			"read again when they change."))
	TLSKeyFile = atStart(define("ssl", "key_file", "", filePath(),
		"The private key of cert_file (PEM). Without it the key is looked for in cert_file itself."))
	TLSKeyPassword = atStart(define("ssl", "password", "", secretText(),
		"The password of key_file, if that is encrypted."))
	// TLSVersions are crypto/tls's numbers, the lowest first.
	TLSVersions = atStart(define("ssl", "tls_versions", "['tlsv1.2', 'tlsv1.3']", tlsVersions(),
		"The versions of TLS that are spoken."))
	// TLSCiphers are crypto/tls's numbers; none for its own choice.
	TLSCiphers = atStart(define("ssl", "ciphers", "", tlsCiphers(),
		"The ciphers that are offered in TLS 1.2, by OpenSSL's names. When not set, all that are safe;\n"+
			"those of TLS 1.3 are always."))
	TLSClientCAFile = atStart(define("ssl", "cacert_file", "", filePath(),
		"The certificates that those of clients are verified by (PEM)."))
	TLSVerifyClients = atStart(define("ssl", "verify_ssl_certificates", "false", boolean(),
		"Whether clients are asked for a certificate, which must be one that cacert_file vouches for."))
	TLSRequireClients = atStart(define("ssl", "fail_if_no_peer_cert", "false", boolean(),
		"Whether they must have one, where they are asked."))
)

// [cors]: which pages may use a node from a browser, if [chttpd] enable_cors is true. An empty list is
// CouchDB's.
var (
	// CORSOrigins are in lower case; * among them is any.
	CORSOrigins = define("cors", "origins", "", webOrigins(),
		"The origins of pages that may. * is all of them.")
	CORSCredentials = define("cors", "credentials", "false", boolean(),
		"Whether they may with the credentials that the browser has for this node. Not together with *.")
	CORSHeaders = define("cors", "headers", "", tokens(strings.ToLower),
		"The headers that they may send. When not set, those that CouchDB's clients use.")
	CORSMethods = define("cors", "methods", "", tokens(strings.ToUpper),
		"The methods that they may use. When not set, all that there are.")
	CORSExposedHeaders = define("cors", "exposed_headers", "", tokens(strings.ToLower),
		"The headers of answers that they may see, beside content-type and cache-control. When not set,\n"+
			"all that say something.")
	CORSMaxAge = define("cors", "max_age", "600", seconds(0, longSeconds),
		"How long a browser may remember what this node allows.")
)

// [couchdb]
var (
	// UUID is the empty string where none is set.
	UUID = atStart(define("couchdb", "uuid", "", identifier(256),
		"This server's id, which is part of every replication id: with the uuid of a CouchDB\n"+
			"cluster its checkpoints are found again. When not set, one is made once and kept in the store."))
	MaxDocumentSize = define("couchdb", "max_document_size", "8000000", wholeBytes(1, math.MaxInt64),
		"The largest body of a document, as JSON, without its attachments. More than 8000000 is as\n"+
			"good as that; a document of a replicator database has at most 4000000.")
	// MaxAttachmentSize is math.MaxInt64 where there is no limit.
	MaxAttachmentSize = define("couchdb", "max_attachment_size", "1073741824", bytesOrInfinity(),
		"The largest attachment.")
)

// [prometheus]
var (
	MetricsListen = atStart(define("prometheus", "additional_port", "false", boolean(),
		"Whether metrics are shown on a port of their own too: the only one of a node that is no\n"+
			"api_frontend."))
	MetricsAddress = atStart(define("prometheus", "bind_address", "127.0.0.1", ipAddress(),
		"The address of that port."))
	MetricsPort = atStart(define("prometheus", "port", "17986", whole(0, math.MaxUint16),
		"The number of that port. 0 takes a free one."))
)

// [uuids]
var (
	MaxUUIDs = define("uuids", "max_count", "1000", whole(1, 100_000),
		"How many ids a request to _uuids may ask for.")
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
	// LogLevel is CouchDB's level in zerolog's terms: notice counts as info, and all
	// above error as fatal.
	LogLevel = define("log", "level", "info", logLevel(),
		"The least important messages that are logged.")
)

// [replicator]: which jobs run.
var (
	MaxJobs = define("replicator", "max_jobs", "500", whole(0, many),
		"How many replication jobs one node runs at a time. 0 starts none.")
	Interval = define("replicator", "interval_sec", "15", seconds(time.Second, longSeconds),
		"How often the scheduler looks at the running and the waiting jobs.",
		alias[time.Duration]{"interval", milliseconds(time.Second, longMillis)})
	MaxChurn = define("replicator", "max_churn", "100", whole(0, many),
		"How many running jobs, at most, one node stops each interval to make room for waiting\n"+
			"ones. 0 stops none.")
	MinRunTime = define("replicator", "min_run_time_sec", "60", seconds(0, longSeconds),
		"How long a job runs, at least, before it is stopped to make room for a waiting one.")
	UsageCoeff = define("replicator", "usage_coeff", "0.5", decimal(0, 1),
		"What part of a database's usage still counts after an interval: with 0, what was used\n"+
			"before is forgotten at once, and with 1 never.")
	MaxAcceptors = define("replicator", "max_acceptors", "2", whole(1, 1_000),
		"How many acceptors of one node wait for a job while there is room for more.")
	AcceptJitter = define("replicator", "accept_jitter", "2000", milliseconds(0, longMillis),
		"An acceptor that could not reach the store waits a random time up to this before it\n"+
			"tries again, so that nodes do not all come back at the same moment.")
	HealthThreshold = define("replicator", "health_threshold_sec", "120", seconds(0, longSeconds),
		"A job that ran longer than this before it crashed starts with a fresh count of errors.",
		alias[time.Duration]{"health_threshold", seconds(0, longSeconds)})
	MinBackoffPenalty = define("replicator", "min_backoff_penalty_sec", "32", seconds(time.Second, longSeconds),
		"The base of the time that a crashed job waits. Every crash in a row doubles that time.")
	MaxBackoffPenalty = define("replicator", "max_backoff_penalty_sec", "172800", seconds(time.Second, longSeconds),
		"The longest that a crashed job waits.")
	TransientJobMaxAge = define("replicator", "transient_job_max_age_sec", "86400", seconds(time.Second, longSeconds),
		"How long a job that was posted to _replicate is kept when it has ended, for its result\n"+
			"to be read.")
	// MaxHistory is bounded because a job's history is part of its state, which is at
	// most 100,000 bytes, and every event may carry a reason.
	MaxHistory = define("replicator", "max_history", "10", whole(1, 100),
		"How many of its latest events a job remembers.")
	UpdateDocs = define("replicator", "update_docs", "false", boolean(),
		"Whether replication documents also say when their job runs or crashes (triggered and\n"+
			"error), as before CouchDB 2.1, and not only how it ended.")
)

// [replicator]: how a job runs. Jobs may set most of these for themselves.
var (
	WorkerProcesses = define("replicator", "worker_processes", "4", whole(1, 1_000),
		"How many batches of changes of one job are compared, how many are read and how\n"+
			"many are written side by side.")
	WorkerBatchSize = define("replicator", "worker_batch_size", "500", whole(1, 1_000_000),
		"How many changes a worker takes at a time. Smaller batches need less memory and\n"+
			"make progress visible more often.")
	HTTPConnections = define("replicator", "http_connections", "20", whole(1, 10_000),
		"How many connections one job opens to each of its endpoints, beside that of its changes feed.\n"+
			"With HTTP/2, how many requests at a time share one.")
	ConnectionTimeout = define("replicator", "connection_timeout", "30000", milliseconds(time.Millisecond, longMillis),
		"How long a connection to an endpoint may be silent: while it is made, and while a request\n"+
			"is sent or an answer comes. What hardly moves ends, too.")
	// RequestTimeout is 0 where it is infinity.
	RequestTimeout = define("replicator", "request_timeout", "infinity",
		millisecondsOrInfinity(time.Millisecond, longMillis),
		"How long an endpoint may take until it answers a request that was sent. Unless it is set,\n"+
			"that is connection_timeout. For changes feeds it always is.")
	RetriesPerRequest = define("replicator", "retries_per_request", "5", whole(0, 1_000),
		"How often a failed request is tried again before the job crashes.")
	// SessionAuth is whether there are sessions.
	SessionAuth = define("replicator", "auth_plugins", "couch_replicator_auth_session,couch_replicator_auth_noop",
		authPlugins(),
		"How jobs show who they are: with a session's cookie where the endpoint has sessions, and\n"+
			"else with basic authentication; or, with couch_replicator_auth_noop alone, always so.")
	SessionRefreshInterval = define("replicator", "session_refresh_interval_sec", "550", seconds(time.Second, longSeconds),
		"After how long a session is renewed whose cookie does not say how long it is good for.\n"+
			"Others are renewed after nine tenths of their time.")
	SessionMinUpdateInterval = define("replicator", "session_min_update_interval", "5", seconds(0, longSeconds),
		"A session that its endpoint does not take any more is renewed, if it is that old in seconds.")
	CheckpointInterval = define("replicator", "checkpoint_interval", "30000",
		milliseconds(time.Millisecond, longMillis),
		"How often a running job records how far it came.")
	UseCheckpoints = define("replicator", "use_checkpoints", "true", boolean(),
		"Whether jobs record how far they came. Without that, every run starts at the beginning.")
	UseBulkGet = define("replicator", "use_bulk_get", "true", boolean(),
		"Whether documents are fetched with _bulk_get where the source has it.")
	MissingDocRetry = define("replicator", "missing_doc_retry_msec", "2000", milliseconds(0, longMillis),
		"How long a job waits before it asks again for a revision that the source announced and\n"+
			"does not have: its cluster may be a moment behind.")
	// MaxDocumentIDLength is math.MaxInt64 where there is no limit.
	MaxDocumentIDLength = define("replicator", "max_document_id_length", "infinity", bytesOrInfinity(),
		"The longest id of a document that is replicated. Documents with longer ones count as\n"+
			"refused by the target.")
	// MaxReplicatedDocument fits an int of any machine.
	MaxReplicatedDocument = define("replicator", "max_document_size", "67108864", wholeBytes(1<<20, 1<<30),
		"The largest document, without its attachments, that is read from a source. A job with a larger\n"+
			"one fails. Each running job may need memory for six of them.")
	ValidEndpointProtocols = define("replicator", "valid_endpoint_protocols", "http,https",
		protocols("http", "https"),
		"The protocols that a source or a target may have.")
	ValidProxyProtocols = define("replicator", "valid_proxy_protocols", "http,https,socks5",
		protocols("http", "https", "socks5"),
		"The protocols that a proxy may have.")
)

// DefaultShares is the share of a replicator database of which [replicator.shares] says
// nothing.
const DefaultShares = 100

// Shares are the shares of replicator databases, by name: only those that somebody set.
// Running time is divided in proportion to the shares.
var Shares = defineFamily("replicator.shares", strconv.Itoa(DefaultShares), whole(1, 1_000),
	"How running time is divided: a replicator database with twice the shares of another one\n"+
		"runs its jobs twice as long. The keys are the names of replicator databases.")

// [replicator]: connections. A node has them in common for all of its jobs. A setting that changes while
// the node runs counts for the next request.
var (
	ConnectionCloseInterval = define("replicator", "connection_close_interval", "90000",
		milliseconds(time.Millisecond, longMillis),
		"How long a connection is kept that no job uses.")
	ConnectToOverrides = define("replicator", "connect_to", "", connectTo(),
		"Other addresses for endpoints: certificates and Host headers stay those of the URL.\n"+
			"Endpoints behind a proxy are left to the proxy.")
	// DeniedNetworks has link-local addresses, of which 169.254.169.254 is the metadata service of most
	// clouds, and the others that cloud providers hand out credentials at, or manage their machines from:
	// AWS over IPv6 (and its agent for containers), Google over IPv6, Alibaba, Oracle, Azure.
	DeniedNetworks = define("replicator", "denied_networks",
		"169.254.0.0/16, fe80::/10, fd00:ec2::254, fd00:ec2::23, fd20:ce::254, 100.100.100.200, 192.0.0.192, 168.63.129.16",
		networks(),
		"Networks that no connection is made to, whatever name or redirect leads there: by default\n"+
			"link-local ones and where clouds keep the credentials of machines.")
	SocketOptionDefaults = define("replicator", "socket_options", "[{keepalive, true}, {nodelay, true}]",
		socketOptions(),
		"The options of sockets, for jobs that have none. buffer and priority have no effect.")
	ValidSocketOptions = define("replicator", "valid_socket_options",
		"buffer,keepalive,nodelay,priority,recbuf,sndbuf", words(),
		"The socket options that jobs may set. Their others are ignored.")
	CompressRequests = define("replicator", "compress_requests", "true", boolean(),
		"Whether large requests are compressed, to CouchDB and settee. Those to loopback and private\n"+
			"addresses are not: such networks are faster than the compression.")
	ValidEndpointProtocolsLog = define("replicator", "valid_endpoint_protocols_log", "false", boolean(),
		"Whether a warning is logged of each run with an endpoint that is plain http.")
)

// [replicator]: TLS.
var (
	VerifyCertificates = define("replicator", "verify_ssl_certificates", "true", boolean(),
		"Whether the certificates of endpoints and proxies are verified. CouchDB does not, unless told\n"+
			"to: false lets whoever can get in between read and change everything.")
	VerifyCertificatesLog = define("replicator", "verify_ssl_certificates_log", "false", boolean(),
		"Whether a warning is logged of certificates that would not pass, where they are not verified.")
	TrustedCertificatesFile = define("replicator", "ssl_trusted_certificates_file", "", filePath(),
		"The certificates that are trusted (PEM), instead of the operating system's. This file and\n"+
			"the next two are read again when they change.")
	CertificateFile = define("replicator", "cert_file", "", filePath(),
		"The certificate that this node presents to endpoints which ask for one (PEM).")
	KeyFile = define("replicator", "key_file", "", filePath(),
		"The private key of cert_file (PEM). Without it the key is looked for in cert_file itself.")
	KeyPassword = define("replicator", "password", "", secretText(),
		"The password of key_file, if that is encrypted.")
	CertificateMaxDepth = define("replicator", "ssl_certificate_max_depth", "3", whole(0, 100),
		"How many intermediate certificates there may be between that of an endpoint and one that\n"+
			"is trusted.")
)
