package replicator

import (
	"fmt"
	"slices"
	"time"
)

// ParseError is the error for a definition that is refused.
type ParseError struct {
	// Field is the name of the field at fault, such as "doc_ids", or "source.auth.basic.password"
	// for a field inside another. It is empty if the text as a whole is not a definition.
	Field string
	// Reason is a sentence that names the field and says what it may be. It quotes no URLs and no
	// credentials.
	Reason string
}

// Error returns the reason.
func (e *ParseError) Error() string {
	return e.Reason
}

// Refusal is why a server refuses a request, in the form of CouchDB's bodies and of the rows of
// its bulk responses.
type Refusal struct {
	Error  string `json:"error"`
	Reason string `json:"reason"`
}

// Forbidden returns the body of the 403 response to a write of such a document.
func (e *ParseError) Forbidden() Refusal {
	return Refusal{Error: "forbidden", Reason: e.Reason}
}

// ParseOptions are the settings that parsing depends on. The zero value has CouchDB's defaults.
type ParseOptions struct {
	// EndpointProtocols are the allowed URL schemes of sources and targets, a subset of http and
	// https ([replicator] valid_endpoint_protocols). nil allows both.
	EndpointProtocols []string
	// ProxyProtocols are the allowed URL schemes of proxies, a subset of http, https and socks5
	// ([replicator] valid_proxy_protocols). nil allows all three.
	ProxyProtocols []string
}

func (o ParseOptions) endpointProtocols() []string {
	return configured(o.EndpointProtocols, []string{"http", "https"})
}

func (o ParseOptions) proxyProtocols() []string {
	return configured(o.ProxyProtocols, []string{"http", "https", "socks5"})
}

func configured(protocols, known []string) []string {
	if protocols == nil {
		return known
	}
	return slices.DeleteFunc(known, func(protocol string) bool {
		return !slices.Contains(protocols, protocol)
	})
}

// Request is the parsed body of POST /_replicate.
type Request struct {
	// Replication is nil if only an id says what to cancel.
	Replication *Replication
	// Cancel asks to stop and remove the replication.
	Cancel bool
	// ID is the `id`, `_local_id` or `replication_id` of the replication to cancel, or empty. It
	// may be a text that no ID has.
	ID string
}

// ParseRequest parses the body of POST /_replicate. Its errors are of type *ParseError.
//
// Unknown fields are ignored, and so are `owner` and `user_ctx`: the user is the one who sent
// the request. A body that cancels by id needs no other fields.
func ParseRequest(body []byte, options ParseOptions) (*Request, error) {
	f, err := readFields(body, "Request body must be a JSON object")
	if err != nil {
		return nil, err
	}
	cancel := f.boolean("cancel")
	request := &Request{Cancel: cancel != nil && *cancel, ID: f.replicationID()}
	if !request.Cancel || request.ID == "" {
		request.Replication = f.replication(options)
		f.refuseOfDocuments()
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	return request, nil
}

// Check returns an error if a replication that was accepted earlier cannot run on this node: a *ParseError if its
// protocols are no longer allowed, or the error of NextRun.
func (r *Replication) Check(options ParseOptions) error {
	for _, side := range []struct {
		name     string
		endpoint Endpoint
	}{{"source", r.Source}, {"target", r.Target}} {
		protocols := options.endpointProtocols()
		if l, err := splitURL(side.endpoint.URL); err != nil || !slices.Contains(protocols, l.scheme) {
			return protocolError(side.name, protocols)
		}
		if a := side.endpoint.Auth; a != nil && a.Members["token_url"] != "" && !options.tokenURL(a.Members["token_url"]) {
			return protocolError(side.name+".auth."+a.Kind+".token_url", protocols)
		}
		if side.endpoint.Proxy == "" {
			continue
		}
		protocols = options.proxyProtocols()
		if l, err := splitURL(side.endpoint.Proxy); err != nil || !slices.Contains(protocols, l.scheme) {
			return protocolError(side.name+"_proxy", protocols)
		}
	}
	if !r.Periodic() {
		return nil
	}
	_, err := r.NextRun(time.Time{}, time.Now())
	return err
}

func protocolError(name string, protocols []string) *ParseError {
	return &ParseError{Field: name, Reason: fmt.Sprintf("parameter `%s` must be a URL with protocol %s", name, orList(protocols))}
}

// replication parses the fields that requests and documents share.
func (f *fields) replication(options ParseOptions) *Replication {
	sourceProxy, targetProxy := f.proxies(options)
	r := &Replication{
		CreateTarget:       f.flag("create_target"),
		CreateTargetParams: f.createTargetParams(),
		Continuous:         f.flag("continuous"),
		DocIDs:             f.docIDs(),
		Filter:             f.filter(),
		QueryParams:        f.queryParams(),
		Selector:           f.selector(),
		SinceSeq:           f.sinceSeq(),
		WinningRevsOnly:    f.flag("winning_revs_only"),
		UseCheckpoints:     f.boolean("use_checkpoints"),
		CheckpointInterval: f.integer("checkpoint_interval", 1),
		UseBulkGet:         f.boolean("use_bulk_get"),
		WorkerProcesses:    f.integer("worker_processes", 1),
		WorkerBatchSize:    f.integer("worker_batch_size", 1),
		HTTPConnections:    f.integer("http_connections", 1),
		ConnectionTimeout:  f.integer("connection_timeout", 1),
		RetriesPerRequest:  f.integer("retries_per_request", 0),
		SocketOptions:      f.socketOptions(),
		Source:             f.endpoint("source", options),
		Target:             f.endpoint("target", options),
	}
	r.Source.Proxy, r.Target.Proxy = sourceProxy, targetProxy
	r.Doubtful = f.found.doubtful
	f.checkExclusive(r)
	r.Mirror = f.mirror(r)
	return r
}

// checkExclusive refuses a replication that is filtered in more than one way.
func (f *fields) checkExclusive(r *Replication) {
	var given []string
	if r.DocIDs != nil {
		given = append(given, "doc_ids")
	}
	if r.Filter != "" {
		given = append(given, "filter")
	}
	if r.Selector != nil {
		given = append(given, "selector")
	}
	if len(given) > 1 {
		f.fail(given[1], "`doc_ids`,`filter`,`selector` are mutually exclusive")
	}
}
