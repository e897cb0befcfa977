package couch

import (
	"context"
	"errors"
	"fmt"
	"io"

	"settee/pkg/jsontext"
)

// Winner is the winning revision of a document.
type Winner struct {
	Rev     string // empty if the database does not have the document
	Deleted bool   // then all leaves are deleted
}

// Winners returns the winning revision of the document of each id. It fails with [ErrMalformed] if the answer leaves
// out a document, and with a [*DocError] if the server cannot read one.
func (d *Database) Winners(ctx context.Context, ids []string) ([]Winner, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var winners []Winner
	err := d.post(ctx, "_all_docs", bytesBody(appendStrings([]byte(`{"keys":`), ids, '}')), func(p *response) (err error) {
		winners, err = readWinners(p, ids)
		if one, ok := errors.AsType[*DocError](err); ok {
			err = one.redacted(p.hidden())
		}
		return err
	})
	return winners, err
}

// readWinners reads {"rows": [{"key": id, "value": {"rev": ..., "deleted": true}}, {"key": id, "error": "not_found"}]}.
func readWinners(r io.Reader, ids []string) ([]Winner, error) {
	j := newAnswerReader(&bounded{r: r, left: maxRevsDiff}, jsontext.Window)
	defer j.Free()
	found := make(map[string]*Winner, len(ids)) // nil until there is an answer
	for _, id := range ids {
		found[id] = nil
	}
	if err := eachWinner(j, func(id string, w Winner) {
		if _, asked := found[id]; asked {
			found[id] = &w
		}
	}); err != nil {
		return nil, fmt.Errorf("reading the winning revisions: %w", err)
	}
	winners := make([]Winner, len(ids))
	for i, id := range ids {
		if found[id] == nil {
			return nil, fmt.Errorf("reading the winning revisions: %w: document %q was left out", ErrMalformed, shortened(id))
		}
		winners[i] = *found[id]
	}
	return winners, nil
}

func eachWinner(j answerReader, visit func(id string, w Winner)) error {
	if err := j.openArray("rows", func(string) error { return j.skip() }); err != nil {
		return err
	}
	for {
		ok, err := j.Element()
		if err != nil {
			return err
		}
		if !ok {
			return j.skipRest()
		}
		raw, err := j.Value(maxRow)
		if err != nil {
			return err
		}
		id, winner, err := parseWinner(raw)
		if err != nil {
			return err
		}
		visit(id, winner)
	}
}

// parseWinner parses a row, which is valid JSON.
func parseWinner(raw []byte) (id string, w Winner, err error) {
	if !isObject(raw) {
		return "", w, fmt.Errorf("%w: a row that is not an object", ErrMalformed)
	}
	var failure DocError
	keyed := false
	for m := range jsontext.Members(raw) {
		switch value := raw[m.Value:m.End]; string(m.Key) {
		case "key":
			keyed = true
			id, err = unquote(value)
		case "value":
			w, err = parseWinnerValue(value)
		case "error":
			failure.Code = words(value)
		case "reason":
			failure.Reason = words(value)
		}
		if err != nil {
			return "", w, fmt.Errorf("row of %q, member %s: %w", shortened(id), m.Key, err)
		}
	}
	switch {
	case !keyed:
		return "", w, fmt.Errorf("%w: a row without a key: %w", ErrMalformed, quoted(string(raw)))
	case failure.Code == "not_found":
		return id, Winner{}, nil
	case failure.Code != "":
		failure.ID = id
		return id, w, &failure
	case w.Rev == "":
		return id, w, fmt.Errorf("%w: the row of %q has no revision", ErrMalformed, shortened(id))
	}
	return id, w, nil
}

func parseWinnerValue(raw []byte) (w Winner, err error) {
	if !isObject(raw) {
		return w, fmt.Errorf("%w: not an object", ErrMalformed)
	}
	for m := range jsontext.Members(raw) {
		switch value := raw[m.Value:m.End]; string(m.Key) {
		case "rev":
			w.Rev, err = unquote(value)
		case "deleted":
			w.Deleted, err = flag(value)
		}
		if err != nil {
			return w, err
		}
	}
	return w, nil
}
