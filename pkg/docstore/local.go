package docstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"settee/pkg/docjson"
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
)

// LocalDocument is a document that is not replicated and appears in no feed or listing. It has no history: its revision
// is 0-N, where N counts its writes.
type LocalDocument struct {
	ID   string
	Rev  string
	Body []byte `json:"-"` // a JSON object, as it was written
}

// localPrefix is the prefix of the ids of local documents.
const localPrefix = "_local/"

func checkLocalID(id string) error {
	name, found := strings.CutPrefix(id, localPrefix)
	switch {
	case !found || name == "":
		return inDocument(id, fmt.Errorf("%w: that of a local document is _local/ and a name", ErrDocumentID))
	case len(id) > MaxIDSize:
		return inDocument(id, fmt.Errorf("%w: it has %d bytes; the most is %d", ErrDocumentID, len(id), MaxIDSize))
	case !utf8.ValidString(id):
		return inDocument(id, fmt.Errorf("%w: it is not UTF-8", ErrDocumentID))
	}
	return nil
}

// GetLocal reads a local document. The errors are [ErrNotFound] and [ErrDocumentID].
func (db *Database) GetLocal(ctx context.Context, id string) (*LocalDocument, error) {
	if err := checkLocalID(id); err != nil {
		return nil, err
	}
	return kv.TransactValue(ctx, db.store.kv, func(tx kv.Transaction) (*LocalDocument, error) {
		exists, chunks := db.exists(tx.Snapshot()), readAll(tx.Snapshot(), db.keys.local.Sub(id))
		if err := exists.await(); err != nil {
			return nil, err
		}
		value, err := rows.JoinChunks(chunks)
		if err == nil && value == nil {
			err = ErrNotFound
		}
		if err != nil {
			return nil, inDocument(id, err)
		}
		return db.openLocal(id, value)
	})
}

// openLocal returns the document of a stored value.
func (db *Database) openLocal(id string, value []byte) (*LocalDocument, error) {
	n, stored, err := splitLocal(id, value)
	if err != nil {
		return nil, err
	}
	body, err := db.openBody(stored, place{id: id})
	if err != nil {
		return nil, inDocument(id, err)
	}
	return &LocalDocument{ID: id, Rev: localRev(n), Body: body}, nil
}

func localRev(n uint64) string { return "0-" + strconv.FormatUint(n, 10) }

// PutLocal writes a local document and returns its revision: 0-1 if rev is empty, otherwise the one after rev. As in
// CouchDB 3.5, rev is not compared with the stored revision. The errors are [ErrDocumentID], [ErrRevision] and
// [ErrTooLarge].
func (db *Database) PutLocal(ctx context.Context, id, rev string, body docjson.Body) (string, error) {
	if err := checkLocalID(id); err != nil {
		return "", err
	}
	n, err := nextLocalRev(rev)
	if err == nil {
		err = checkSize(body)
	}
	if err != nil {
		return "", inDocument(id, err)
	}
	value := joinLocal(n, db.sealBody(body.Bytes(), place{id: id}))
	space := db.keys.local.Sub(id)
	err = db.store.kv.Transact(ctx, func(tx kv.Transaction) error {
		if err := db.exists(tx).await(); err != nil {
			return err
		}
		tx.ClearRange(rows.Range(space))
		rows.SetChunks(tx, space, value)
		return nil
	})
	if err != nil {
		return "", inDocument(id, err)
	}
	return localRev(n), nil
}

func nextLocalRev(rev string) (uint64, error) {
	if rev == "" {
		return 1, nil
	}
	digits, found := strings.CutPrefix(rev, "0-")
	n, err := strconv.ParseUint(digits, 10, 63)
	if !found || err != nil {
		return 0, fmt.Errorf("%w: %s; that of a local document is 0-N", ErrRevision, quote(rev))
	}
	return n + 1, nil
}

// DeleteLocal removes a local document. The errors are [ErrNotFound] and [ErrDocumentID].
func (db *Database) DeleteLocal(ctx context.Context, id string) error {
	if err := checkLocalID(id); err != nil {
		return err
	}
	space := db.keys.local.Sub(id)
	began := false
	err := db.store.kv.Transact(ctx, func(tx kv.Transaction) error {
		exists, first := db.exists(tx), tx.Get(space.Pack(0))
		if err := exists.await(); err != nil {
			return err
		}
		value, err := first.Await()
		if err != nil {
			return err
		}
		if value == nil {
			if began {
				return nil // removed by an earlier run whose result was unknown, or by another call
			}
			return ErrNotFound
		}
		began = true
		tx.ClearRange(rows.Range(space))
		return nil
	})
	if err != nil {
		return inDocument(id, err)
	}
	return nil
}
