package replicator

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// PersistentJobID returns the job id of a document in a replicator database: the
// uuid of that database's instance, a vertical bar, and the document's id.
func PersistentJobID(dbInstanceUUID, docID string) string {
	return dbInstanceUUID + "|" + docID
}

// jobIdentity is what the id of a transient job covers. It covers what the replication id covers,
// except that a filter function counts by its name, not by its text.
type jobIdentity struct {
	User            string           `json:"user"`
	Source          endpointIdentity `json:"source"`
	Target          endpointIdentity `json:"target"`
	DocIDs          []string         `json:"doc_ids,omitzero"`
	Filter          string           `json:"filter,omitempty"`
	QueryParams     json.RawMessage  `json:"query_params,omitempty"`
	Selector        json.RawMessage  `json:"selector,omitempty"`
	WinningRevsOnly bool             `json:"winning_revs_only"`
	Continuous      bool             `json:"continuous"`
	CreateTarget    bool             `json:"create_target"`
}

type endpointIdentity struct {
	URL     string         `json:"url"`
	User    string         `json:"user"`
	Headers []storedHeader `json:"headers"`
}

// JobID returns the job id of a transient replication of that user ("" for the anonymous user):
// 32 lower-case hex digits, half of a SHA-256. Equal replications have equal ids: the order of
// keys, headers and document ids does not count, nor the place of the credentials. Passwords do
// not count, as in replication ids.
func (r *Replication) JobID(user string) string {
	identity := jobIdentity{
		User:            user,
		Source:          r.Source.identity(),
		Target:          r.Target.identity(),
		DocIDs:          r.DocIDs,
		Filter:          r.Filter,
		Selector:        sortedJSON(r.Selector),
		WinningRevsOnly: r.WinningRevsOnly,
		Continuous:      r.Continuous,
		CreateTarget:    r.CreateTarget,
	}
	if r.Filter != "" && string(r.QueryParams) != "{}" {
		identity.QueryParams = sortedJSON(r.QueryParams)
	}
	text, err := json.Marshal(identity)
	if err != nil {
		// Every part was made by this package's own encoder.
		panic(fmt.Sprintf("replicator: encoding a job's identity: %v", err))
	}
	digest := sha256.Sum256(text)
	return hex.EncodeToString(digest[:sha256.Size/2])
}

func (e Endpoint) identity() endpointIdentity {
	return endpointIdentity{URL: e.canonicalURL(), User: e.Username, Headers: storedHeaders(e.canonicalHeaders())}
}

// sortedJSON returns raw with sorted keys. If raw is not JSON, it returns raw as a JSON string,
// so that a replication that was not parsed has an id too.
func sortedJSON(raw json.RawMessage) json.RawMessage {
	sorted, err := canonicalJSON(raw)
	if err != nil {
		sorted, _ = json.Marshal(string(raw))
	}
	return sorted
}
