package servers

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
)

// The time of children counts, also after their end.
func TestProcessorTime(t *testing.T) {
	testkit.SkipShort(t)
	before, err := ProcessorTime(os.Getpid())
	require.NoError(t, err)
	command := exec.Command("sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")
	require.NoError(t, command.Run())
	after, err := ProcessorTime(os.Getpid())
	require.NoError(t, err)
	used := command.ProcessState.UserTime() + command.ProcessState.SystemTime()
	require.GreaterOrEqual(t, after-before, used-4*tick)

	_, err = ProcessorTime(command.Process.Pid)
	require.Error(t, err, "it has ended")
}

func TestParseStat(t *testing.T) {
	const rest = " S 12 3 4 5 6 7 8 9 10 11 100 20 3 4 20 0"
	for _, name := range []string{"(sh)", "(a b)", "(a) R 1 (b))"} {
		pid, parent, ticks, err := parseStat([]byte("7 " + name + rest))
		require.NoError(t, err)
		require.Equal(t, [3]int{7, 12, 127}, [3]int{pid, parent, ticks})
	}
	_, _, _, err := parseStat([]byte("7 sh"))
	require.Error(t, err)
}
