package couch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"

	"settee/pkg/jsontext"
)

// GetLocal reads a local document by its id, without _local/. [ErrNotFound] means that it does not exist;
// [ErrNoDatabase] matches too if the database does not exist.
func (d *Database) GetLocal(ctx context.Context, id string) (json.RawMessage, error) {
	var doc json.RawMessage
	err := d.fetch(ctx, &request{
		method: http.MethodGet, path: docPath(localPrefix + id),
	}, maxLocalDoc, func(body []byte) (err error) {
		doc, err = wholeObject(body)
		return err
	})
	return doc, err
}

// PutLocal writes a local document by its id, without _local/, and returns its new revision. body is a JSON object
// whose _rev, if any, is the revision that it replaces. [ErrConflict] means that another writer came first.
//
// A request without an answer may have been carried out. If its repetition meets a conflict, PutLocal reads the
// document, and succeeds if its content is body.
func (d *Database) PutLocal(ctx context.Context, id string, body json.RawMessage) (string, error) {
	var written struct {
		Rev string `json:"rev"`
	}
	r := &request{
		method: http.MethodPut, path: docPath(localPrefix + id),
		content: jsonType, body: bytesBody(body),
	}
	err := d.fetch(ctx, r, maxInfo, func(answer []byte) error {
		if err := json.Unmarshal(answer, &written); err != nil || written.Rev == "" {
			return fmt.Errorf("%w: the answer to a write has no revision", ErrMalformed)
		}
		return nil
	})
	if r.tries < 2 || !errors.Is(err, ErrConflict) {
		return written.Rev, err
	}
	stored, readErr := d.GetLocal(ctx, id)
	if readErr != nil {
		return "", err
	}
	if rev, same := sameContent(stored, body); same {
		return rev, nil
	}
	return "", err
}

// sameContent reports whether two documents are equal except for _id, _rev and the spelling of numbers and strings, and
// returns the revision of the first.
func sameContent(stored, written json.RawMessage) (string, bool) {
	var a, b map[string]any
	if json.Unmarshal(stored, &a) != nil || json.Unmarshal(written, &b) != nil {
		return "", false
	}
	rev, _ := a["_rev"].(string)
	for _, name := range []string{"_id", "_rev"} {
		delete(a, name)
		delete(b, name)
	}
	return rev, rev != "" && reflect.DeepEqual(a, b)
}

// wholeObject checks that body is one JSON object in valid UTF-8.
func wholeObject(body []byte) (json.RawMessage, error) {
	body = bytes.TrimSpace(body)
	if !isObject(body) || !jsontext.Valid(body) {
		return nil, fmt.Errorf("%w: a document that is not a JSON object", ErrMalformed)
	}
	return body, nil
}
