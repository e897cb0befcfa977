package docstore

import (
	"context"
	"time"

	"github.com/google/uuid"

	"settee/fdbjobs"
	"settee/pkg/kv"
)

const (
	// upkeepEvery is how long the tasks rest.
	upkeepEvery = 5 * time.Minute
	// removeAtOnce is how many databases or uploads one transaction removes.
	removeAtOnce = 100
)

// Tasks returns what has to be tidied up now and then: what is left of deleted databases,
// and uploads that no revision refers to within [UploadLife].
func (s *Store) Tasks() []fdbjobs.Task {
	task := func(name string, some func(ctx context.Context) (more bool, err error)) fdbjobs.Task {
		return fdbjobs.Task{Name: name, Every: upkeepEvery, Run: func(ctx context.Context, _ *fdbjobs.Held) error {
			for {
				if more, err := some(ctx); err != nil || !more {
					return err
				}
			}
		}}
	}
	return []fdbjobs.Task{
		task("deleted databases", s.removeDatabases),
		task("unused uploads", s.removeUploads),
	}
}

// removeDatabases clears some deleted databases. No write of theirs can come after: each
// reads that its database exists.
func (s *Store) removeDatabases(ctx context.Context) (more bool, err error) {
	return kv.TransactValue(ctx, s.kv, func(tx kv.Transaction) (bool, error) {
		trash, err := tx.Snapshot().GetRange(keyRange(s.keys.trash), kv.RangeOptions{Limit: removeAtOnce}).Slice()
		if err != nil {
			return false, err
		}
		for _, pair := range trash {
			key, err := s.keys.trash.Unpack(pair.Key)
			var instance uuid.UUID
			if err != nil || len(key) != 1 || !as(key[0], &instance) {
				return false, corrupt("the key of a deleted database: %v (%w)", key, err)
			}
			tx.Clear(pair.Key)
			tx.ClearRange(keyRange(s.keys.instances.Sub(instance)))
		}
		return len(trash) == removeAtOnce, nil
	})
}

// removeUploads removes some uploads that are old. It reads their rows with a conflict, as
// whoever goes on with an upload or refers to it does: one of them is first.
func (s *Store) removeUploads(ctx context.Context) (more bool, err error) {
	old := keyRange(s.keys.uploads)
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
			if err != nil || len(key) != 4 || !as(key[0], &stamp) || !as(key[1], &instance) || !as(key[2], &id) || !as(key[3], &attachment) {
				return false, corrupt("the key of an upload: %v (%w)", key, err)
			}
			tx.Clear(pair.Key)
			tx.ClearRange(keyRange(newDatabaseKeys(&s.keys, "", instance).chunks.Sub(id, attachment)))
		}
		return len(pairs) == removeAtOnce, nil
	})
}
