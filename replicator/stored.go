package replicator

import "encoding/json"

// The types of this file are the types of the same names with a JSON form that has all their
// fields, credentials included. It is for storing and comparing. The plain types can be read from
// it.

type storedHeader Header

type storedAuth Auth

type storedEndpoint struct {
	plainEndpoint
	Auth    *storedAuth    `json:"auth,omitempty"`
	Headers []storedHeader `json:"headers,omitempty"`
}

type plainEndpoint Endpoint

type storedReplication struct {
	plainReplication
	Source storedEndpoint `json:"source"`
	Target storedEndpoint `json:"target"`
}

type plainReplication Replication

func (e Endpoint) stored() storedEndpoint {
	return storedEndpoint{plainEndpoint(e), (*storedAuth)(e.Auth), storedHeaders(e.Headers)}
}

func storedHeaders(headers []Header) []storedHeader {
	if headers == nil {
		return nil
	}
	stored := make([]storedHeader, len(headers))
	for i, h := range headers {
		stored[i] = storedHeader(h)
	}
	return stored
}

func (r *Replication) stored() *storedReplication {
	if r == nil {
		return nil
	}
	return &storedReplication{plainReplication(*r), r.Source.stored(), r.Target.stored()}
}

// Stored returns the JSON form that the job layer stores. It contains the credentials and must
// not be used for anything else. Times are in UTC and whole seconds. json.Unmarshal reads it into
// a JobArgs.
func (a *JobArgs) Stored() ([]byte, error) {
	type plain JobArgs
	args := plain(*a)
	args.Added = wholeSeconds(a.Added)
	return json.Marshal(struct {
		Replication *storedReplication `json:"replication"`
		plain
	}{a.Replication.stored(), args})
}
