package pebblekv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	crdb "github.com/cockroachdb/errors"
	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Pebble 2.1 ends its reading of the manifest and of the newest log at the first chunk whose checksum is wrong, because a
// write may not have been complete when the power failed. If the chunk was durable and has been damaged since, everything
// after it would silently be missing. Pebble finds such damage in a log by itself only if a later block says that the
// chunk was durable: it does not read the rest of the chunk's own block (32 KiB). It does not look for damage in the
// manifest. So both are read before Pebble opens the store:
//
//   - A record of the log is written after the one before it is durable. So what is before a complete one and wrong is
//     damaged. A chunk also has the offset up to which the log was durable when it was written, but Pebble does not
//     count blocks that it writes in full, so with large records this offset is far behind.
//   - A chunk of the manifest is written after the one before it is durable. So one before another is damaged.
//     If the last one is wrong, the log that the ones before it need must be there.
//
// After a crash the commits of the last sync have nothing after them. There damage cannot be told from a write that was
// not complete, except for one wrong bit, with which a record is complete and right (logtail.go).

// ErrDamaged is in the error of a store whose log or manifest is damaged.
var ErrDamaged = errors.New("the file is damaged: what was written later cannot be read")

// The rules by which a file is called damaged, as its error names them.
const (
	laterRecordRule = "a later record is complete"
	promisedRule    = "a later record says that this one was durable"
	oneBitRule      = "one bit is wrong in what was written completely"
	laterEditRule   = "another edit follows"
	noLogRule       = "the log that it needs is missing"
)

// damage is an error that names a damaged file, and says what to do.
type damage struct {
	dir, file, rule string
	at              int // the offset of the chunk that is wrong
	// from is the offset in a log of the first record that cannot be read.
	from  int
	isLog bool
}

func (d *damage) Error() string {
	repair := "settee check --repair-log --store pebble:" + d.dir
	advice := "restore a backup"
	switch {
	case d.isLog && d.rule == oneBitRule:
		advice = "put the bit right: " + repair
	case d.isLog:
		advice = "restore a backup, or give up what was written later: " + repair
	}
	return fmt.Sprintf("%s at %d: %v (%s). Copy the directory first. Then %s", d.file, d.at, ErrDamaged, d.rule, advice)
}

func (d *damage) Unwrap() error { return ErrDamaged }

// The format of Pebble's log and manifest, which its package record defines: chunks in blocks.
const (
	blockSize        = 32 << 10
	manifestHeader   = 7  // checksum, length, type
	plainHeader      = 11 // and the number of the log
	syncedHeader     = 19 // and the offset that was durable
	lastManifestType = 4
	plainType        = 5 // the first without an offset, also the mark of the end of a log
	firstSyncedType  = 9
	lastSyncedType   = 12
)

// checkFiles returns an error that names a damaged file of a store. It reads the manifest, and the logs that it needs.
func checkFiles(files vfs.FS, dir string) error {
	desc, err := pebble.Peek(dir, files)
	if err != nil || !desc.Exists {
		return err
	}
	if err := checkOptions(files, dir, desc.OptionsFilename); err != nil {
		return err
	}
	name := desc.ManifestFilename
	manifest, err := readFile(files, name)
	if err != nil {
		return err
	}
	m := editsOf(manifest)
	inManifest := &damage{dir: dir, file: filepath.Base(name), at: m.end}
	switch {
	case !m.torn(manifest):
	case laterManifestChunk(manifest[m.end+1:]):
		inManifest.rule = laterEditRule
	case m.flipped(manifest):
		inManifest.rule = oneBitRule
	}
	if inManifest.rule != "" {
		return inManifest
	}
	found, err := checkLogs(files, dir, m.firstLog)
	if err == nil && m.torn(manifest) && !found {
		inManifest.rule = noLogRule
		err = inManifest
	}
	return err
}

// checkLogs checks the logs of a store from the first that it needs, and reports whether this one is there.
func checkLogs(files vfs.FS, dir string, firstLog uint64) (found bool, err error) {
	names, err := files.List(dir)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		number, isLog := logNumber(name)
		if !isLog || number < firstLog {
			continue
		}
		found = found || number == firstLog
		if err := checkLog(files, dir, name, uint32(number)); err != nil {
			return false, err
		}
	}
	return found, nil
}

