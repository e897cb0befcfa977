package replicator

import (
	"encoding/json"
	"fmt"
	"time"

	"settee/pkg/jsontext"
	"settee/pkg/redact"
)

// Fault says what went wrong: at which end, in which request, and why. Texts are made from it, and never read.
type Fault struct {
	Code FaultCode `json:"code"`
	// Side is the end that the fault is about. It is empty for a fault of this node, of the definition or of another job.
	Side Side `json:"side,omitempty"`
	// Request is what the run asked for, with Method and Path, which has no query. Both are empty if there was no request.
	Request RequestCode `json:"request,omitempty"`
	Method  string      `json:"method,omitempty"`
	Path    string      `json:"path,omitempty"`
	// Host is the host and the port of the endpoint, as the definition has them, or of its token server if that failed, and Database its URL as CouchDB prints it.
	Host     string `json:"host,omitempty"`
	Database string `json:"database_url,omitempty"`
	// Proxy is the URL of the proxy, if that failed.
	Proxy string `json:"proxy,omitempty"`
	// Status is the status of the answer, Word and Said are the server's "error" and "reason". They are zero if there are none.
	Status int    `json:"http_status,omitempty"`
	Word   string `json:"couchdb_error,omitempty"`
	Said   string `json:"couchdb_reason,omitempty"`
	// Document is set if the fault is about one document.
	Document *DocRef `json:"document,omitempty"`
	// User is the user that the request was made as; empty for none.
	User string `json:"user,omitempty"`
	// RetryAfter is how long the server asked to wait, in seconds.
	RetryAfter int `json:"retry_after,omitempty"`
	// Detail is the error in Go's words, with the method and the URL of the request.
	Detail string    `json:"detail,omitempty"`
	At     time.Time `json:"at,omitzero"`
	// Text is CouchDB's text of a fault that has no template: a collision, a sealed definition, and an unknown one. Word goes
	// with it.
	Text string `json:"couchdb_text,omitempty"`
	// Attempt and Attempts say how often a request is repeated, as in [Wait].
	Attempt  int `json:"attempt,omitempty"`
	Attempts int `json:"attempts,omitempty"`
}

// DocRef names a document, or a revision of it.
type DocRef struct {
	ID  string `json:"id"`
	Rev string `json:"rev,omitempty"`
}

// Side is an end of a replication.
type Side string

// The ends.
const (
	SideSource Side = "source"
	SideTarget Side = "target"
)

// FaultCode is the kind of a fault.
type FaultCode string

