package auth

import (
	"bytes"
	"crypto/hmac"
	"crypto/subtle"
	"encoding/base32"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// oneTimeStep is the time step of one-time passwords (RFC 6238, section 5.2). Those of the steps
// before and after are accepted too, as in CouchDB.
const oneTimeStep = 30 * time.Second

// OneTime generates a user's one-time passwords (RFC 6238), from the member totp of a document of
// _users: a key in base32, an algorithm, which is one of PRFs, and the number of digits. For the
// zero value no password is right.
type OneTime struct {
	key       []byte
	algorithm string
	length    int
}

// ParseOneTime parses the member totp of a document of _users. given is false if there is none.
// If it is malformed, no password is right, because a user with a second factor must not log in
// without it.
func ParseOneTime(members map[string]json.RawMessage) (o OneTime, given bool) {
	raw, given := members["totp"]
	if !given {
		return OneTime{}, false
	}
	var stated map[string]json.RawMessage
	if json.Unmarshal(raw, &stated) != nil {
		return OneTime{}, true
	}
	key, algorithm, length := "", "sha", 6
	for name, into := range map[string]any{"key": &key, "algorithm": &algorithm, "length": &length} {
		if value, has := stated[name]; has && (bytes.Equal(value, []byte("null")) || json.Unmarshal(value, into) != nil) {
			return OneTime{}, true
		}
	}
	plain, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(strings.TrimRight(key, "="))
	if err != nil || len(plain) == 0 || hashFunction(algorithm) == nil || length < 6 || length > 8 {
		return OneTime{}, true
	}
	return OneTime{plain, algorithm, length}, true
}

// Verify reports whether a one-time password is right at a time, and returns its time step, the
// latest one if several steps have that password. The caller checks that it was not used before
// (RFC 6238, section 5.2).
func (o OneTime) Verify(password string, now time.Time) (step int64, right bool) {
	if len(o.key) == 0 {
		return 0, false
	}
	first, last := OneTimeSteps(now)
	for at := first; at <= last; at++ {
		if subtle.ConstantTimeCompare([]byte(o.at(at)), []byte(password)) == 1 {
			step, right = at, true
		}
	}
	return step, right
}

// OneTimeSteps returns the first and the last time step whose one-time passwords are right at a
// time.
func OneTimeSteps(now time.Time) (first, last int64) {
	const seconds = int64(oneTimeStep / time.Second)
	return now.Add(-oneTimeStep).Unix() / seconds, now.Add(oneTimeStep).Unix() / seconds
}

// at returns the password of a time step (RFC 4226, section 5.3).
func (o OneTime) at(step int64) string {
	mac := hmac.New(hashFunction(o.algorithm), o.key)
	_ = binary.Write(mac, binary.BigEndian, step) // never fails
	sum := mac.Sum(nil)
	offset := sum[len(sum)-1] & 0xf
	code := binary.BigEndian.Uint32(sum[offset:]) & (1<<31 - 1)
	digits := fmt.Sprintf("%08d", code%100_000_000)
	return digits[8-o.length:]
}