// checkLog checks a log.
//
// If the last bytes of the last record were not written, they may happen to differ in one bit from what was there before.
// That is no damage, and not to be told from it. But these bytes are a sum of the record, which says that the rest is right.
// So they are put right, and the commit is there as a whole. A wrong bit in the mark of the end is put right, too: Pebble refuses an
// older log without the mark, which has nothing of the store.
func checkLog(files vfs.FS, dir, name string, number uint32) error {
	path := files.PathJoin(dir, name)
	log, err := readFile(files, path)
	if err != nil {
		return err
	}
	tail := chunksOf(log, number)
	putRight := func(what string, at int, bit byte) error {
		fmt.Fprintf(os.Stderr, "store %s: %s: %s, which is put right\n", dir, name, fmt.Sprintf(what, at))
		log[at] ^= bit
		return rewrite(files, path, log, []int{at})
	}
	if at, bit, wrong := tail.wrongMark(log); wrong {
		return putRight("the mark of the end differs at %d in one bit", at, bit)
	}
	at, bit, oneBit, inSum := tail.wrongBit(log)
	rule := tail.damage(log)
	switch {
	case rule == "" && inSum:
		return putRight("the last record differs at %d in one bit of its own sum", at, bit)
	case oneBit:
		rule = oneBitRule
	}
	if rule == "" {
		return nil
	}
	return &damage{dir: dir, file: name, rule: rule, at: tail.at, from: tail.began, isLog: true}
}

// rewrite writes the bytes of a file that are at these offsets.
func rewrite(files vfs.FS, path string, content []byte, offsets []int) (err error) {
	file, err := files.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	for _, at := range offsets {
		if _, err := file.WriteAt(content[at:at+1], int64(at)); err != nil {
			return err
		}
	}
	return file.Sync()
}

// checkOptions checks the file of Pebble's options, so that its errors have a name.
func checkOptions(files vfs.FS, dir, name string) error {
	if name == "" {
		return nil
	}
	text, err := readFile(files, name)
	if err == nil {
		var options pebble.Options
		options.EnsureDefaults()
		err = options.CheckCompatibility(dir, string(text))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(name), err)
	}
	return nil
}

func readFile(files vfs.FS, name string) (content []byte, err error) {
	file, err := files.Open(name, vfs.SequentialReadsOption)
	if err != nil {
		return nil, err
	}
	content, err = io.ReadAll(file)
	return content, errors.Join(err, file.Close())
}

// nameLog adds the name of the log that Pebble could not read to its error, which has the number only in its details.
func nameLog(err error) error {
	for _, detail := range crdb.GetAllDetails(err) {
		var number uint64
		if n, _ := fmt.Sscanf(detail, "replaying wal %d", &number); n == 1 {
			return fmt.Errorf("%06d.log: %w. Restore a backup", number, err)
		}
	}
	return err
}

// logNumber parses the name of a log.
func logNumber(name string) (uint64, bool) {
	text, isLog := strings.CutSuffix(name, ".log")
	number, err := strconv.ParseUint(text, 10, 64)
	return number, isLog && err == nil
}

// chunk is the part of a chunk's header that all have.
type chunk struct {
	kind   byte
	length int // with the header
}

