package pebblekv_test

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/internal/seeds"
	"settee/internal/testkit"
	"settee/pkg/kv"
	"settee/pkg/kv/pebblekv"
)

// crashDirEnv makes the test binary a child of TestKill: a process that commits to the store in this directory until it
// is killed.
const crashDirEnv = "PEBBLEKV_CRASH_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDirEnv); dir != "" {
		fmt.Fprintln(os.Stderr, commitUntilKilled(dir))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

const (
	crashWriters = 4
	// smallMemTable makes Pebble write tables and change its manifest during a short test.
	smallMemTable = 64 << 10
)

// commitUntilKilled checks the store, writes its content, and then commits from several goroutines. Its lines are
//
//	has <writer> <number>          for each writer
//	committed <writer> <number> <stamp>
func commitUntilKilled(dir string) error {
	ctx := context.Background()
	db, err := pebblekv.Open(dir, pebblekv.WithMemTables(pebblekv.Options{}, smallMemTable))
	if err != nil {
		return err
	}
	if err := openLedger(ctx, db); err != nil {
		return err
	}
	state, err := readLedger(ctx, db)
	if err != nil {
		return err
	}
	if wrong := state.whole(); len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "; "))
	}
	for writer := range crashWriters {
		fmt.Fprintf(os.Stdout, "has %d %d\n", writer, state.last[writer])
	}
	errs := make(chan error)
	floor := state.highest()
	for writer := range crashWriters {
		go func() {
			random := rand.New(rand.NewPCG(rand.Uint64(), 0))
			for number := state.last[writer] + 1; ; number++ {
				stamp, err := ledgerEntry{writer, number}.commit(ctx, db, random, floor)
				if err != nil {
					errs <- err
					return
				}
				fmt.Fprintf(os.Stdout, "committed %d %d %x\n", writer, number, stamp)
			}
		}()
	}
	return <-errs
}

// TestKill repeatedly kills a process that commits, and checks that the next one finds what was acknowledged.
func TestKill(t *testing.T) {
	testkit.SkipShort(t)
	t.Parallel()
	kills := seeds.Rounds(t, 200)
	dir := t.TempDir()
	t.Cleanup(func() { keepIfFailed(t, dir) })
	random := rand.New(rand.NewPCG(rand.Uint64(), 0))
	known := newLedger()
	for range kills {
		runAndKill(t, dir, known, random.IntN(25))
	}
	db := open(t, dir, pebblekv.Options{})
	state, err := readLedger(t.Context(), db)
	require.NoError(t, err)
	require.Empty(t, state.whole())
	require.Empty(t, state.agrees(known, attempted(known)))
	progress := 0
	for _, last := range state.last {
		progress += last
	}
	require.Greater(t, progress, kills, "the children made progress")
	require.NoError(t, db.Close())
}

// keepIfFailed keeps a copy of a store that a failed test leaves. The error of a store that is refused names the file, and
// the rule that has judged it.
func keepIfFailed(t *testing.T, dir string) {
	t.Helper()
	if !t.Failed() {
		return
	}
	kept := filepath.Join(os.TempDir(), fmt.Sprintf("settee-%s-%d", t.Name(), os.Getpid()))
	t.Logf("the store is kept in %s: %v", kept, os.CopyFS(kept, os.DirFS(dir)))
}

// attempted returns what is known of a process that has ended: each writer may have got one transaction further than it
// reported.
func attempted(known *ledger) *ledger {
	after := known.copy()
	for writer := range crashWriters {
		after.attempted[writer] = known.acknowledged[writer] + 1
	}
	return after
}

// runAndKill runs a child, kills it after some lines, and records its lines to the end.
func runAndKill(t *testing.T, dir string, known *ledger, lines int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^$")
	child.Env = append(os.Environ(), crashDirEnv+"="+dir)
	var complaint strings.Builder
	child.Stderr = &complaint
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	if lines == 0 {
		cancel()
	}
	had := known.copy()
	scanner := bufio.NewScanner(out)
	for n := 1; scanner.Scan(); n++ {
		require.NoError(t, known.hear(had, scanner.Text()))
		if n == lines {
			cancel()
		}
	}
	_ = child.Wait() // it was killed
	require.Empty(t, complaint.String())
}

