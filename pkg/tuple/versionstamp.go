package tuple

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// versionstampSize is the length of an encoded versionstamp in bytes.
const versionstampSize = 12

var incompleteVersion = [10]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// Versionstamp is the position of one write in the order of all writes of a store. It is encoded
// as TransactionVersion followed by UserVersion, big-endian.
type Versionstamp struct {
	// TransactionVersion is the commit's position among all commits: eight bytes of commit
	// version and two of order among the commits of that version, both big-endian. The store
	// knows it when it commits; until then it is ten 0xff bytes, and the versionstamp is
	// incomplete.
	TransactionVersion [10]byte

	// UserVersion is set by the writer and orders the writes of one commit. It must differ for
	// each stamped write of a transaction.
	UserVersion uint16
}

// IncompleteVersionstamp returns a versionstamp whose transaction version the store sets when it
// commits. It sorts after all complete ones.
func IncompleteVersionstamp(userVersion uint16) Versionstamp {
	return Versionstamp{TransactionVersion: incompleteVersion, UserVersion: userVersion}
}

// ParseVersionstamp returns the versionstamp with those Bytes. Its error wraps ErrMalformed if b
// is not 12 bytes long.
func ParseVersionstamp(b []byte) (Versionstamp, error) {
	if len(b) != versionstampSize {
		return Versionstamp{}, fmt.Errorf("%w: versionstamp of %d bytes, want %d", ErrMalformed, len(b), versionstampSize)
	}
	return decodeVersionstamp(b), nil
}

// IsComplete reports whether v has the position of a commit.
func (v Versionstamp) IsComplete() bool {
	return v.TransactionVersion != incompleteVersion
}

// Compare returns -1, 0 or +1 as v sorts before w, is equal, or sorts after it.
func (v Versionstamp) Compare(w Versionstamp) int {
	if c := bytes.Compare(v.TransactionVersion[:], w.TransactionVersion[:]); c != 0 {
		return c
	}
	return cmp.Compare(v.UserVersion, w.UserVersion)
}

// Bytes returns the 12 bytes of v, which sort as versionstamps do.
func (v Versionstamp) Bytes() []byte {
	return v.appendTo(make([]byte, 0, versionstampSize))
}

// String returns the 24 hexadecimal digits of v's bytes.
func (v Versionstamp) String() string {
	return hex.EncodeToString(v.Bytes())
}

func (v Versionstamp) appendTo(dst []byte) []byte {
	dst = append(dst, v.TransactionVersion[:]...)
	return binary.BigEndian.AppendUint16(dst, v.UserVersion)
}

// decodeVersionstamp reads a versionstamp of versionstampSize bytes.
func decodeVersionstamp(raw []byte) Versionstamp {
	return Versionstamp{
		TransactionVersion: [10]byte(raw[:10]),
		UserVersion:        binary.BigEndian.Uint16(raw[10:]),
	}
}
