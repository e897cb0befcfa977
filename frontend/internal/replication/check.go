package replication

import (
	"errors"
	"net/http"

	"settee/frontend/internal/web"
	"settee/pkg/config"
	"settee/replicator"
)

// Check answers POST _scheduler/check, which CouchDB does not have: whether a replication document is valid. With
// ?transient=true the body is one for _replicate. Nothing is written, and no endpoint is asked.
func (e *Endpoints) Check(w http.ResponseWriter, r *http.Request) error {
	q := web.NewQuery(r)
	transient := q.Flag("transient", false)
	if q.Err != nil {
		return q.Err
	}
	replication, paused, err := e.readReplication(w, r, transient)
	if err != nil {
		return err
	}
	warnings, id := []string{}, ""
	if replication != nil {
		warnings = append(warnings, replication.Warnings()...)
		if paused {
			warnings = append(warnings, "`paused` is true: it does not run until that is taken out")
		}
		if id, err = e.Jobs.Requests.ReplicationID(replication); err != nil {
			return err
		}
	}
	return web.Respond(w, r, http.StatusOK, struct {
		OK       bool     `json:"ok"`
		ID       *string  `json:"replication_id"`
		Warnings []string `json:"warnings"`
	}{true, orNull(id), warnings})
}

// readReplication reads what a document, or with transient a body of _replicate, asks for. It is nil if that cancels.
// paused reports that the document is paused.
func (e *Endpoints) readReplication(
	w http.ResponseWriter, r *http.Request, transient bool,
) (_ *replicator.Replication, paused bool, _ error) {
	if transient {
		request, err := e.readRequest(w, r)
		if err != nil {
			return nil, false, err
		}
		return request.Replication, false, nil
	}
	text, err := e.readText(w, r)
	if err != nil {
		return nil, false, err
	}
	doc, err := replicator.ParseText("", text, e.parseOptions())
	if err != nil {
		return nil, false, parseFailure(err)
	}
	return doc.Replication, doc.Paused, nil
}

// parseFailure returns the failure of a request whose body does not define a replication.
func parseFailure(err error) error {
	var refused *replicator.ParseError
	if errors.As(err, &refused) {
		return web.BadRequest(refused.Reason)
	}
	return err
}

func (e *Endpoints) parseOptions() replicator.ParseOptions {
	cfg := e.Settings.Current()
	return replicator.ParseOptions{
		EndpointProtocols: config.ValidEndpointProtocols.Get(cfg),
		ProxyProtocols:    config.ValidProxyProtocols.Get(cfg),
	}
}
