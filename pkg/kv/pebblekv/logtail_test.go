package pebblekv_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/internal/seeds"
	"settee/pkg/kv"
	"settee/pkg/kv/pebblekv"
)

// storedLog is a log of a store as a kill leaves it.
type storedLog struct {
	number uint32
	data   []byte
	chunks []pebblekv.Chunk
}

// newestLog returns the newest log in a directory.
func newestLog(t *testing.T, dir string) (log storedLog) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.log"))
	require.NoError(t, err)
	slices.Sort(names)
	name := names[len(names)-1]
	number, err := strconv.ParseUint(strings.TrimSuffix(filepath.Base(name), ".log"), 10, 32)
	require.NoError(t, err)
	log.number = uint32(number)
	log.data, err = os.ReadFile(name)
	require.NoError(t, err)
	log.chunks = pebblekv.Chunks(log.data, log.number)
	log.data = log.data[:log.chunks[len(log.chunks)-1].End]
	return log
}

// twoLogs returns the logs of a store one after the other: the second may reuse the file of the first. Their records are
// of all sizes: some are longer than a block, and some of both begin at the same offset.
func twoLogs(t *testing.T, random *rand.Rand) (earlier, later storedLog) {
	t.Helper()
	dir := t.TempDir()
	write := func() storedLog {
		db := open(t, dir, pebblekv.Options{})
		for i := range 20 {
			value := strings.Repeat(fmt.Sprint(random.Uint64()), 1+random.IntN(100))
			if i == 9 {
				value = strings.Repeat(fmt.Sprint(random.Uint64()), 3500)
			}
			if i < 3 {
				value = strings.Repeat("same size ", 40+i)
			}
			require.NoError(t, set(t.Context(), db, fmt.Sprint("key", i), value))
		}
		log := newestLog(t, dir)
		require.NoError(t, db.Close())
		return log
	}
	earlier = write()
	return earlier, write()
}

// tailOf returns a log that ends with its chunk n, of which length bytes were written, and has behind them what kind says.
func (l storedLog) tailOf(n, length int, kind string, earlier storedLog, random *rand.Rand) []byte {
	c := l.chunks[n]
	cut := c.Begin + length
	data := bytes.Clone(l.data[:cut])
	switch kind {
	case "nothing":
	case "zeros":
		data = append(data, make([]byte, random.IntN(10_000))...)
	case "the log before":
		data = append(data, earlier.data[min(cut, len(earlier.data)):]...)
	case "the log before, elsewhere":
		data = append(data, earlier.data[random.IntN(len(earlier.data)):]...)
	case "random bytes":
		tail := make([]byte, random.IntN(10_000))
		for at := 0; at+8 <= len(tail); at += 8 {
			binary.LittleEndian.PutUint64(tail[at:], random.Uint64())
		}
		data = append(data, tail...)
	case "a part in the middle": // a page of it was not written
		data = append(data, l.data[cut:c.End]...)
		hole := data[cut:min(len(data), cut+1+random.IntN(4096))]
		if was := earlier.data[min(cut, len(earlier.data)):]; random.IntN(2) == 0 && len(was) >= len(hole) {
			copy(hole, was)
		} else {
			clear(hole)
		}
	}
	return data
}

var tailKinds = []string{"nothing", "zeros", "the log before", "the log before, elsewhere", "random bytes", "a part in the middle"}