// The kinds of faults.
const (
	FaultDNSNotFound      FaultCode = "dns_not_found"          // there is no such host
	FaultDNSFailed        FaultCode = "dns_failed"             // no name server has answered
	FaultConnectRefused   FaultCode = "connect_refused"        // no program listens at the port
	FaultUnreachable      FaultCode = "unreachable"            // no way to the host
	FaultConnectTimeout   FaultCode = "connect_timeout"        // the host does not answer
	FaultNetworkDenied    FaultCode = "network_denied"         // the settings forbid the address
	FaultTLSAuthority     FaultCode = "tls_unknown_authority"  // the authority of the certificate is not trusted
	FaultTLSExpired       FaultCode = "tls_expired"            // the certificate is not valid now
	FaultTLSName          FaultCode = "tls_wrong_name"         // the certificate is for another name
	FaultTLSClient        FaultCode = "tls_client_certificate" // the server wants a certificate of this node
	FaultTLSNoAnswer      FaultCode = "tls_no_answer"          // the server takes connections, and does not answer the handshake of TLS
	FaultTLSFailed        FaultCode = "tls_failed"             // any other failure of TLS
	FaultProxyRefused     FaultCode = "proxy_refused"          // the proxy wants other credentials
	FaultProxyFailed      FaultCode = "proxy_failed"           // the proxy cannot be reached, or cannot reach the server
	FaultNoAnswer         FaultCode = "no_answer"              // the server takes connections, and does not answer
	FaultStalled          FaultCode = "stalled"                // the answer does not go on
	FaultClosedEarly      FaultCode = "closed_early"           // the answer ended before it was complete
	FaultFilterSilent     FaultCode = "filter_silent"          // a filter has passed nothing for too long
	FaultUnauthorized     FaultCode = "unauthorized"           // 401
	FaultLoginRefused     FaultCode = "login_refused"          // 401 or 403 of a login
	FaultTokenRefused     FaultCode = "token_refused"          // the token server refuses the credentials
	FaultTokenFailed      FaultCode = "token_failed"           // the token server gives no access token
	FaultForbidden        FaultCode = "forbidden"              // 403
	FaultDatabaseMissing  FaultCode = "database_missing"       // the database does not exist
	FaultDatabaseChanged  FaultCode = "database_recreated"     // the database was created anew during the run
	FaultNotDatabase      FaultCode = "not_database"           // something else than a database is at the URL
	FaultFilterMissing    FaultCode = "filter_missing"         // the design document does not exist
	FaultFilterInvalid    FaultCode = "filter_invalid"         // the design document has no such filter
	FaultFilterChanged    FaultCode = "filter_changed"         // the filter has changed during a comparison
	FaultNoCheckpoint     FaultCode = "checkpoint_forbidden"   // the user may not write checkpoints
	FaultCheckpointTwice  FaultCode = "checkpoint_conflict"    // another replication writes the same checkpoint
	FaultSecurity         FaultCode = "security_forbidden"     // the `_security` object may not be read or written
	FaultRateLimited      FaultCode = "rate_limited"           // 429
	FaultServerError      FaultCode = "server_error"           // 5xx
	FaultUnexpectedStatus FaultCode = "unexpected_status"      // any other status
	FaultMissingRevision  FaultCode = "missing_revision"       // the source lacks a revision that it has announced
	FaultDigest           FaultCode = "digest_mismatch"        // an attachment differs from its digest
	FaultDocumentRefused  FaultCode = "document_refused"       // the target refuses a document
	FaultDocumentTooLarge FaultCode = "document_too_large"     // a document is larger than the settings allow
	FaultMalformed        FaultCode = "malformed_answer"       // the answer does not follow CouchDB's protocol
	FaultRedirected       FaultCode = "redirected"             // a redirect that is not followed
	FaultCollision        FaultCode = "collision"              // another job has the replication id
	FaultInvalid          FaultCode = "invalid_definition"     // the definition is at fault
	FaultSealed           FaultCode = "sealed"                 // this node does not have the key of the definition
	FaultUnlistable       FaultCode = "source_unlistable"      // the user of a mirror may not list the source's databases
	FaultMirrorRefused    FaultCode = "mirror_refused"         // a mirror may not write to the target, or read the source
	FaultTargetChanged    FaultCode = "target_changed"         // the target of a mirror has lost databases
	FaultFeedRefused      FaultCode = "feed_refused"           // no login may read a server's feed of updates
	FaultFeedMissing      FaultCode = "feed_missing"           // a server has no feed of updates
	FaultFeedFails        FaultCode = "feed_fails"             // a server does not answer its watch
	FaultUnknown          FaultCode = "unknown"                // any other fault
)

// RequestCode is what a run asks an endpoint for.
type RequestCode string

// The requests. Those of the first group are about a database as a whole, or its server.
const (
	RequestOpen           RequestCode = "open_database"
	RequestCreate         RequestCode = "create_database"
	RequestDelete         RequestCode = "delete_database"
	RequestLogin          RequestCode = "login"
	RequestToken          RequestCode = "get_token" // from the token server of the endpoint
	RequestReadServer     RequestCode = "read_server"
	RequestListDatabases  RequestCode = "list_databases"
	RequestReadFilter     RequestCode = "read_filter"
	RequestReadCheckpoint RequestCode = "read_checkpoint"
	RequestCheckpoint     RequestCode = "write_checkpoint"
	RequestTakeBack       RequestCode = "take_back_checkpoint"
	RequestFlush          RequestCode = "flush_writes" // CouchDB's _ensure_full_commit
	RequestReadMark       RequestCode = "read_mark"    // of a mirror
	RequestWriteMark      RequestCode = "write_mark"
	RequestReadChanges    RequestCode = "read_changes"
	RequestCompare        RequestCode = "compare_revisions"
	RequestReadDocuments  RequestCode = "read_documents"
	RequestReadDocument   RequestCode = "read_document"
	RequestWriteDocuments RequestCode = "write_documents"
	RequestWriteDocument  RequestCode = "write_document"
	RequestReadSecurity   RequestCode = "read_security"
	RequestWriteSecurity  RequestCode = "write_security"
)

// Whole reports whether the request is about a database as a whole, or its server.
func (r RequestCode) Whole() bool {
	switch r {
	case RequestOpen, RequestCreate, RequestDelete, RequestLogin, RequestToken, RequestReadServer, RequestListDatabases:
		return true
	}
	return false
}

// FaultAt returns a fault of an endpoint.
func FaultAt(code FaultCode, side Side, e Endpoint, request RequestCode, detail string) *Fault {
	return &Fault{
		Code: code, Side: side, Request: request, Host: e.Host(), Database: e.String(), User: e.Username, Detail: detail, At: time.Now(),
	}
}

