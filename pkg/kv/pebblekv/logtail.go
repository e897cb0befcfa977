package pebblekv

import (
	"encoding/binary"
	"hash/crc64"
	"math/bits"
	"slices"
)

// How a wrong bit in a log is told from a write that was not complete when the process or the machine stopped.
//
// Behind its last whole chunk a log has anything: nothing, zeros (space that was reserved), chunks of the log whose file
// was reused, in parts, or a chunk of its own of which a part was written, with any of these behind it. None of them is
// damage. What counts is a record that was completely written, and then lost one bit:
//
//   - Its chunk's header has the type, the length, the log's number and the durable offset that the next chunk of this
//     log must have, and the checksum is right, if one bit is another one.
//   - Its seal is right with this bit. Each batch ends with a seal: a checksum of what is before it, in a record that
//     Pebble writes only to its log.
//
// The odds that something else is taken for such a record:
//
//   - 32 random bits are the number of the log, except for one, with a probability of 33*2^-32. Then the checksum is
//     right with one of 8*32768+48 other bits with a probability of 2^-14, and the seal with 2^-64.
//     So a random tail is taken for a damaged record once in 2^105.
//   - The first part of a chunk of this log with other bytes behind it has the right header. Its checksum seems one
//     bit off with a probability of up to 2^-14: too often to refuse a store for it. The seal makes it 2^-78, also if the
//     missing part is in the middle, as after a power failure.
//   - What is missing may be the last bytes only, and differ in a single bit from what is there: for one byte with a
//     probability of 8/256. Then the bit is in the seal, and checkLog puts it right. It is not there for another
//     reason with more than the 8 bytes of the seal's checksum missing: they would have to be right by chance, which is 2^-64.
//   - The 12 bytes of Pebble's header of a batch are not in the seal. If a power failure divides exactly those (12 of
//     4096 places), one of their 96 bits seems wrong with a probability of 96*2^-32: 7*10^-11 for such a failure.
//
// A record without a seal is not called damaged by its bits.

// sealLength is the length of a seal: the kind of the record, its length, and the checksum.
const sealLength = 2 + crc64.Size

// The parts of a batch in the log that a seal depends on.
const (
	batchHeader = 12 // sequence number, number of operations
	logDataKind = 3
)

var ecma = crc64.MakeTable(crc64.ECMA)

// sealOf returns the seal for a batch, without the kind and the length of its record.
func sealOf(batch []byte) []byte {
	return binary.LittleEndian.AppendUint64(nil, crc64.Checksum(batch[batchHeader:], ecma))
}

// sealed reports whether a record of the log is a batch that ends with its seal.
func sealed(record []byte) bool {
	end := len(record) - sealLength
	return end >= batchHeader && record[end] == logDataKind && record[end+1] == crc64.Size &&
		binary.LittleEndian.Uint64(record[end+2:]) == crc64.Checksum(record[batchHeader:end], ecma)
}

// logTail is the end of a log's whole chunks.
type logTail struct {
	number uint32
	at     int    // the offset behind the last whole chunk
	began  int    // where the last record begins that is not complete, or at
	open   bool   // there is such a record
	record []byte // what there is of it
	synced uint64 // the durable offset in the last chunk
}

// chunksOf reads the whole chunks of a log.
func chunksOf(data []byte, number uint32) logTail {
	t := logTail{number: number}
	headerOf := func(kind byte) int {
		if kind < firstSyncedType {
			return plainHeader
		}
		return syncedHeader
	}
	t.at = walk(data, syncedHeader, headerOf, func(at int, c chunk, data []byte) bool {
		if c.kind < plainType || c.kind > lastSyncedType || numberIn(data) != number {
			return false
		}
		header := headerOf(c.kind)
		if header == syncedHeader {
			t.synced = offsetIn(data)
		}
		t.add(at, (c.kind-plainType)%4, data[header:])
		return true
	})
	if !t.open {
		t.began = t.at
	}
	return t
}

// The position of a chunk in its record. Each kind of header has these in this order.
const (
	whole = iota
	first
	middle
	last
)

func (t *logTail) add(at int, position byte, content []byte) {
	t.open = position == first || position == middle
	switch position {
	case first:
		t.began, t.record = at, slices.Clone(content)
	case middle:
		t.record = append(t.record, content...)
	default:
		t.record = nil
	}
}

func numberIn(chunk []byte) uint32 { return binary.LittleEndian.Uint32(chunk[manifestHeader:]) }
func offsetIn(chunk []byte) uint64 { return binary.LittleEndian.Uint64(chunk[plainHeader:]) }

// lengthOf returns the length of a chunk, with its header, if data begins with a header that the next chunk must have.
// data is the rest of its block. Otherwise the length is 0.
func (t *logTail) lengthOf(data []byte) int {
	position, length := int(data[6])-firstSyncedType, syncedHeader+int(binary.LittleEndian.Uint16(data[4:]))
	offset := offsetIn(data)
	begins, ends := position == whole || position == first, position == whole || position == last
	switch {
	case position < whole || position > last || begins == t.open,
		length > len(data), !ends && !fills(data, t.at, length),
		numberIn(data) != t.number, offset < t.synced || offset > uint64(t.at):
		return 0
	}
	return length
}

// fills reports whether a chunk of this length at an offset goes to the end of its block. data is the rest of the block.
// All chunks of a record except the last do.
func fills(data []byte, at, length int) bool {
	return length == len(data) && (at+length)%blockSize == 0
}

