package worker

import (
	"cmp"
	"net/http"

	"settee/pkg/couch"
	"settee/pkg/sockopt"
	"settee/replicator"
)

// requests returns how requests to an endpoint are made.
func (s *settings) requests(endpoint replicator.Endpoint, sockets *sockopt.Options, cfg Config) couch.Config {
	header := http.Header{}
	for _, h := range endpoint.Headers {
		header.Add(h.Name, h.Value)
	}
	shared := cmp.Or(cfg.Shared, &Shared{})
	c := couch.Config{
		URL: endpoint.URL, Username: endpoint.Username, Password: endpoint.Password,
		Header: header, Proxy: endpoint.Proxy,
		ConnectionTimeout: s.connectionTimeout, AnswerTimeout: s.requestTimeout,
		Retries: s.retries, RetryBase: s.retryBase,
		MaxConnections: s.connections, UserAgent: cfg.UserAgent, NoCompression: cfg.NoCompression,
		MaxDocument: cfg.MaxDocument, Sending: cfg.Sending, Budgets: cfg.Budgets,
		PropagateTrace: cfg.PropagateTrace,
		Limiter:        &shared.limiter,
		Token:          endpoint.Token(cfg.IBMTokenURL), Secrets: endpoint.Secrets(),
		SessionRefresh: cfg.SessionRefresh, SessionMinAge: cfg.SessionMinAge,
	}
	if !cfg.BasicAuth || c.Token != nil {
		c.Sessions = &shared.sessions
	}
	if cfg.Transport != nil {
		c.Transport = cfg.Transport(endpoint, sockets)
	}
	return c
}

// OpenServer returns the server of an endpoint, for requests that concern several of its databases. server is its URL, see
// [replicator.Endpoint.Server]. Requests are made as a run makes them: with the endpoint's credentials, headers and proxy, and
// over the connections, sessions and limits of rates of cfg. It does not connect. The caller closes the server.
func OpenServer(e replicator.Endpoint, server string, cfg Config) (*couch.Server, error) {
	s := newSettings(cfg, &replicator.Replication{})
	c := s.requests(e, nil, cfg)
	c.URL = server
	opened, err := couch.OpenServer(c)
	if err != nil {
		return nil, newError(newPeer("source", e).coded(replicator.FaultInvalid, replicator.RequestListDatabases, err.Error()), err)
	}
	return opened, nil
}