// hear records a line of a child. had is what was known before the child began.
func (l *ledger) hear(had *ledger, line string) error {
	var e ledgerEntry
	var stamp string
	if _, err := fmt.Sscanf(line, "has %d %d", &e.writer, &e.number); err == nil {
		if was := had.acknowledged[e.writer]; e.number != was && e.number != was+1 {
			return fmt.Errorf("writer %d was acknowledged %d, and %d is there", e.writer, was, e.number)
		}
		l.acknowledged[e.writer] = e.number
		return nil
	}
	if _, err := fmt.Sscanf(line, "committed %d %d %s", &e.writer, &e.number, &stamp); err != nil {
		return fmt.Errorf("line %q: %w", line, err)
	}
	if len(stamp) != hex.EncodedLen(len(kv.Versionstamp{})) {
		return nil // the kill cut the line
	}
	raw, err := hex.DecodeString(stamp)
	if err != nil {
		return err
	}
	if string(raw) <= had.highest {
		return fmt.Errorf("%v has stamp %x, and an earlier process had %x", e, raw, had.highest)
	}
	l.acknowledge(e, string(raw))
	return nil
}

// TestPowerCut drops unsynced data at random, in the middle of commits, and checks that the acknowledged data remains.
func TestPowerCut(t *testing.T) {
	testkit.SkipShort(t)
	t.Parallel()
	const cuts = 100
	for chain := range seeds.Rounds(t, 10) {
		t.Run(fmt.Sprint(chain), func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			wrong := cutPower(t.Context(), pebblekv.Options{}, cuts, rand.New(rand.NewPCG(seed, 0)))
			require.Empty(t, wrong, "seed %d", seed)
		})
	}
	t.Run("without sync", func(t *testing.T) {
		t.Parallel()
		wrong := cutPower(t.Context(), pebblekv.Options{NoSync: true}, cuts, rand.New(rand.NewPCG(rand.Uint64(), 0)))
		require.NotEmpty(t, wrong, "the checks see that the sync is missing")
	})
}

// cutPower runs a store from power cut to power cut, until a check fails.
func cutPower(ctx context.Context, opts pebblekv.Options, cuts int, random *rand.Rand) (wrong []string) {
	fs := vfs.NewCrashableMem()
	known := newLedger()
	after := known
	opts = pebblekv.WithMemTables(opts, smallMemTable)
	for cut := range cuts {
		opts.FS = fs
		next, before, err := runAndCut(ctx, opts, fs, known, after, random)
		if err != nil {
			return []string{fmt.Sprintf("cut %d: %v", cut, err)}
		}
		fs, after, known = next, known, before
	}
	return nil
}

// runAndCut opens a store after a power cut, and compares it with what was known before and after the cut. It then
// commits and cuts the power, and returns the resulting file system and what was known before. known is then what is
// known after.
func runAndCut(ctx context.Context, opts pebblekv.Options, fs *vfs.MemFS, known, after *ledger, random *rand.Rand) (
	crashed *vfs.MemFS, before *ledger, err error,
) {
	db, err := pebblekv.Open("/store", opts)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	state, err := readLedger(ctx, db)
	if err != nil {
		return nil, nil, err
	}
	if wrong := append(state.whole(), state.agrees(known, after)...); len(wrong) > 0 {
		return nil, nil, errors.New(strings.Join(wrong, "; "))
	}
	known.resume(state)
	if err := openLedger(ctx, db); err != nil {
		return nil, nil, err
	}
	return commitAndCut(ctx, db, fs, known, random)
}

// commitAndCut commits from several goroutines and cuts the power meanwhile.
func commitAndCut(ctx context.Context, db kv.Database, fs *vfs.MemFS, known *ledger, random *rand.Rand) (
	crashed *vfs.MemFS, before *ledger, err error,
) {
	const writers, commits = 3, 4
	acknowledged := make(chan struct{}, writers*commits)
	errs := make(chan error, writers)
	var group sync.WaitGroup
	floor := known.highest
	for writer := range writers {
		own := rand.New(rand.NewPCG(random.Uint64(), 0))
		group.Go(func() {
			for range commits {
				e := known.attempt(writer)
				stamp, err := e.commit(ctx, db, own, floor)
				if err != nil {
					errs <- err
					return
				}
				known.acknowledge(e, stamp)
				acknowledged <- struct{}{}
			}
		})
	}
	for range random.IntN(writers * commits) {
		select {
		case <-acknowledged:
		case err = <-errs:
		}
	}
	before = known.copy()
	crashed = fs.CrashClone(vfs.CrashCloneCfg{
		UnsyncedDataPercent: random.IntN(101),
		RNG:                 random,
	})
	group.Wait()
	close(errs)
	return crashed, before, errors.Join(err, <-errs)
}