// wrongBit looks for the bit that is wrong in a record that was written completely behind the whole chunks of a log. It returns
// the offset of its byte, its mask, and whether it is in the checksum of the seal.
func (t *logTail) wrongBit(data []byte) (at int, bit byte, found, inSum bool) {
	at, bit, found = oneBitOff(inBlock(data, t.at), syncedHeader, t.lengthOf, func(chunk []byte) bool { return t.completes(data, chunk) })
	if !found {
		return 0, 0, false, false
	}
	rest := inBlock(data, t.at)
	length, position := syncedHeader+int(binary.LittleEndian.Uint16(rest[4:])), rest[6]-firstSyncedType
	inSum = at >= max(syncedHeader, length-crc64.Size) && (position == whole || position == last)
	return t.at + at, bit, true, inSum
}

// wrongBits puts the wrong bits of a log right, and returns the offsets of their bytes and the end of the whole chunks then.
func wrongBits(data []byte, number uint32) (offsets []int, tail logTail) {
	for {
		tail = chunksOf(data, number)
		at, bit, found, _ := tail.wrongBit(data)
		if !found {
			return offsets, tail
		}
		offsets = append(offsets, at)
		data[at] ^= bit
	}
}

// completes reports whether a chunk, which is at the end of the whole ones, makes a sealed record of what is before and
// behind it.
func (t *logTail) completes(data, chunk []byte) bool {
	next := logTail{number: t.number, at: t.at, open: t.open, record: slices.Clone(t.record)}
	for {
		position := chunk[6] - firstSyncedType
		next.record = append(next.record, chunk[syncedHeader:]...)
		next.at, next.synced, next.open = next.at+len(chunk), offsetIn(chunk), true
		if position == whole || position == last {
			return sealed(next.record)
		}
		rest := inBlock(data, next.at)
		if len(rest) < syncedHeader {
			return false
		}
		length := next.lengthOf(rest)
		if length == 0 || storedSum(rest) != sumOf(rest[:length]) {
			return false
		}
		chunk = rest[:length]
	}
}

// markOfEnd is what Pebble writes at the end of a log that it has closed: a chunk without content and checksum, with the next
// number.
func (t *logTail) markOfEnd() []byte {
	mark := make([]byte, plainHeader)
	mark[6] = plainType
	binary.LittleEndian.PutUint32(mark[7:], t.number+1)
	return mark
}

// wrongMark looks for the bit that is wrong in the mark of the end of a log. It returns the offset of its byte and its mask.
func (t *logTail) wrongMark(data []byte) (at int, bit byte, wrong bool) {
	mark, rest := t.markOfEnd(), data[t.at:]
	if t.open || len(rest) != len(mark) {
		return 0, 0, false
	}
	differs := 0
	for i := range mark {
		if other := mark[i] ^ rest[i]; other != 0 {
			at, bit, differs = t.at+i, other, differs+bits.OnesCount8(other)
		}
	}
	return at, bit, differs == 1
}

// damage returns the rule by which a log is damaged behind its whole chunks, or "".
func (t *logTail) damage(data []byte) string {
	rest := data[t.at:]
	switch {
	case len(rest) < plainHeader, rest[6] == plainType && numberIn(rest) == t.number+1: // Pebble's mark of the end
		return ""
	case t.followed(data):
		return laterRecordRule
	case t.promised(data):
		return promisedRule
	}
	return ""
}

// followed reports whether a later record of the log is complete. A batch is written when the one before it is durable.
//
// It reads the chunks behind the one that is wrong, by its length, and those of all later blocks, because a block begins
// with a chunk. It does not look for chunks at other offsets, where the content of a record might look like one.
func (t *logTail) followed(data []byte) bool {
	next := t.at - t.at%blockSize + blockSize
	if rest := inBlock(data, t.at); len(rest) >= syncedHeader {
		behind := t.at + syncedHeader + int(binary.LittleEndian.Uint16(rest[4:]))
		if behind < next && t.completeIn(data, behind) {
			return true
		}
	}
	for ; next < len(data); next += blockSize {
		if t.completeIn(data, next) {
			return true
		}
	}
	return false
}

// completeIn reports whether one of the chunks from an offset to the end of its block begins a complete record.
func (t *logTail) completeIn(data []byte, at int) bool {
	for at < len(data) {
		rest := inBlock(data, at)
		c, ok := chunkAt(rest, syncedHeader)
		if !ok || numberIn(rest) != t.number {
			return false
		}
		begin := logTail{number: t.number, at: at}
		if begin.lengthOf(rest) == c.length && begin.completes(data, rest[:c.length]) {
			return true
		}
		at += c.length
	}
	return false
}

// promised reports whether a later chunk of the log says that more than its whole chunks was durable.
//
// A random tail has such a chunk at one of 2^26 offsets (64 MiB) with a probability below 2^26*2^-6*2^-32*2^-32: the type,
// the number and the checksum are right.
func (t *logTail) promised(data []byte) bool {
	for at := t.at + 1; at+syncedHeader <= len(data); at++ {
		rest := data[at:min(len(data), at+blockSize)]
		if rest[6] < firstSyncedType || rest[6] > lastSyncedType || numberIn(rest) != t.number {
			continue
		}
		if _, ok := chunkAt(rest, syncedHeader); ok && min(offsetIn(rest), uint64(len(data))) > uint64(t.at) {
			return true
		}
	}
	return false
}
