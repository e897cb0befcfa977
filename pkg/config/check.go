package config

import (
	"context"
	"unicode/utf8"

	"settee/pkg/kv"
	"settee/pkg/kv/check"
	"settee/pkg/kv/rows"
)

// CheckStored checks the rows of the layer of the store. A secret whose key is not known is not a fault, and neither is a
// value that this version does not accept: another one may have stored it.
func CheckStored(ctx context.Context, c *check.Checker, prefix []byte, sealer kv.Sealer) error {
	s := newStorage(c.DB, prefix, sealer)
	return c.Walk(ctx, kv.PrefixRange(prefix), func(p *check.Page, pair kv.KeyValue) (func() error, error) {
		if string(pair.Key) == string(s.changes) {
			if len(pair.Value)%tokenSize != 0 {
				p.Fault(pair.Key, nil, "the latest changes: the value is not one that settee writes")
			}
			return nil, nil
		}
		var n name
		if rows.ScanKey("the name of a setting", s.values, pair.Key, &n.section, &n.key) != nil {
			p.Fault(pair.Key, nil, "unknown key")
			return nil, nil
		}
		text, err := s.sealer.Open(pair.Value, place(n)...)
		switch {
		case kv.UnknownKey(err):
			p.Sealed()
		case err != nil:
			p.Fault(pair.Key, nil, "the setting cannot be decrypted")
		case !utf8.Valid(text):
			p.Fault(pair.Key, nil, "the setting is not UTF-8 text")
		}
		return nil, nil
	})
}
