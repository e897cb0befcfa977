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
	// Base is 32 lower-case hex digits. Checkpoints are named after it.
	Base string
	// Continuous and CreateTarget are those of the replication. Runs with and
	// without them share their checkpoints.
	Continuous   bool
	CreateTarget bool
}

const (
	continuousSuffix   = "+continuous"
	createTargetSuffix = "+create_target"
)

// ErrInvalidID is what ParseID returns for a text that no ID has.
var ErrInvalidID = errors.New("not a replication id")

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

// ParseID parses what ID.String returns, or returns an error that wraps
// ErrInvalidID.
func ParseID(text string) (ID, error) {
	var id ID
	rest, found := strings.CutSuffix(text, createTargetSuffix)
	id.CreateTarget = found
	id.Base, id.Continuous = strings.CutSuffix(rest, continuousSuffix)
	if !isBaseID(id.Base) {
		return ID{}, fmt.Errorf("parsing %q: %w", text, ErrInvalidID)
	}
	return id, nil
}

func isBaseID(text string) bool {
	digest, err := hex.DecodeString(text)
	return err == nil && len(digest) == md5.Size && text == strings.ToLower(text)
}

// ID returns the replication id that CouchDB 3.x computes, as version 4, for this
// replication on a server with that uuid ([couchdb] uuid). filterCode is the text
// of the filter function as it is stored at the source; it counts only if
// NeedsFilterCode. An error means that the replication is not one that parsing
// gave.
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
	digest := md5.Sum(encodeTerm(terms))
	return ID{
		Base:         hex.EncodeToString(digest[:]),
		Continuous:   r.Continuous,
		CreateTarget: r.CreateTarget,
	}, nil
}

// filterTerms returns what the id covers of doc_ids, selector or filter.
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

// decodeObjectJSON decodes a JSON object; no text at all is an empty one.
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

// trimFilterCode takes away what CouchDB takes away before it hashes a filter
// function: the spaces around a text of one line. A text of several lines stays
// as it is, and so does one line feed at the end.
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
