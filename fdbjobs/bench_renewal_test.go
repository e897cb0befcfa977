package fdbjobs_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
)

// BenchmarkRenewal has some running jobs, and measures a renewal of a hold, alone, a look of the monitor that looks, and that with a look of another one.
func BenchmarkRenewal(b *testing.B) {
	for _, running := range []int{500, 5_000} {
		b.Run(fmt.Sprint("running=", running), func(b *testing.B) {
			db := enginetest.ClusterOr(b, enginetest.Disk)
			layer := fdbjobs.Open(db, []byte("jobs"), fdbjobs.Options{})
			defer layer.Close()
			q := layer.Queue("work")
			var held []*fdbjobs.Held
			for len(held) < running {
				require.NoError(b, db.Transact(b.Context(), func(tx kv.Transaction) error {
					var specs []fdbjobs.Spec
					for i := range 50 {
						specs = append(specs, fdbjobs.Spec{ID: fmt.Sprint(len(held) + i), Owner: "o"})
					}
					return q.Add(tx, specs...)
				}))
				for range 50 {
					some, err := q.Accept(b.Context(), fdbjobs.AcceptOptions{Count: 50, Wait: -1})
					require.NoError(b, err)
					if held = append(held, some...); len(held)%50 == 0 {
						break
					}
				}
			}
			b.Run("renew", func(b *testing.B) {
				for i := range b.N {
					h := held[i%len(held)]
					h.Stale()
					require.NoError(b, h.Update(b.Context(), nil, nil))
				}
			})
			look, standby := q.Looker(), q.Looker()
			b.Run("look", func(b *testing.B) {
				for range b.N {
					require.NoError(b, look(b.Context()))
				}
			})
			b.Run("standby", func(b *testing.B) {
				for range b.N {
					require.NoError(b, look(b.Context()))
					require.NoError(b, standby(b.Context()))
				}
			})
		})
	}
}
