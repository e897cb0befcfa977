package migrate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"settee/cmd/settee/internal/remote"
)

// Mark is the member of a deleted replication document that has moved. Its value is a mark.
const Mark = "settee_moved"

// mark says where a document has moved.
type mark struct {
	Time string `json:"time"` // RFC 3339
	To   string `json:"to"`   // the URL of the server, without credentials: it is for people
	ID   string `json:"id"`   // of the database there, from its record
}

const (
	pageSize = 500     // rows of a changes feed
	maxBatch = 4 << 20 // bytes of documents in a write, beside the last one
)

// row is a row of a changes feed.
type row struct {
	ID      string `json:"id"`
	Deleted bool   `json:"deleted"`
	Changes []struct {
		Rev string `json:"rev"`
	} `json:"changes"`
}

func (r row) rev() string { return r.Changes[0].Rev } // of the winner

// job reports whether the document is no design document.
func (r row) job() bool { return !strings.HasPrefix(r.ID, "_design/") }

// pages calls visit with the rows of a database's changes feed, up to its end, a page at a time. Rows have all leaves,
// the winner first.
func (s *Server) pages(ctx context.Context, db string, visit func([]row) error) error {
	for since := json.RawMessage(`"0"`); ; {
		var page struct {
			Results []row           `json:"results"`
			LastSeq json.RawMessage `json:"last_seq"`
		}
		text := strings.Trim(string(since), `"`)
		query := fmt.Sprintf("/_changes?style=all_docs&limit=%d&since=%s", pageSize, url.QueryEscape(text))
		if err := s.Get(ctx, remote.Path(db)+query, &page); err != nil {
			return err
		}
		if len(page.Results) == 0 {
			return nil
		}
		for _, r := range page.Results {
			if len(r.Changes) == 0 {
				return fmt.Errorf("%s, database %q, document %q: a change without a revision", s, db, r.ID)
			}
		}
		if err := visit(page.Results); err != nil {
			return err
		}
		since = page.LastSeq
	}
}

// document is a revision of a document.
type document struct {
	id, rev string
	deleted bool
	history []string                   // the positions' ids, the newest first
	body    map[string]json.RawMessage // with the members that begin with an underscore
	size    int                        // bytes
}

// moved returns where the document has moved, or nil if it was not deleted because it moved.
func (d *document) moved() *mark {
	if !d.deleted || d.body[Mark] == nil {
		return nil
	}
	m := new(mark)
	_ = json.Unmarshal(d.body[Mark], m) // another value names no database
	return m
}

// fetch reads revisions of documents, and calls visit with each.
func (s *Server) fetch(ctx context.Context, db string, rows []row, visit func(*document) error) error {
	if len(rows) == 0 {
		return nil
	}
	type ref struct {
		ID  string `json:"id"`
		Rev string `json:"rev"`
	}
	refs := make([]ref, len(rows))
	for i, r := range rows {
		refs[i] = ref{r.ID, r.rev()}
	}
	at := remote.Path(db) + "/_bulk_get?revs=true&attachments=true"
	ctx, cancel := context.WithTimeout(ctx, remote.Timeout)
	defer cancel()
	body, err := s.Send(ctx, http.MethodPost, at, map[string]any{"docs": refs})
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }() // it was read
	if err := eachResult(json.NewDecoder(body), func(raw json.RawMessage) error {
		doc, err := parseDocument(raw)
		if doc == nil || err != nil {
			return err
		}
		return visit(doc)
	}); err != nil {
		return fmt.Errorf("POST %s%s: %w", s.URL(), at, err)
	}
	return nil
}

// fetchGroups is fetch for groups of documents, of maxBatch bytes beside the last document. It leaves out documents for which keep
// returns false. The last group may be empty.
func (s *Server) fetchGroups(
	ctx context.Context, db string, rows []row, keep func(*document) bool, visit func([]*document) error,
) error {
	var group []*document
	size := 0
	err := s.fetch(ctx, db, rows, func(doc *document) error {
		if !keep(doc) {
			return nil
		}
		group, size = append(group, doc), size+doc.size
		if size < maxBatch {
			return nil
		}
		full := group
		group, size = nil, 0
		return visit(full)
	})
	if err != nil {
		return err
	}
	return visit(group)
}

// eachResult calls visit with each element of the member results of an object, which is its first member.
func eachResult(in *json.Decoder, visit func(json.RawMessage) error) error {
	for _, want := range []json.Token{json.Delim('{'), "results", json.Delim('[')} {
		got, err := in.Token()
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("%v where %v is expected", got, want)
		}
	}
	for in.More() {
		var raw json.RawMessage
		if err := in.Decode(&raw); err != nil {
			return err
		}
		if err := visit(raw); err != nil {
			return err
		}
	}
	_, err := in.Token()
	return err
}

// parseDocument parses a result of _bulk_get. It returns nil for a revision that was replaced meanwhile.
func parseDocument(raw json.RawMessage) (*document, error) {
	var result struct {
		ID   string `json:"id"`
		Docs []struct {
			OK json.RawMessage `json:"ok"`
		} `json:"docs"`
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		return nil, err
	}
	if len(result.Docs) != 1 || result.Docs[0].OK == nil {
		return nil, nil
	}
	d := &document{id: result.ID, size: len(raw)}
	var revisions struct{ IDs []string }
	err := json.Unmarshal(result.Docs[0].OK, &d.body)
	if err == nil {
		err = errors.Join(json.Unmarshal(d.body["_rev"], &d.rev), json.Unmarshal(d.body["_revisions"], &revisions))
	}
	if err != nil {
		return nil, fmt.Errorf("document %q: %w", d.id, err)
	}
	d.deleted = string(d.body["_deleted"]) == "true"
	d.history = revisions.IDs
	delete(d.body, "_revisions")
	return d, nil
}

