package jobs

import (
	"context"

	"settee/pkg/kv"
	"settee/replicator"
)

// WakeLost makes parked jobs due whose targets have lost what they had, and notes in their rows since when: each row has Lost.
// Jobs whose rows have another Target by now, or are woken, are left alone. It also marks the rows of jobs whose runs are about
// to park, as Wake does. n is the number of jobs that became due, also if WakeLost fails. It may be repeated.
func (s *Watches) WakeLost(ctx context.Context, lost []ParkedRow) (n int, err error) {
	made := map[string]bool{} // the jobs that became due, also by a run of a transaction whose result was unknown
	err = inParts(lost, wakeAtOnce, func(some []ParkedRow) error {
		return s.db.Transact(ctx, func(tx kv.Transaction) error { return s.wakeLost(tx, some, made) })
	})
	return len(made), err
}

// wakeLost is WakeLost for some rows.
func (s *Watches) wakeLost(tx kv.Transaction, lost []ParkedRow, made map[string]bool) error {
	found, err := s.parking.again(tx, lost)
	if err != nil {
		return err
	}
	var woken []ParkedRow
	for i, row := range found {
		if row != nil && !row.Woken && row.Target == lost[i].Target {
			row.Lost = lost[i].Lost
			woken = append(woken, *row)
		}
	}
	_, err = s.wakeRows(tx, woken, made)
	return err
}

// Vendor is the name of the vendor that nodes give of themselves.
const Vendor = "settee"

// Hosted returns what this store has of databases that are targets on a server, by name. It is empty if the identity of the
// server (couch.Server.Identity) is not the one of this store's nodes. The store is not asked who answers for the targets: another
// server may have been restored from a backup of it.
func (s *Watches) Hosted(ctx context.Context, identity string, names []string) (map[string]replicator.TargetNow, error) {
	hosted := map[string]replicator.TargetNow{}
	if identity != s.uuid+" "+Vendor {
		return hosted, nil
	}
	err := s.db.Transact(ctx, func(tx kv.Transaction) error {
		now, reads := tx.Snapshot(), make([]func() (string, error), len(names))
		for i, name := range names {
			reads[i] = s.docs.CreatedIn(now, name)
		}
		for i, read := range reads {
			created, err := read()
			if err != nil {
				return err
			}
			hosted[names[i]] = replicator.TargetNow{Missing: created == "", Instance: created}
		}
		return nil
	})
	return hosted, err
}
