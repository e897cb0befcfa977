//go:build fdb && unix

package levels_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
	"settee/pkg/kv/kvtest"
	"settee/pkg/kv/levels"
)

// storeVariable makes this program the process of an older release, on the store that it names: see frozen.
const storeVariable = "SETTEE_TEST_FROZEN"

// A process that is frozen in a transaction while another one raises the level commits nothing after it continues. It
// starts no other transaction either.
func TestFrozenProcess(t *testing.T) {
	t.Parallel()
	store, ok := kvtest.ClusterURL(t)
	if !ok {
		t.Skip("there is no cluster")
	}
	db, err := kv.Open(t.Context(), store, kv.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	next, err := open(t, db, 2)
	require.NoError(t, err)

	process := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	process.Env = append(os.Environ(), storeVariable+"="+store)
	process.Stderr = os.Stderr
	in, err := process.StdinPipe()
	require.NoError(t, err)
	out, err := process.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, process.Start())
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "in a transaction\n", line)

	require.NoError(t, process.Process.Signal(syscall.SIGSTOP))
	raised, err := next.Raise(t.Context(), anyway)
	require.NoError(t, err)
	assert.True(t, raised)
	require.NoError(t, process.Process.Signal(syscall.SIGCONT))
	require.NoError(t, in.Close())
	said, err := io.ReadAll(lines)
	require.NoError(t, err)
	require.NoError(t, process.Wait())
	assert.Equal(t, 2, strings.Count(string(said), "the store has level 2 (of version test), and this version knows only 1"), "%s", said)
	value, err := kv.TransactValue(t.Context(), next, func(tx kv.Transaction) ([]byte, error) { return tx.Get([]byte("old")).Await() })
	require.NoError(t, err)
	assert.Nil(t, value)
}

// frozen begins a transaction, and waits in it for the end of its input. Then it writes, and tries once more.
func frozen(store string) (err error) {
	ctx := context.Background()
	db, err := kv.Open(ctx, store, kv.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	guard, err := levels.Open(ctx, db, levels.Options{Key: []byte("level"), Own: 1, Release: "old"})
	if err != nil {
		return err
	}
	write := func(tx kv.Transaction) error {
		tx.Set([]byte("old"), nil)
		return nil
	}
	_, _ = fmt.Fprintln(os.Stdout, guard.Transact(ctx, func(tx kv.Transaction) error {
		_, _ = fmt.Fprintln(os.Stdout, "in a transaction")
		if _, err := io.ReadAll(os.Stdin); err != nil {
			return err
		}
		return write(tx)
	}))
	_, _ = fmt.Fprintln(os.Stdout, guard.Transact(ctx, write))
	return nil
}

func init() {
	otherProcess = func() {
		if store := os.Getenv(storeVariable); store != "" {
			if err := frozen(store); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
}
