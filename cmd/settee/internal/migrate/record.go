package migrate

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"

	"settee/cmd/settee/internal/remote"
)

// recordName is the local document of a replicator database that has its record.
const recordName = "_local/import-couchdb"

// record is what moves note of a database, in the database itself.
type record struct {
	Rev string `json:"_rev,omitempty"`
	// ID is random. It tells this database from a database of the same name in another store, which may have the same
	// server uuid. It is empty if no document has ever moved to the database.
	ID    string `json:"id"`
	Pause *pause `json:"pause,omitempty"` // of settee only
}

func recordPath(db string) string { return remote.Path(db) + "/" + recordName }

// readRecord returns the record of a database. It is empty if there is none.
func (s *Server) readRecord(ctx context.Context, db string) (r record, err error) {
	err = s.Get(ctx, recordPath(db), &r)
	if remote.IsStatus(err, http.StatusNotFound) {
		err = nil
	}
	return r, err
}

// writeRecord writes a record that was read and changed.
func (s *Server) writeRecord(ctx context.Context, db string, r record) error {
	return s.Ask(ctx, http.MethodPut, recordPath(db), r, nil)
}

// identify returns the id of a database, which gets one if it has none.
func (s *Server) identify(ctx context.Context, db string) (string, error) {
	for {
		r, err := s.readRecord(ctx, db)
		if err != nil || r.ID != "" {
			return r.ID, err
		}
		var id [16]byte
		_, _ = rand.Read(id[:]) // never fails (crypto/rand.Read)
		r.ID = hex.EncodeToString(id[:])
		if err := s.writeRecord(ctx, db, r); err != nil && !remote.IsStatus(err, http.StatusConflict) { // another call was first
			return "", err
		}
	}
}