// chunkAt returns the chunk at the beginning of data, if it is one with a header of this size and its checksum is right.
func chunkAt(data []byte, header int) (c chunk, ok bool) {
	if len(data) < header {
		return c, false
	}
	c = chunk{data[6], header + int(binary.LittleEndian.Uint16(data[4:]))}
	if c.length > len(data) {
		return c, false
	}
	return c, storedSum(data) == sumOf(data[:c.length])
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// storedSum returns the checksum in a chunk's header, which is stored rotated and with a number added.
func storedSum(data []byte) uint32 {
	masked := binary.LittleEndian.Uint32(data) - 0xa282ead8
	return masked<<15 | masked>>17
}

func sumOf(chunk []byte) uint32 { return crc32.Checksum(chunk[6:], castagnoli) }

// oneBitOff looks for the bit that is wrong in the chunk at the beginning of data, and returns its byte and its mask.
// lengthOf returns the length of a chunk whose header may be there, or 0. accept has the last word about the right chunk.
func oneBitOff(data []byte, header int, lengthOf func(data []byte) int, accept func(chunk []byte) bool) (at int, bit byte, found bool) {
	if len(data) < header {
		return 0, 0, false
	}
	own := bytes.Clone(data)
	for n := range 8 * header {
		at, bit = n/8, 1<<(n%8)
		own[at] ^= bit
		if length := lengthOf(own); length > 0 && storedSum(own) == sumOf(own[:length]) && accept(own[:length]) {
			return at, bit, true
		}
		own[at] ^= bit
	}
	length := lengthOf(own)
	if length == 0 {
		return 0, 0, false
	}
	at, bit, found = otherBit(own[:length], header)
	if !found {
		return 0, 0, false
	}
	own[at] ^= bit
	return at, bit, accept(own[:length])
}

// otherBit returns the bit behind the header with which the checksum of a chunk would be right.
func otherBit(chunk []byte, header int) (at int, bit byte, found bool) {
	// A checksum is linear: a flipped bit changes it by what does not depend on the others.
	change := storedSum(chunk) ^ sumOf(chunk)
	var by [8]uint32 // how each bit of a byte changes it
	for bit := range by {
		by[bit] = castagnoli[1<<bit]
	}
	for at := len(chunk) - 1; at >= header; at-- {
		for bit, b := range by {
			if b == change {
				return at, 1 << bit, true
			}
			by[bit] = castagnoli[byte(b)] ^ b>>8
		}
	}
	return 0, 0, false
}

// inBlock returns the rest of the block that the offset is in.
func inBlock(data []byte, at int) []byte { return data[at:min(len(data), at-at%blockSize+blockSize)] }

// walk passes the chunks from the beginning to take, and returns the offset of the first that is not a chunk. headerOf
// returns the size of the header of a kind of chunks. The largest is largest.
func walk(data []byte, largest int, headerOf func(kind byte) int, take func(at int, c chunk, data []byte) bool) int {
	for at := 0; ; {
		rest, header := inBlock(data, at), largest
		if len(rest) >= manifestHeader {
			header = headerOf(rest[6])
		}
		c, ok := chunkAt(rest, header)
		switch {
		case ok && take(at, c, rest[:c.length]):
			at += c.length
		case len(rest) < largest && at-at%blockSize+blockSize <= len(data) && len(rest) > 0:
			at += len(rest) // the end of a block has no room for a chunk
		default:
			return at
		}
		if at >= len(data) {
			return len(data)
		}
	}
}

// edits are the whole chunks of a manifest.
type edits struct {
	end      int    // the offset behind the last one
	firstLog uint64 // the number of the first log that they need
}

func editsOf(data []byte) (m edits) {
	m.end = walk(data, manifestHeader, func(byte) int { return manifestHeader }, func(_ int, c chunk, data []byte) bool {
		if c.kind < 1 || c.kind > lastManifestType {
			return false
		}
		if c.kind <= 2 { // it begins an edit
			if number, has := editedLog(data[manifestHeader:]); has {
				m.firstLog = number
			}
		}
		return true
	})
	return m
}

// torn reports whether there is anything behind the whole chunks.
func (m edits) torn(data []byte) bool { return len(bytes.Trim(data[m.end:], "\x00")) > 0 }

// flipped reports whether a chunk was written completely behind the whole ones, and one bit has changed.
//
// A manifest is always a new file. So a part of a chunk has the end of the file behind it, or zeros if the length was
// durable and the content was not. With one bit of 48 in the header a part seems right with a probability of 48*2^-32,
// and zeros are recognised: an edit does not end with eight of them. If less is missing (8 of 4096 places), one of the
// 8*1000 bits of a large edit seems wrong with a probability of 2^-19: 4*10^-9 for a power failure that divides the write
// of an edit, of which there is one for each table.
func (m edits) flipped(data []byte) bool {
	const zeros = 8
	lengthOf := func(data []byte) int {
		kind, length := data[6], manifestHeader+int(binary.LittleEndian.Uint16(data[4:]))
		ends := kind == 1 || kind == lastManifestType
		if kind < 1 || kind > lastManifestType || length > len(data) || length == manifestHeader || !ends && !fills(data, m.end, length) {
			return 0
		}
		return length
	}
	_, _, found := oneBitOff(inBlock(data, m.end), manifestHeader, lengthOf, func(chunk []byte) bool {
		return len(chunk) < zeros || !bytes.Equal(chunk[len(chunk)-zeros:], make([]byte, zeros))
	})
	return found
}

// editedLog returns the number of the first log in an edit. It is the first element, except for the name of the comparer.
func editedLog(edit []byte) (uint64, bool) {
	const comparer, log = 1, 2
	tag, n := binary.Uvarint(edit)
	if n > 0 && tag == comparer {
		length, m := binary.Uvarint(edit[n:])
		if m <= 0 || length > uint64(len(edit)-n-m) {
			return 0, false
		}
		edit = edit[n+m+int(length):]
		tag, n = binary.Uvarint(edit)
	}
	if n <= 0 || tag != log {
		return 0, false
	}
	number, m := binary.Uvarint(edit[n:])
	return number, m > 0
}

// laterManifestChunk reports whether there is a chunk anywhere in data.
func laterManifestChunk(data []byte) bool {
	for at := range data {
		rest := data[at:min(len(data), at+blockSize)]
		if len(rest) < manifestHeader || rest[6] < 1 || rest[6] > lastManifestType {
			continue
		}
		if c, ok := chunkAt(rest, manifestHeader); ok && c.length > manifestHeader {
			return true
		}
	}
	return false
}
