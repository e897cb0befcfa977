package docstore

import (
	"context"
	"time"

	"github.com/google/uuid"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
)

// removeAtOnce is the number of databases or uploads that one transaction removes.
const removeAtOnce = 100

// RemoveDatabases removes the rows of up to 100 deleted databases in one transaction, and reports whether there may be
// more. It cannot race with a write to such a database, because each write reads that its database exists.
func (s *Store) RemoveDatabases(ctx context.Context) (more bool, err error) {
	return kv.TransactValue(ctx, s.kv, func(tx kv.Transaction) (bool, error) {
		trash, err := tx.Snapshot().GetRange(rows.Range(s.keys.trash), kv.RangeOptions{Limit: removeAtOnce}).Slice()
		if err != nil {
			return false, err
		}
		for _, pair := range trash {
			key, err := s.keys.trash.Unpack(pair.Key)
			var instance uuid.UUID
			if err != nil || len(key) != 1 || !rows.As(key[0], &instance) {
				return false, corrupt("the key of a deleted database: %v (%w)", key, err)
			}
			tx.Clear(pair.Key)
			tx.ClearRange(rows.Range(s.keys.instances.Sub(instance)))
		}
		return len(trash) == removeAtOnce, nil
	})
}

// RemoveUploads removes up to 100 uploads that are older than [UploadLife] and that no revision refers to. It uses one
// transaction, and reports whether there may be more. Like the writes that continue an upload or refer to it, it reads
// the upload's row with a conflict: only one of them commits.
func (s *Store) RemoveUploads(ctx context.Context) (more bool, err error) {
	old := rows.Range(s.keys.uploads)
	old.End = s.keys.uploads.Pack(time.Now().Add(-UploadLife).Unix())
	return kv.TransactValue(ctx, s.kv, func(tx kv.Transaction) (bool, error) {
		pairs, err := tx.GetRange(old, kv.RangeOptions{Limit: removeAtOnce}).Slice()
		if err != nil {
			return false, err
		}
		for _, pair := range pairs {
			key, err := s.keys.uploads.Unpack(pair.Key)
			var stamp int64
			var instance uuid.UUID
			var id string
			var attachment []byte
			if err != nil || len(key) != 4 || !rows.As(key[0], &stamp) || !rows.As(key[1], &instance) || !rows.As(key[2], &id) || !rows.As(key[3], &attachment) {
				return false, corrupt("the key of an upload: %v (%w)", key, err)
			}
			tx.Clear(pair.Key)
			tx.ClearRange(rows.Range(newDatabaseKeys(&s.keys, "", instance).chunks.Sub(id, attachment)))
		}
		return len(pairs) == removeAtOnce, nil
	})
}