// childOf returns the revision that a document has at the server to which it moves, after the deleted revision rev.
func childOf(rev string) string {
	position, _ := splitRev(rev)
	sum := sha256.Sum256([]byte("settee moves " + rev))
	return strconv.Itoa(position+1) + "-" + hex.EncodeToString(sum[:16])
}

// splitRev returns the position of a revision and its id there.
func splitRev(rev string) (position int, id string) {
	text, id, _ := strings.Cut(rev, "-")
	position, _ = strconv.Atoi(text)
	return position, id
}

// revived returns the child of a document that has moved, as a document for _bulk_docs with new_edits=false.
func (d *document) revived() map[string]json.RawMessage {
	doc := map[string]json.RawMessage{}
	for name, value := range d.body {
		if name != "_deleted" && name != Mark {
			doc[name] = value
		}
	}
	child := childOf(d.rev)
	_, id := splitRev(child)
	doc["_rev"] = textOf(child)
	return withHistory(doc, child, append([]string{id}, d.history...))
}

// copied returns a document as it is, for _bulk_docs with new_edits=false.
func (d *document) copied() map[string]json.RawMessage { return withHistory(d.body, d.rev, d.history) }

// withHistory adds the ids of the revisions of a document that has the revision rev.
func withHistory(doc map[string]json.RawMessage, rev string, ids []string) map[string]json.RawMessage {
	position, _ := splitRev(rev)
	doc["_revisions"] = textOf(map[string]any{"start": position, "ids": ids})
	return doc
}

// textOf returns a value of strings and numbers in JSON.
func textOf(value any) json.RawMessage {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(err) // they have a text
	}
	return raw
}

// refusal is a document that a server did not take.
type refusal struct{ ID, Error, Reason string }

// batch collects documents, and writes them when they are many.
type batch struct {
	to       *Server
	db       string
	newEdits bool
	docs     []map[string]json.RawMessage
	size     int
	refused  func(refusal) error // is called for each document that the server did not take
}

func (b *batch) add(ctx context.Context, doc map[string]json.RawMessage, size int) error {
	b.docs, b.size = append(b.docs, doc), b.size+size
	if b.size < maxBatch {
		return nil
	}
	return b.flush(ctx)
}

// flush writes the documents.
func (b *batch) flush(ctx context.Context) error {
	docs := b.docs
	b.docs, b.size = nil, 0
	return b.write(ctx, docs)
}

// write writes documents. If the server refuses them together, it gets them in two halves, until it is clear which of
// them it refuses.
func (b *batch) write(ctx context.Context, docs []map[string]json.RawMessage) error {
	if len(docs) == 0 {
		return nil
	}
	var results []refusal
	body := map[string]any{"docs": docs, "new_edits": b.newEdits}
	err := b.to.Ask(ctx, http.MethodPost, remote.Path(b.db)+"/_bulk_docs", body, &results)
	switch e, _ := errors.AsType[*remote.StatusError](err); {
	case aboutBody(err) && len(docs) == 1:
		var id string
		_ = json.Unmarshal(docs[0]["_id"], &id) // a string
		results = []refusal{{id, e.Code, e.Reason}}
	case aboutBody(err):
		half := len(docs) / 2
		if err := b.write(ctx, docs[:half]); err != nil {
			return err
		}
		return b.write(ctx, docs[half:])
	case err != nil:
		return err
	}
	for _, r := range results {
		if r.Error != "" {
			if err := b.refused(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// missing returns the revisions, by document id, that a server does not have. A database that does not exist has none.
func (s *Server) missing(ctx context.Context, db string, revs map[string]string) (map[string]bool, error) {
	if len(revs) == 0 {
		return nil, nil
	}
	ask := map[string][]string{}
	for id, rev := range revs {
		ask[id] = []string{rev}
	}
	var answer map[string]struct {
		Missing []string `json:"missing"`
	}
	missing := map[string]bool{}
	err := s.Ask(ctx, http.MethodPost, remote.Path(db)+"/_revs_diff", ask, &answer)
	if remote.IsStatus(err, http.StatusNotFound) {
		for id := range revs {
			missing[id] = true
		}
		return missing, nil
	}
	if err != nil {
		return nil, err
	}
	for id, a := range answer {
		missing[id] = len(a.Missing) > 0
	}
	return missing, nil
}

// presence says whether a document exists.
type presence int

const (
	absent presence = iota
	deleted
	live
)

// look returns which documents a server has. A database that does not exist has none.
func (s *Server) look(ctx context.Context, db string, ids []string) (map[string]presence, error) {
	found := map[string]presence{}
	if len(ids) == 0 {
		return found, nil
	}
	var answer struct {
		Rows []struct {
			Key   string
			Value struct {
				Rev     string
				Deleted bool
			}
		}
	}
	err := s.Ask(ctx, http.MethodPost, remote.Path(db)+"/_all_docs", map[string]any{"keys": ids}, &answer)
	if remote.IsStatus(err, http.StatusNotFound) {
		return found, nil
	}
	for _, r := range answer.Rows {
		switch {
		case r.Value.Rev == "":
		case r.Value.Deleted:
			found[r.Key] = deleted
		default:
			found[r.Key] = live
		}
	}
	return found, err
}
