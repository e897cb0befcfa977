package databases

import (
	"context"
	"errors"
	"net/http"

	"settee/frontend/internal/web"
	"settee/pkg/docstore"
)

// localDocs are the ids of local documents. 0 is the character after the slash.
var localDocs = namespace{localPrefix, "_local0"}

// LocalDocs answers GET and POST /{db}/_local_docs.
func (e *Endpoints) LocalDocs(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	return e.list(w, r, db, localDocs)
}

// LocalDocsQueries answers POST /{db}/_local_docs/queries.
func (e *Endpoints) LocalDocsQueries(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	return e.listQueries(w, r, db, localDocs)
}

// rangedLocal is ranged for local documents.
func (l *listing) rangedLocal(ctx context.Context, yield func([]byte, docstore.DocRow) error) error {
	if l.none || l.limit == 0 {
		return nil
	}
	n := 0
	for local, err := range l.db.LocalDocs(ctx, docstore.LocalDocsOptions{
		Start: l.within.Start, End: l.within.End, ExclusiveEnd: l.within.ExclusiveEnd, Descending: l.within.Descending,
	}) {
		if err != nil {
			return err
		}
		if n++; n <= l.skip {
			continue
		}
		if err := yield(nil, localRow(local)); err != nil {
			return err
		}
		if l.limit > 0 && n == l.skip+l.limit {
			return nil
		}
	}
	return nil
}

// lookUpLocal is lookUp for local documents.
func (l *listing) lookUpLocal(ctx context.Context, keys [][]byte, ids []string, yield func([]byte, docstore.DocRow) error) error {
	for i, id := range ids {
		if err := l.yieldLocal(ctx, keys[i], id, yield); err != nil {
			return err
		}
	}
	return nil
}

func (l *listing) yieldLocal(ctx context.Context, key []byte, id string, yield func([]byte, docstore.DocRow) error) error {
	ctx, cancel := context.WithTimeout(ctx, web.StoreTimeout)
	defer cancel()
	row := docstore.DocRow{ID: id}
	local, err := l.db.GetLocal(ctx, id)
	switch {
	case err == nil:
		row = localRow(local)
	case !errors.Is(err, docstore.ErrNotFound) && !errors.Is(err, docstore.ErrDocumentID):
		return err
	}
	return yield(key, row)
}

func localRow(local *docstore.LocalDocument) docstore.DocRow {
	doc := documentOf(local)
	return docstore.DocRow{ID: doc.ID, Rev: doc.Rev, Document: doc}
}
