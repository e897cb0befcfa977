package web

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"settee/pkg/config"
)

// NewUUID returns 32 random hexadecimal digits.
func NewUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// UUIDs makes the ids of documents. The zero value is ready to use.
type UUIDs struct {
	mu sync.Mutex
	// prefix is the 26 digits that sequential ids begin with, empty before the first. number is the rest of the last one.
	prefix string
	number uint32
	clock  int64 // the latest time in an id, in microseconds since the Unix epoch
}

// New returns an id of [uuids] algorithm.
func (u *UUIDs) New(cfg *config.Config) string {
	switch config.UUIDAlgorithm.Get(cfg) {
	case "random":
		return NewUUID()
	case "utc_random":
		return u.time() + NewUUID()[:18]
	case "utc_id":
		return u.time() + config.UTCIDSuffix.Get(cfg)
	}
	return u.sequential()
}

// maxSequential is the largest number of sequential ids that another step may follow: the number has six digits.
const maxSequential = 0xfff000

// sequential returns a random prefix and a number that grows by random steps, as CouchDB does. Such ids are neighbours
// in an index.
func (u *UUIDs) sequential() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.prefix == "" || u.number >= maxSequential {
		u.prefix, u.number = NewUUID()[:26], 0
	}
	var b [2]byte
	_, _ = rand.Read(b[:]) // never fails
	u.number += 1 + uint32(binary.BigEndian.Uint16(b[:]))%0xffe
	return fmt.Sprintf("%s%06x", u.prefix, u.number)
}

// time returns 14 digits: the microseconds since the Unix epoch. No two are the same.
func (u *UUIDs) time() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.clock = max(u.clock+1, time.Now().UnixMicro())
	return fmt.Sprintf("%014x", u.clock)
}
