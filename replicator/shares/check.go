package shares

import (
	"settee/pkg/kv"
	"settee/pkg/kv/check"
	"settee/pkg/kv/rows"
)

// CheckRow checks a row of the package: its form, and that the owner of a pause is paused.
func (s *Shares) CheckRow(p *check.Page, row kv.KeyValue) error {
	var owner string
	var slice int64
	paused, times := s.space.Sub("paused"), s.space.Sub("times")
	const wrong = "%s: the value is not one that settee writes"
	switch {
	case rows.ScanKey("a pause", paused, row.Key, &owner) == nil:
		if _, err := parsePause(row.Value); err != nil {
			p.Fault(row.Key, nil, wrong, "when a database was paused")
			return nil
		}
		found, err := s.Paused(p, owner)
		if err == nil && found[owner] == nil {
			p.Stray(row.Key, "a pause of the owner %q, which is not paused", owner)
		}
		return err
	case rows.ScanKey("a time", times, row.Key, nil, &slice, &owner) == nil:
		if _, err := rows.ParseInt(row.Value); err != nil {
			p.Fault(row.Key, nil, wrong, "the time of an owner")
		}
		return nil
	}
	p.Fault(row.Key, nil, "unknown key")
	return nil
}
