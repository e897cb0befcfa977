package replicator

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
)

// PersistentJobID returns the job id of a document in a replicator database: the
// uuid of that database's instance, a vertical bar, and the document's id.
func PersistentJobID(dbInstanceUUID, docID string) string {
	return dbInstanceUUID + "|" + docID
}

// childMark is in the ids of the jobs that a mirror has made, after the database's instance and a bar if the mirror has a
// document. No document has an id that begins with an underscore and this mark.
const childMark = "_mirror."

// ChildIDSize is how many bytes the id of a job that a mirror has made is longer than the mirror's.
const ChildIDSize = len(childMark) + 32 + 1

// ChildJobID returns the id of the job that the mirror with a job id has for a database: the mirror's id with a mark and 32
// lower-case hex digits, half of a SHA-256 of the database's name, before the part after its first bar.
func ChildJobID(mirrorID, database string) string {
	digest := sha256.Sum256([]byte(database))
	mark := childMark + hex.EncodeToString(digest[:sha256.Size/2]) + "|"
	if instance, docID, persistent := strings.Cut(mirrorID, "|"); persistent {
		return instance + "|" + mark + docID
	}
	return mark + mirrorID
}

// MirrorOf returns the id of the mirror that has made the job with an id. ok is false if no mirror has made it.
func MirrorOf(jobID string) (mirrorID string, ok bool) {
	instance, rest := "", jobID
	if !strings.HasPrefix(rest, childMark) {
		if instance, rest, ok = strings.Cut(jobID, "|"); !ok || !strings.HasPrefix(rest, childMark) {
			return "", false
		}
		instance += "|"
	}
	if len(rest) < ChildIDSize || rest[ChildIDSize-1] != '|' {
		return "", false
	}
	return instance + rest[ChildIDSize:], true
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
	SinceSeq        json.RawMessage  `json:"since_seq,omitempty"`
	WinningRevsOnly bool             `json:"winning_revs_only"`
	Continuous      bool             `json:"continuous"`
	CreateTarget    bool             `json:"create_target"`
	Mirror          *Mirror          `json:"mirror,omitempty"`
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
		SinceSeq:        sortedJSON(r.SinceSeq),
		WinningRevsOnly: r.WinningRevsOnly,
		Continuous:      r.Continuous,
		CreateTarget:    r.CreateTarget,
		Mirror:          r.Mirror,
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
