package nodes

import (
	"context"

	"settee/pkg/kv"
	"settee/pkg/kv/check"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// Check checks the forms of the rows.
func Check(ctx context.Context, c *check.Checker, prefix []byte) error {
	space := tuple.SubspaceFromBytes(prefix)
	return c.Walk(ctx, kv.PrefixRange(prefix), func(p *check.Page, pair kv.KeyValue) (func() error, error) {
		key, err := space.Unpack(pair.Key)
		var name, instance, end string
		switch {
		case err != nil || !rows.Store(key, &name, &instance) && (!rows.Store(key, &name, &instance, &end) || end != cordonWord):
			p.Fault(pair.Key, nil, "unknown key")
		case !check.Object(pair.Value):
			p.Fault(pair.Key, nil, "a process: the value is not one that settee writes")
		}
		return nil, nil
	})
}
