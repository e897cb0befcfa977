package fdbjobs_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
)

// TestNewProcessBeginsAtTheHead: one that has not read a queue yet does not pass over what
// others have taken from it.
func TestNewProcessBeginsAtTheHead(t *testing.T) {
	inBubbleParallel(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		head := func() (begin []byte) {
			b.transact(t, func(tx kv.Transaction) (err error) {
				begin, err = b.jobs.Head(tx, "o")
				return err
			})
			return begin
		}
		due := func() (n int) {
			b.transact(t, func(tx kv.Transaction) (err error) {
				n, err = b.jobs.CountDue(tx, time.Now(), 1_000)
				return err
			})
			return n
		}
		b.addMany(t, "o", 200)
		require.Nil(t, head())
		require.Equal(t, 200, due())
		for range 8 { // more than a window
			require.Len(t, b.take(t, 20), 20)
			after(2 * time.Second)
		}
		require.NotNil(t, head(), "a claim that reads another window notes where the queue begins")
		b.check(t)
		assert.Equal(t, 40, due())

		other := newBundle(t, db)
		taken := 0
		for n := 1; n > 0; taken += n { // its own share first
			n = len(other.take(t, 40))
		}
		assert.Equal(t, 40, taken)
		b.check(t)
	})
}
