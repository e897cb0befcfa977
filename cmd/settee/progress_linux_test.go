package main

import (
	"strings"
	"testing"
	"time"

	"github.com/gdamore/tcell/v3/vt"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// After the end of a display the bar is gone from the terminal, and the next line begins where it was. Nothing draws it again:
// TestMain finds goroutines that are left.
func TestDisplayRemovesItsBar(t *testing.T) {
	t.Parallel()
	user, command := openTerminal(t)
	d := newDisplay(command, command, false)
	require.NotNil(t, d.bar)
	left := int64(5)
	require.NoError(t, d.draw("moving _replicator", &left))
	time.Sleep(progressEvery) // it draws the bar at most once in this time
	left = 3
	require.NoError(t, d.draw("moving _replicator", &left))
	require.NoError(t, d.end())
	require.NoError(t, d.end(), "again, as when a command ends")
	_, err := command.WriteString("warning: run it again\r\n$")
	require.NoError(t, err)

	terminal := vt.NewMockTerm(vt.MockOptSize{X: 80, Y: 3})
	require.NoError(t, terminal.Start())
	defer func() { assert.NoError(t, terminal.Stop()) }()
	all := ""
	for buffer := make([]byte, 4096); !strings.HasSuffix(all, "$"); {
		n, err := user.Read(buffer)
		require.NoError(t, err)
		all += string(buffer[:n])
	}
	require.Contains(t, all, "moving _replicator")
	_, err = terminal.Write([]byte(all))
	require.NoError(t, err)
	line := ""
	for x := range vt.Col(80) {
		line += terminal.GetCell(vt.Coord{X: x}).C
	}
	assert.Equal(t, "warning: run it again", strings.TrimRight(line, " \x00"))
}
