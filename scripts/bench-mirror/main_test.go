package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/internal/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func parse(t *testing.T, args ...string) (*options, error) {
	t.Helper()
	var o options
	f := flag.NewFlagSet("", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	o.register(f)
	require.NoError(t, f.Parse(args))
	return &o, o.check()
}

func TestOptions(t *testing.T) {
	_, err := parse(t)
	require.NoError(t, err)
	for _, args := range [][]string{{"-databases=0"}, {"-docs=0"}, {"-pairs=0"}, {"-poll=0"}, {"-new=0"}} {
		_, err := parse(t, args...)
		require.Error(t, err, args)
	}
}

func TestMedian(t *testing.T) {
	require.Zero(t, median(nil))
	require.InDelta(t, 2, median([]float64{3, 1, 2}), 0)
	require.InDelta(t, 3, median([]float64{3, 1}), 0)
}

// TestMirror measures few databases, and checks that nothing is left behind.
func TestMirror(t *testing.T) {
	if _, err := servers.FindCouchDB(); err != nil {
		servers.LeaveOut(t, servers.NameCouchDB, err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	o, err := parse(t, "-databases=5", "-docs=3", "-new=2", "-limit=2m")
	require.NoError(t, err)
	r, err := measure(t.Context(), o, t.Output())
	require.NoError(t, err)
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	require.Empty(t, left)
	require.Len(t, r.Mirror, 1)
	require.Len(t, r.Loop, 1)
	require.Len(t, r.New, 2)
	var table, object bytes.Buffer
	require.NoError(t, r.print(&table, false))
	require.Contains(t, table.String(), "the mirror's time, of the loop's")
	require.NoError(t, r.print(&object, true))
	var read report
	require.NoError(t, json.Unmarshal(object.Bytes(), &read))
	require.Equal(t, r.New, read.New)
}
