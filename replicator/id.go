package replicator

import (
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// ID is a replication id of version 4.
type ID struct {
	// Base is 32 lower-case hex digits. It names the checkpoints.
	Base string
	// Continuous and CreateTarget are those of the replication. Runs with and without them share
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

// ID returns the version 4 id that CouchDB 3.x computes for this replication on a server with
// that uuid ([couchdb] uuid). filterCode is the text of the filter function as stored at the
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
	terms := append([]any{serverUUID, source, target}, filter...)
	if r.WinningRevsOnly {
		terms = append(terms, "winning_revs_only")
	}
	if r.Mirror != nil { // CouchDB has no mirrors
		text, err := json.Marshal(r.Mirror)
		if err != nil {
			return ID{}, fmt.Errorf("computing a replication id: mirror: %w", err)
		}
		terms = append(terms, "mirror", string(text))
	}
	digest := md5.Sum(encodeTerm(terms))
	return ID{
		Base:         hex.EncodeToString(digest[:]),
		Continuous:   r.Continuous,
		CreateTarget: r.CreateTarget,
	}, nil
}

// filterTerms returns the terms of the id for doc_ids, selector or filter.
func (r *Replication) filterTerms(filterCode string) ([]any, error) {
	switch {
	case r.DocIDs != nil:
		ids := make([]any, len(r.DocIDs))
		for i, id := range r.DocIDs {
			ids[i] = id
		}
		return []any{ids}, nil
	case r.Selector != nil:
		selector, err := decodeObjectJSON(r.Selector)
		if err != nil {
			return nil, fmt.Errorf("selector: %w", err)
		}
		normal, err := normalSelector(selector)
		if err != nil {
			return nil, fmt.Errorf("selector: %w", err)
		}
		return []any{normal}, nil
	case r.Filter != "":
		params, err := decodeObjectJSON(r.QueryParams)
		if err != nil {
			return nil, fmt.Errorf("query_params: %w", err)
		}
		if r.NeedsFilterCode() {
			return []any{trimFilterCode(filterCode), params}, nil
		}
		return []any{r.Filter, params}, nil
	}
	return nil, nil
}

// decodeObjectJSON decodes a JSON object; nil is an empty one.
func decodeObjectJSON(raw json.RawMessage) (object, error) {
	if raw == nil {
		return object{}, nil
	}
	value, err := decodeJSON(raw)
	if err != nil {
		return nil, err
	}
	decoded, ok := value.(object)
	if !ok {
		return nil, errors.New("not a JSON object")
	}
	return decoded, nil
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
