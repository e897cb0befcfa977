package docbody_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/docbody"
	"settee/pkg/budget"
)

// bytesLeft is a budget of one request.
type bytesLeft struct{ left int64 }

var errNoneLeft = errors.New("none left")

func (b *bytesLeft) TryTake(n int64) bool {
	if n > b.left {
		return false
	}
	b.left -= n
	return true
}

func (b *bytesLeft) Take(_ context.Context, n int64, _ budget.Share) error {
	if !b.TryTake(n) {
		return errNoneLeft
	}
	return nil
}

func (b *bytesLeft) Give(n int64) { b.left += n }

func TestSpoolTakesMemoryAndDisk(t *testing.T) {
	t.Parallel()
	const most = 10 << 20
	for name, test := range map[string]struct {
		size         int
		memory, disk int64 // that the node has
		takes        int64 // of memory
		spools       bool
		err          error
	}{
		"a small body takes nothing":                {size: 4_000},
		"the buffer is taken as it grows":           {size: 100_000, memory: most, takes: 128 << 10},
		"without memory a body goes to a file":      {size: 100_000, memory: 20_000, disk: most, spools: true},
		"a large body goes to a file":               {size: 3 << 20, memory: most, disk: most, spools: true},
		"without disk space a large one is refused": {size: 3 << 20, memory: most, disk: 2 << 20, err: errNoneLeft},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			memory, disk := &bytesLeft{test.memory}, &bytesLeft{test.disk}
			body := strings.Repeat("0123456789abcdef", test.size/16+1)[:test.size]
			s, err := docbody.NewSpool(strings.NewReader(body), docbody.SpoolOptions{Dir: t.TempDir(), Memory: memory, Disk: disk})
			if test.err != nil {
				require.ErrorIs(t, err, test.err)
			} else {
				require.NoError(t, err)
				require.Equal(t, test.takes, test.memory-memory.left)
				require.Equal(t, test.spools, disk.left < test.disk)
				text, err := io.ReadAll(io.NewSectionReader(s, 0, s.Size()))
				require.NoError(t, err)
				require.Equal(t, body, string(text))
				require.NoError(t, s.Close())
			}
			require.Equal(t, test.memory, memory.left, "all was given back")
			require.Equal(t, test.disk, disk.left, "all was given back")
		})
	}
}