// TextFault returns a fault of which only CouchDB's error and reason are known.
func TextFault(word, reason string) *Fault {
	return &Fault{Code: FaultUnknown, Word: word, Text: reason, At: time.Now()}
}

// Is reports whether the fault has a code. A nil fault has none.
func (f *Fault) Is(code FaultCode) bool { return f != nil && f.Code == code }

// MarshalJSON writes the time in UTC and whole seconds, masks credentials, and truncates texts, so that the result has less
// than 35,000 bytes.
func (f Fault) MarshalJSON() ([]byte, error) {
	type plain Fault
	return json.Marshal(plain(f.clean()))
}

// clean returns the fault as MarshalJSON writes it.
func (f Fault) clean() Fault {
	for _, text := range []*string{&f.Path, &f.Host, &f.Proxy, &f.Word, &f.Said, &f.User} {
		*text = jsontext.Cut(redact.Text(*text), maxActivityText)
	}
	f.Database, f.Detail, f.Text = cleanReason(f.Database), cleanReason(f.Detail), cleanReason(f.Text)
	f.At = wholeSeconds(f.At)
	if f.Document != nil {
		f.Document = &DocRef{jsontext.Cut(redact.Text(f.Document.ID), maxActivityText), jsontext.Cut(redact.Text(f.Document.Rev), maxActivityText)}
	}
	return f
}

// Redacted returns the fault with secrets masked in what servers and documents choose, and in a user name that is a secret. A nil
// fault stays nil.
func (f *Fault) Redacted(secrets redact.Set) *Fault {
	if f == nil {
		return nil
	}
	shown := *f
	for _, text := range []*string{&shown.Path, &shown.Word, &shown.Said, &shown.User, &shown.Detail, &shown.Text} {
		*text = secrets.Text(*text)
	}
	if f.Document != nil {
		shown.Document = &DocRef{secrets.Text(f.Document.ID), secrets.Text(f.Document.Rev)}
	}
	return &shown
}

// CouchText returns the "error" and the "reason" of CouchDB for the fault, without credentials. Clients compare them.
func (f *Fault) CouchText() (word, reason string) {
	word, reason = f.couchText()
	return word, redact.Text(reason)
}

// The words of CouchDB for errors.
const (
	wordPlain        = plainErrorCode              // where it has no other
	wordNoDatabase   = "db_not_found"              // source or target does not exist
	wordUnauthorized = "unauthorized"              // credentials are needed
	wordAuth         = "replication_auth_error"    // credentials are wrong
	wordForbidden    = "forbidden"                 // credentials are not enough
	wordUnresolved   = "nxdomain"                  // no such host
	wordMaxBackoff   = "max_backoff"               // 429 until no retry was left
	wordFilter       = "filter_fetch_error"        // the filter function's code could not be read
	wordCheckpoint   = "checkpoint_commit_failure" // a checkpoint could not be written
	wordMissingDoc   = "missing_doc"               // the source lacks a revision that it announced
	wordMirror       = "mirror_refused"            // CouchDB has no mirrors
	wordBadRequest   = "bad_request"               // the definition is refused
)

// requestWords has CouchDB's words for requests that fail, whatever the reason. It has none for the others.
var requestWords = map[RequestCode]string{RequestCompare: "revs_diff_failed", RequestWriteDocuments: "bulk_docs_failed"}

// couchText chooses a template by the kind of fault, and if that has none, by the request.
func (f *Fault) couchText() (word, reason string) {
	switch f.Code {
	case FaultUnknown, FaultCollision, FaultSealed:
		if f.Text != "" {
			return f.Word, f.Text
		}
	case FaultInvalid:
		return f.invalidText()
	case FaultUnlistable:
		return wordUnauthorized, f.Detail
	case FaultTokenRefused:
		return wordUnauthorized, fmt.Sprintf("%s: %s", f.Side, f.Detail)
	case FaultMirrorRefused:
		return wordMirror, f.Detail
	case FaultDatabaseChanged:
		return wordCheckpoint, fmt.Sprintf("the %s database %s was created anew, or its server started again, during the replication",
			f.Side, f.Database)
	case FaultFilterInvalid, FaultFilterChanged:
		return wordFilter, f.Detail
	case FaultCheckpointTwice:
		return wordCheckpoint, fmt.Sprintf("Error updating the %s checkpoint document: conflict: another replication with the same id wrote it", f.Side)
	case FaultNoCheckpoint:
		return wordCheckpoint, f.checkpointText()
	case FaultSecurity:
		return f.securityText()
	case FaultMissingRevision:
		return wordMissingDoc, fmt.Sprintf("document %.300q, revision %s: %s", f.Document.ID, f.Document.Rev, f.Detail)
	}
	switch f.Request {
	case RequestReadFilter:
		return wordFilter, f.filterText()
	case RequestCheckpoint, RequestTakeBack, RequestFlush:
		if !f.ofDatabase() {
			return wordCheckpoint, f.checkpointText()
		}
	}
	return f.requestText()
}

