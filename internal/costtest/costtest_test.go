package costtest_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/internal/costtest"
)

// failures is a test that records whether it failed.
type failures struct {
	testing.TB
	failed bool
}

func (f *failures) Helper()               {}
func (f *failures) Fatalf(string, ...any) { f.failed = true }

var kept []byte

func TestCheck(t *testing.T) {
	allocate := func() { kept = make([]byte, 10_000_000) }
	check := func(b costtest.Bound, input int, f func()) bool {
		tb := &failures{TB: t}
		b.Check(tb, input, f)
		return !tb.failed
	}
	require.True(t, check(costtest.Bound{Memory: 11_000_000, Units: 1000}, 0, allocate))
	require.True(t, check(costtest.Bound{MemoryPerByte: 11_000, Units: 1000}, 1000, allocate))
	require.True(t, check(costtest.Memory(10_000), 1000, allocate))
	require.False(t, check(costtest.Bound{MemoryPerByte: 9_000, Units: 1000}, 1000, allocate))

	// The work of a unit, five times.
	expr, text := regexp.MustCompile(`[ab]{400}x`), strings.Repeat("ab", 10_000)
	spend := func() { expr.MatchString(text) }
	require.Positive(t, costtest.Unit())
	require.True(t, check(costtest.Bound{Memory: 1 << 20, BytesPerUnit: 20}, len(text), spend))
	require.False(t, check(costtest.Bound{Memory: 1 << 20, Units: 1}, 0, spend))
}