// TestTornTails: whatever is behind the whole chunks of a log after a kill or a power failure, it is not called damaged, and
// nothing is put right in it except what was written.
func TestTornTails(t *testing.T) {
	t.Parallel()
	const seed = 5
	tries := 400 * seeds.Rounds(t, 25)
	random := rand.New(rand.NewPCG(seed, 0))
	earlier, later := twoLogs(t, random)
	check := func(n, length int, kind string) {
		data := later.tailOf(n, length, kind, earlier, random)
		offsets, damaged := pebblekv.WrongBits(data, later.number)
		if end := later.chunks[n].End; len(offsets) > 0 && len(data) >= end && bytes.Equal(data[:end], later.data[:end]) {
			return // all of it was there except one bit
		}
		require.False(t, damaged, "%d bytes of chunk %d, then %s", length, n, kind)
		require.Empty(t, offsets, "%d bytes of chunk %d, then %s", length, n, kind)
	}
	for _, kind := range tailKinds {
		for _, n := range []int{0, 1, len(later.chunks) / 2, len(later.chunks) - 1} {
			size := later.chunks[n].End - later.chunks[n].Begin
			for _, length := range []int{0, 1, 4, 6, 7, 10, 11, 18, 19, 20, 30, 31, 32, size / 2, size - 11, size - 9, size - 8, size - 1} {
				check(n, length, kind)
			}
		}
	}
	for range tries {
		n := random.IntN(len(later.chunks))
		check(n, random.IntN(later.chunks[n].End-later.chunks[n].Begin), tailKinds[random.IntN(len(tailKinds))])
	}
}

// TestWrongBit: each wrong bit of a log's records is found, wherever the record is and whatever follows it.
func TestWrongBit(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 0))
	earlier, later := twoLogs(t, random)
	check := func(n, at int, bit byte) {
		end := later.chunks[n].End
		for _, tail := range [][]byte{nil, make([]byte, 5000), earlier.data[min(end, len(earlier.data)):], later.data[end:]} {
			want := append(bytes.Clone(later.data[:end]), tail...)
			data := bytes.Clone(want)
			data[at] ^= bit
			offsets, damaged := pebblekv.WrongBits(data, later.number)
			require.Equal(t, []int{at}, offsets, "chunk %d of %d", n, len(later.chunks))
			require.False(t, damaged)
			require.Equal(t, want, data)
		}
	}
	for n, c := range later.chunks {
		if !c.Last {
			continue // the record is not complete
		}
		begin := c.Begin
		for n > 0 && !later.chunks[n-1].Last {
			n--
			begin = later.chunks[n].Begin // a bit of an earlier chunk of the same record
		}
		n = slices.Index(later.chunks, c)
		if n%8 == 0 {
			for bit := range 8 * 40 { // the headers
				check(n, begin+bit/8, 1<<(bit%8))
			}
			for bit := range 8 * 10 { // the seal
				check(n, c.End-1-bit/8, 1<<(bit%8))
			}
		}
		for range 5 {
			at := begin + random.IntN(c.End-begin)
			if isHeaderOrRoom(later, at) {
				check(n, at, 1<<random.IntN(8))
			}
		}
	}
}

// isHeaderOrRoom reports whether an offset is in a chunk, not in the rest of a block that has no room for one.
func isHeaderOrRoom(log storedLog, at int) bool {
	return slices.ContainsFunc(log.chunks, func(c pebblekv.Chunk) bool { return at >= c.Begin && at < c.End })
}

// TestDamagedMiddle: damage to more than a bit is found if a record follows, whatever the size of the records.
func TestDamagedMiddle(t *testing.T) {
	t.Parallel()
	for _, size := range []int{100, 20_000, 90_000} {
		dir := t.TempDir()
		db := open(t, dir, pebblekv.Options{})
		for i := range 12 {
			require.NoError(t, set(t.Context(), db, fmt.Sprint("k", i), strings.Repeat("value", size/5)))
		}
		log := newestLog(t, dir)
		require.NoError(t, db.Close())
		last := len(log.chunks) - 1
		for last > 0 && !log.chunks[last-1].Last {
			last--
		}
		for n, c := range log.chunks {
			for what, at := range map[string]int{"header": c.Begin, "content": c.End - 20} {
				data := bytes.Clone(log.data)
				copy(data[at:], "something else")
				_, damaged := pebblekv.WrongBits(data, log.number)
				// The header of the last record but one says where the last one begins, unless they are in different blocks.
				sure := n < last && (what == "content" || log.chunks[n].Last && n+2 < last)
				require.True(t, damaged || !sure, "%s of chunk %d of %d, records of %d bytes", what, n, len(log.chunks), size)
				require.False(t, damaged && n >= last, "%s of chunk %d of %d, records of %d bytes", what, n, len(log.chunks), size)
			}
		}
	}
}