// ofDatabase reports whether the fault is told as one of the database, whatever was asked for.
func (f *Fault) ofDatabase() bool {
	switch f.Code {
	case FaultDatabaseMissing, FaultRateLimited, FaultLoginRefused, FaultUnauthorized, FaultForbidden:
		return true
	}
	return false
}

// requestText returns the texts of a failed request.
func (f *Fault) requestText() (word, reason string) {
	told := fmt.Sprintf("%s: %s", f.Side, f.Detail)
	word = requestWords[f.Request]
	switch f.Code {
	case FaultDatabaseMissing, FaultNotDatabase:
		return wordNoDatabase, "could not open " + f.Database
	case FaultDNSNotFound:
		return wordUnresolved, "could not resolve " + f.Database
	case FaultRateLimited:
		return wordMaxBackoff, told
	case FaultUnauthorized, FaultLoginRefused, FaultForbidden:
		if f.Request.Whole() {
			return f.refusedText()
		}
		if word == "" {
			word = f.refusedWord()
		}
		return word, told
	}
	if word == "" {
		return wordPlain, "http_request_failed: " + told // CouchDB puts this word before an Erlang term
	}
	return word, told
}

// refusedText returns the texts of a database that the user may not open. As in CouchDB, only a refused login says that the
// credentials are wrong.
func (f *Fault) refusedText() (word, reason string) {
	if f.Code == FaultForbidden || f.Code == FaultLoginRefused && f.Status == statusForbidden {
		return wordForbidden, "forbidden to access database " + f.Database + f.said()
	}
	word, as := wordUnauthorized, ""
	if f.Code == FaultLoginRefused {
		word = wordAuth
	}
	if f.User != "" {
		as = fmt.Sprintf(" as %q", f.User)
	}
	return word, "unauthorized to access or create database " + f.Database + as + f.said()
}

const (
	statusUnauthorized = 401
	statusForbidden    = 403
)

// refusedWord returns CouchDB's word for a 401 or 403.
func (f *Fault) refusedWord() string {
	switch {
	case f.Status == statusForbidden:
		return wordForbidden
	case f.User != "":
		return wordAuth
	}
	return wordUnauthorized
}

// said returns ": " and the server's reason, or "".
func (f *Fault) said() string {
	if f.Said == "" {
		return ""
	}
	return ": " + f.Said
}

func (f *Fault) invalidText() (word, reason string) {
	switch f.Request {
	case "": // before the run has begun
		return wordBadRequest, f.Detail
	case RequestReadFilter:
		return wordFilter, f.Detail
	}
	return wordPlain, f.Detail
}

// checkpointText returns the reason of a checkpoint that could not be written.
func (f *Fault) checkpointText() string {
	switch {
	case f.Request == RequestFlush:
		return fmt.Sprintf("Failure on %s commit: %s", f.Side, f.Detail)
	case f.Request == RequestTakeBack:
		return fmt.Sprintf("Error taking back the %s checkpoint document: %s", f.Side, f.Detail)
	case f.Code != FaultNoCheckpoint:
		return fmt.Sprintf("Error updating the %s checkpoint document: %s", f.Side, f.Detail)
	}
	word := f.Word
	if word == "" {
		word = f.Detail
	}
	return fmt.Sprintf("Error updating the %s checkpoint document: %s%s (a %s that may only be read needs \"use_checkpoints\": false)",
		f.Side, word, f.said(), f.Side)
}

func (f *Fault) filterText() string {
	why := "not_found"
	if f.Code != FaultFilterMissing {
		var word string
		if word, why = f.requestText(); word != wordPlain {
			why = word + ": " + why
		}
	}
	return fmt.Sprintf("Couldn't open document `%s` from %s database `%s`: %s", f.Document.ID, f.Side, f.Database, why)
}

func (f *Fault) securityText() (word, reason string) {
	verb, needs, who := "read", "", "without a user"
	refused := f.Status == statusUnauthorized || f.Status == statusForbidden
	if f.Request == RequestWriteSecurity {
		if verb = "write"; refused {
			needs = ", which only an administrator of the database or of the server may"
		}
	}
	if f.User != "" {
		who = fmt.Sprintf("as %q", f.User)
	}
	if word = wordPlain; refused {
		word = f.refusedWord()
	}
	return word, fmt.Sprintf("cannot %s the _security object of the %s database %s %s%s%s (a mirror with \"security\": false leaves it alone)",
		verb, f.Side, f.Database, who, needs, f.said())
}
