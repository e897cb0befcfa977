package replicator

import (
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"settee/pkg/erlterm"
	"settee/pkg/jsontext"
	"settee/pkg/selector"
)

// ID is a replication id of version 4.
type ID struct {
	// Base is 32 lower-case hex digits. It names the checkpoints.
	Base string
	// Continuous and CreateTarget have the replication's values. Runs with and without them share
	// checkpoints.
	Continuous   bool
	CreateTarget bool
}

const (
	continuousSuffix   = "+continuous"
	createTargetSuffix = "+create_target"
)

// String returns the base, then "+continuous" and "+create_target" as they apply.
func (id ID) String() string {
	text := id.Base
	if id.Continuous {
		text += continuousSuffix
	}
	if id.CreateTarget {
		text += createTargetSuffix
	}
	return text
}

// ID returns the version 4 id that CouchDB 3.5.2 and later compute for this replication on a server
// with that uuid ([couchdb] uuid). Earlier ones leave out since_seq. filterCode is the text of the filter function as stored at the
// source; it counts only if NeedsFilterCode is true. ID fails only for a replication that parsing
// did not return.
func (r *Replication) ID(serverUUID, filterCode string) (ID, error) {
	source, err := r.Source.idTerm()
	if err != nil {
		return ID{}, fmt.Errorf("computing a replication id: source: %w", err)
	}
	target, err := r.Target.idTerm()
	if err != nil {
		return ID{}, fmt.Errorf("computing a replication id: target: %w", err)
	}
	filter, err := r.filterTerms(filterCode)
	if err != nil {
		return ID{}, fmt.Errorf("computing a replication id: %w", err)
	}
	terms := append([][]byte{erlterm.AppendBinary(nil, serverUUID), source, target}, filter...)
	if r.WinningRevsOnly {
		terms = append(terms, erlterm.AppendBinary(nil, "winning_revs_only"))
	}
	if r.Mirror != nil { // CouchDB has no mirrors
		m := *r.Mirror
		m.Verify = "" // changes nothing of the result
		text, err := json.Marshal(m)
		if err != nil {
			return ID{}, fmt.Errorf("computing a replication id: mirror: %w", err)
		}
		terms = append(terms, erlterm.AppendBinary(nil, "mirror"), erlterm.AppendBinary(nil, text))
	}
	if r.SinceSeq != nil {
		terms = append(terms, erlterm.AppendJSON(nil, r.SinceSeq))
	}
	digest := md5.Sum(appendList([]byte{erlterm.Version}, terms))
	return ID{
		Base:         hex.EncodeToString(digest[:]),
		Continuous:   r.Continuous,
		CreateTarget: r.CreateTarget,
	}, nil
}

// appendList appends a list of encoded terms that are not all integers. Erlang encodes lists of small integers otherwise.
func appendList(b []byte, terms [][]byte) []byte {
	if len(terms) == 0 {
		return erlterm.AppendNil(b)
	}
	b = erlterm.AppendList(b, len(terms))
	for _, term := range terms {
		b = append(b, term...)
	}
	return erlterm.AppendNil(b)
}

// filterTerms returns the terms of the id for doc_ids, selector or filter.
func (r *Replication) filterTerms(filterCode string) ([][]byte, error) {
	switch {
	case r.DocIDs != nil:
		ids := make([][]byte, len(r.DocIDs))
		for i, id := range r.DocIDs {
			ids[i] = erlterm.AppendBinary(nil, id)
		}
		return [][]byte{appendList(nil, ids)}, nil
	case r.Selector != nil:
		term, err := selectorTerm(r.Selector)
		if err != nil {
			return nil, fmt.Errorf("selector: %w", err)
		}
		return [][]byte{term}, nil
	case r.Filter != "":
		params, err := objectTerm(r.QueryParams)
		if err != nil {
			return nil, fmt.Errorf("query_params: %w", err)
		}
		text := r.Filter
		if r.NeedsFilterCode() {
			text = trimFilterCode(filterCode)
		}
		return [][]byte{erlterm.AppendBinary(nil, text), params}, nil
	}
	return nil, nil
}

// selectorTerm returns the term of a selector's normal form, with the keys of every object sorted.
func selectorTerm(raw json.RawMessage) ([]byte, error) {
	if err := checkNumbers(raw); err != nil {
		return nil, err
	}
	normal, err := selector.Normal(raw)
	if err != nil {
		return nil, err
	}
	sorted, err := canonicalJSON(normal)
	if err != nil {
		return nil, err
	}
	return erlterm.AppendJSON(nil, sorted), nil
}

// objectTerm returns the term of a JSON object. A nil text means an empty object.
func objectTerm(raw json.RawMessage) ([]byte, error) {
	if raw == nil {
		raw = json.RawMessage("{}")
	}
	if err := checkNumbers(raw); err != nil {
		return nil, err
	}
	if !jsontext.IsObject(raw) {
		return nil, errors.New("not a JSON object")
	}
	return erlterm.AppendJSON(nil, raw), nil
}

// trimFilterCode trims a filter function as CouchDB does before it hashes it. It removes the
// spaces around a text of one line and keeps one line feed at the end. A text of several lines
// stays as it is.
func trimFilterCode(code string) string {
	line, ended := strings.CutSuffix(code, "\n")
	if strings.Contains(line, "\n") {
		return code
	}
	line = strings.Trim(line, " ")
	if ended {
		line += "\n"
	}
	return line
}