// TestRepairLog: a store with a damaged log is refused with what to do, and what was written before the damage is there
// after the log was cut.
func TestRepairLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	original := t.TempDir()
	db := open(t, original, pebblekv.Options{})
	for i := range 100 {
		require.NoError(t, set(t.Context(), db, fmt.Sprintf("k%03d", i), strings.Repeat("v", 1000)))
	}
	last, err := stampedWrite(t.Context(), db, "stamp")
	require.NoError(t, err)
	copied := t.TempDir()
	require.NoError(t, os.CopyFS(copied, os.DirFS(original)))
	require.NoError(t, os.CopyFS(dir, os.DirFS(original)))
	require.NoError(t, db.Close())
	log := newestLog(t, dir)
	name := fmt.Sprintf("%06d.log", log.number)
	damaged := bytes.Clone(log.data)
	at := log.chunks[50].Begin
	copy(damaged[at+100:], "not what was written")
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), damaged, 0o600))
	url := "pebble:" + dir

	_, err = pebblekv.Open(dir, pebblekv.Options{})
	require.ErrorIs(t, err, pebblekv.ErrDamaged)
	for _, text := range []string{fmt.Sprintf("%s at %d", name, at), "Copy the directory", "backup", "check --repair-log --store " + url} {
		require.ErrorContains(t, err, text)
	}
	cut, err := pebblekv.RepairLog(url)
	require.NoError(t, err)
	require.Equal(t, pebblekv.Repair{Log: name, Cut: at, Kept: filepath.Join(dir, fmt.Sprintf("damaged-%06d", log.number))}, cut)
	kept, err := os.ReadFile(filepath.Join(cut.Kept, name))
	require.NoError(t, err)
	require.Equal(t, damaged, kept)
	again, err := pebblekv.RepairLog(url)
	require.NoError(t, err)
	require.Empty(t, again, "nothing is left to cut")

	db = open(t, dir, pebblekv.Options{Options: kv.Options{Existing: true}})
	for key, want := range map[string]string{"k000": strings.Repeat("v", 1000), "k099": "", "stamp": ""} {
		value, err := get(t.Context(), db, key)
		require.NoError(t, err)
		require.Equal(t, want, value, key)
	}
	stamp, err := stampedWrite(t.Context(), db, "stamp")
	require.NoError(t, err)
	require.Greater(t, stamp, last, "no version is used twice")
	require.NoError(t, db.Close())

	// As a kill leaves it before the version is raised.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cutting"), nil, 0o600))
	_, err = pebblekv.Open(dir, pebblekv.Options{})
	require.ErrorContains(t, err, "run settee check --repair-log again")
	_, err = pebblekv.RepairLog(url)
	require.NoError(t, err)
	db = open(t, dir, pebblekv.Options{})
	require.NoError(t, db.Close())
	_, err = pebblekv.RepairLog("fdb:x")
	require.Error(t, err)

	// One bit, of the last record: nothing is lost.
	dir = t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(copied)))
	oneBit := bytes.Clone(log.data)
	oneBit[len(oneBit)-50] ^= 4
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), oneBit, 0o600))
	_, err = pebblekv.Open(dir, pebblekv.Options{})
	require.ErrorIs(t, err, pebblekv.ErrDamaged)
	require.ErrorContains(t, err, "one bit is wrong")
	done, err := pebblekv.RepairLog("pebble:" + dir)
	require.NoError(t, err)
	require.Equal(t, []int{len(oneBit) - 50}, done.Bits)
	db = open(t, dir, pebblekv.Options{})
	value, err := get(t.Context(), db, "stamp")
	require.NoError(t, err)
	require.Equal(t, last, value)
	require.NoError(t, db.Close())

	// One bit of its sum: this may be what a write that was not complete has left, so the store is opened, with the record.
	dir = t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(copied)))
	oneBit = bytes.Clone(log.data)
	oneBit[len(oneBit)-1] ^= 4
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), oneBit, 0o600))
	db = open(t, dir, pebblekv.Options{})
	value, err = get(t.Context(), db, "stamp")
	require.NoError(t, err)
	require.Equal(t, last, value)
	require.NoError(t, db.Close())
}
