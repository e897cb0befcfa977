package pebblekv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Pebble 2.1 ends its reading of the manifest and of the newest log at the first chunk whose checksum is wrong, because a
// write may not have been complete when the power failed. If the chunk was durable and has been damaged since, everything
// after it would silently be missing. Pebble finds such damage in a log by itself only if a later block says that the
// chunk was durable: it does not read the rest of the chunk's own block (32 KiB). It does not look for damage in the
// manifest. So both are read before Pebble opens the store:
//
//   - A chunk of the log has the offset up to which the log was durable when the chunk was written. If a
//     chunk before that offset is wrong, it is damaged.
//   - A chunk of the manifest is written after the one before it is durable. So one before another is damaged.
//     If the last one is wrong, the log that the ones before it need must be there.
//
// After a crash the commits of the last sync have nothing after them. There a chunk is damaged if one bit makes it
// right, which a write that was not complete hardly ever is. Other damage to these cannot be told from such a write.

// ErrDamaged is in the error of a store whose log or manifest is damaged.
var ErrDamaged = errors.New("the file is damaged: what was written later cannot be read")

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
	end, firstLog := manifestEnd(manifest)
	torn := len(bytes.Trim(manifest[end:], "\x00")) > 0
	if torn && (laterManifestChunk(manifest[end+1:]) || oneBitOff(inBlock(manifest, end), manifestHeader, 1, lastManifestType)) {
		return fmt.Errorf("%s at %d: %w", filepath.Base(name), end, ErrDamaged)
	}
	names, err := files.List(dir)
	if err != nil {
		return err
	}
	found := false
	for _, name := range names {
		number, isLog := logNumber(name)
		if !isLog || number < firstLog {
			continue
		}
		found = found || number == firstLog
		log, err := readFile(files, files.PathJoin(dir, name))
		if err != nil {
			return err
		}
		if at, damaged := damagedLog(log, uint32(number)); damaged {
			return fmt.Errorf("%s at %d: %w", name, at, ErrDamaged)
		}
	}
	if torn && !found {
		return fmt.Errorf("%s at %d: %w", filepath.Base(name), end, ErrDamaged)
	}
	return nil
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
	return c, storedSum(data) == crc32.Checksum(data[6:c.length], castagnoli)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// storedSum returns the checksum in a chunk's header, which is stored rotated and with a number added.
func storedSum(data []byte) uint32 {
	masked := binary.LittleEndian.Uint32(data) - 0xa282ead8
	return masked<<15 | masked>>17
}

// oneBitOff reports whether the chunk at the beginning of data is wrong, and would be right with one other bit. The
// types of chunks with this header are from first to last.
func oneBitOff(data []byte, header int, first, last byte) bool {
	if len(data) < header {
		return false
	}
	own := bytes.Clone(data)
	for bit := range 6 * 8 { // of the checksum and the length
		if own[6] < first || own[6] > last {
			break
		}
		own[bit/8] ^= 1 << (bit % 8)
		if _, ok := chunkAt(own, header); ok {
			return true
		}
		own[bit/8] ^= 1 << (bit % 8)
	}
	c, ok := chunkAt(data, header)
	if ok || c.length > len(data) {
		return false
	}
	// A checksum is linear: a flipped bit changes it by what does not depend on the others.
	change := storedSum(data) ^ crc32.Checksum(data[6:c.length], castagnoli)
	var by [8]uint32 // how each bit of a byte changes it
	for bit := range by {
		by[bit] = castagnoli[1<<bit]
	}
	for range c.length - 6 { // from the last byte to the first
		for bit, b := range by {
			if b == change {
				return true
			}
			by[bit] = castagnoli[byte(b)] ^ b>>8
		}
	}
	return false
}

// inBlock returns the rest of the block that the offset is in.
func inBlock(data []byte, at int) []byte { return data[at:min(len(data), at-at%blockSize+blockSize)] }

// walk passes the chunks from the beginning to take, and returns the offset of the first that is not a chunk. headerOf
// returns the size of the header of a kind of chunks. The largest is largest.
func walk(data []byte, largest int, headerOf func(kind byte) int, take func(c chunk, data []byte) bool) int {
	for at := 0; ; {
		rest, header := inBlock(data, at), largest
		if len(rest) >= manifestHeader {
			header = headerOf(rest[6])
		}
		c, ok := chunkAt(rest, header)
		switch {
		case ok && take(c, rest[:c.length]):
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

// manifestEnd returns the offset at which the chunks of a manifest end, and the number of the first log that it needs.
func manifestEnd(data []byte) (end int, firstLog uint64) {
	end = walk(data, manifestHeader, func(byte) int { return manifestHeader }, func(c chunk, data []byte) bool {
		if c.kind < 1 || c.kind > lastManifestType {
			return false
		}
		if c.kind <= 2 { // it begins an edit
			if number, has := editedLog(data[manifestHeader:]); has {
				firstLog = number
			}
		}
		return true
	})
	return end, firstLog
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

// damagedLog returns the offset of a chunk that was durable and is not right.
func damagedLog(data []byte, number uint32) (at int, damaged bool) {
	ofLog := func(data []byte, number uint32) bool { return binary.LittleEndian.Uint32(data[7:]) == number }
	durable := 0
	headerOf := func(kind byte) int {
		if kind < firstSyncedType {
			return plainHeader
		}
		return syncedHeader
	}
	end := walk(data, syncedHeader, headerOf, func(c chunk, data []byte) bool {
		return c.kind >= plainType && c.kind <= lastSyncedType && ofLog(data, number)
	})
	switch rest := data[end:]; {
	case len(rest) < plainHeader || rest[6] == plainType && ofLog(rest, number+1):
		return 0, false
	case oneBitOff(inBlock(data, end), syncedHeader, firstSyncedType, lastSyncedType),
		oneBitOff(inBlock(data, end), plainHeader, plainType, firstSyncedType-1):
		return end, true
	}
	for at := end + 1; at+syncedHeader <= len(data); at++ {
		rest := data[at:min(len(data), at+blockSize)]
		if rest[6] < firstSyncedType || rest[6] > lastSyncedType || !ofLog(rest, number) {
			continue
		}
		if _, ok := chunkAt(rest, syncedHeader); ok {
			durable = max(durable, int(min(binary.LittleEndian.Uint64(rest[plainHeader:]), uint64(len(data)))))
		}
	}
	return end, end < durable
}
