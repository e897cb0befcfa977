package accounts

import (
	"context"

	"settee/pkg/kv"
	"settee/pkg/kv/check"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// Check checks the forms of the package's rows. A secret whose key is not known is not a fault.
func Check(ctx context.Context, c *check.Checker, prefix []byte, sealer kv.Sealer) error {
	space := tuple.SubspaceFromBytes(prefix)
	return c.Walk(ctx, kv.PrefixRange(prefix), func(p *check.Page, pair kv.KeyValue) (func() error, error) {
		key, err := space.Unpack(pair.Key)
		var kind, name string
		var step int64
		known := err == nil && len(key) > 0 && rows.As(key[0], &kind)
		switch {
		case known && kind == "secret" && len(key) == 1:
			secret, err := sealer.Open(pair.Value, secretPlace)
			if kv.UnknownKey(err) {
				p.Sealed()
			} else if err != nil || len(secret) == 0 {
				p.Fault(pair.Key, nil, "the secret of sessions cannot be read")
			}
		case known && kind == "admin" && len(key) == 2 && rows.As(key[1], &name),
			known && kind == "onetime" && len(key) == 3 && rows.As(key[1], &step) && rows.As(key[2], &name):
			if len(pair.Value) == 0 {
				p.Fault(pair.Key, nil, "an empty value")
			}
		default:
			p.Fault(pair.Key, nil, "unknown key")
		}
		return nil, nil
	})
}
