package auth

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha1" // for old hashes of CouchDB
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Scheme is the way a password was hashed.
type Scheme string

// CouchDB's schemes.
const (
	Simple       Scheme = "simple" // SHA-1 of password and salt, for old hashes
	PBKDF2       Scheme = "pbkdf2"
	SimplePBKDF2 Scheme = "simple+pbkdf2" // PBKDF2 of the hexadecimal digits of Simple
)

// DefaultPRF and DefaultIterations are the pseudorandom function and the iterations of new hashes
// in CouchDB 3.5.
const (
	DefaultPRF        = "sha256"
	DefaultIterations = 600_000
)

// PRFs are CouchDB's names of the hash functions for PBKDF2, the weakest first.
var PRFs = []string{"sha", "sha224", "sha256", "sha384", "sha512"}

// hashFunction returns the hash function with that name in CouchDB, or nil.
func hashFunction(name string) func() hash.Hash {
	switch name {
	case "sha":
		return sha1.New
	case "sha224":
		return sha256.New224
	case "sha256":
		return sha256.New
	case "sha384":
		return sha512.New384
	case "sha512":
		return sha512.New
	}
	return nil
}

// Hash is a hashed password. Hashes of one password have different salts.
type Hash struct {
	Scheme     Scheme
	PRF        string // for PBKDF2: one of PRFs
	Salt       string
	Iterations int    // for PBKDF2
	Key        string // hexadecimal digits
}

// ErrHash is the error for a malformed password hash.
var ErrHash = errors.New("not a password hash in CouchDB's form")

// NewHash hashes a password with PBKDF2 and a random salt. The time grows with the iterations:
// DefaultIterations take about a tenth of a second.
func NewHash(password, prf string, iterations int) Hash {
	h := Hash{Scheme: PBKDF2, PRF: prf, Salt: newSalt(), Iterations: iterations}
	h.Key = h.derive(password)
	return h
}

func newSalt() string {
	var salt [16]byte
	_, _ = rand.Read(salt[:]) // never fails
	return hex.EncodeToString(salt[:])
}

// IsWeaker reports whether a hash is weaker than a new one: of another scheme, with fewer
// iterations, or with as many and a weaker pseudorandom function. So servers with different
// settings do not undo each other's work.
func (h Hash) IsWeaker(prf string, iterations int) bool {
	if h.Scheme != PBKDF2 || h.Iterations != iterations {
		return h.Scheme != PBKDF2 || h.Iterations < iterations
	}
	return slices.Index(PRFs, h.PRF) < slices.Index(PRFs, prf)
}

// Renew returns a new hash of the same password with the salt of h. As in CouchDB nothing in it is
// random, so servers with the same settings make the same hash. The salt is also part of the key
// of cookies.
func (h Hash) Renew(password, prf string, iterations int) Hash {
	renewed := Hash{Scheme: PBKDF2, PRF: prf, Salt: h.Salt, Iterations: iterations}
	renewed.Key = renewed.derive(password)
	return renewed
}

// HasStrongSalt reports whether the salt has 16 or more characters, none with a meaning in
// [admins].
func (h Hash) HasStrongSalt() bool { return strongSalt.MatchString(h.Salt) }

var strongSalt = regexp.MustCompile("^[0-9A-Za-z]{16,}$")

// Verify reports whether the hash was made from the password. It takes about the same time for any
// password.
func (h Hash) Verify(password string) bool {
	key := ""
	switch h.Scheme {
	case Simple:
		key = simple(password, h.Salt)
	case PBKDF2:
		key = h.derive(password)
	case SimplePBKDF2:
		key = h.derive(simple(password, h.Salt))
	}
	return key != "" && subtle.ConstantTimeCompare([]byte(key), []byte(strings.ToLower(h.Key))) == 1
}

func simple(password, salt string) string {
	sum := sha1.Sum([]byte(password + salt))
	return hex.EncodeToString(sum[:])
}

// derive returns the key of PBKDF2, or "" for an invalid hash.
func (h Hash) derive(password string) string {
	function := hashFunction(h.PRF)
	if function == nil || h.Iterations < 1 {
		return ""
	}
	key, err := pbkdf2.Key(function, password, []byte(h.Salt), h.Iterations, function().Size())
	if err != nil { // only in FIPS mode
		return ""
	}
	return hex.EncodeToString(key)
}

// String returns the hash in the form of [admins]: -pbkdf2:PRF-KEY,SALT,ITERATIONS, or
// -hashed-KEY,SALT.
func (h Hash) String() string {
	switch h.Scheme {
	case Simple:
		return "-hashed-" + h.Key + "," + h.Salt
	case SimplePBKDF2: // only in documents
		return ""
	}
	return "-pbkdf2:" + h.PRF + "-" + h.Key + "," + h.Salt + "," + strconv.Itoa(h.Iterations)
}

// ParseAdmin parses a value of [admins]. hashed is false for a plain password. The error is
// ErrHash.
func ParseAdmin(text string) (h Hash, hashed bool, err error) {
	rest, isSimple := strings.CutPrefix(text, "-hashed-")
	if isSimple {
		key, salt, found := strings.Cut(rest, ",")
		h = Hash{Scheme: Simple, Key: key, Salt: salt}
		if !found || !h.hasKey(sha1.Size) {
			return Hash{}, true, ErrHash
		}
		return h, true, nil
	}
	if !strings.HasPrefix(text, "-pbkdf2-") && !strings.HasPrefix(text, "-pbkdf2:") {
		return Hash{}, false, nil
	}
	prf, rest, _ := strings.Cut(strings.TrimPrefix(text, "-pbkdf2"), "-")
	parts := strings.Split(rest, ",")
	if prf == "" {
		prf = ":sha" // before CouchDB 3.4
	}
	h = Hash{Scheme: PBKDF2, PRF: strings.TrimPrefix(prf, ":")}
	function := hashFunction(h.PRF)
	if len(parts) != 3 || function == nil {
		return Hash{}, true, ErrHash
	}
	h.Key, h.Salt = parts[0], parts[1]
	h.Iterations, err = strconv.Atoi(parts[2])
	if err != nil || h.Iterations < 1 || !h.hasKey(function().Size()) {
		return Hash{}, true, ErrHash
	}
	return h, true, nil
}

func (h Hash) hasKey(size int) bool {
	key, err := hex.DecodeString(h.Key)
	return err == nil && len(key) == size
}

// ParseUser parses the hash in a document of _users. ok is false if there is no valid one.
func ParseUser(members map[string]json.RawMessage) (h Hash, ok bool) {
	text := func(name, otherwise string) string {
		var value *string
		if raw, given := members[name]; !given || json.Unmarshal(raw, &value) != nil || value == nil {
			return otherwise
		}
		return *value
	}
	h = Hash{Scheme: Scheme(text("password_scheme", string(Simple))), Salt: text("salt", "")}
	switch h.Scheme {
	case Simple:
		h.Key = text("password_sha", "")
		return h, h.hasKey(sha1.Size)
	case PBKDF2, SimplePBKDF2:
		h.Key, h.PRF = text("derived_key", ""), text("pbkdf2_prf", "sha")
		h.Iterations = 10_000
		if raw, given := members["iterations"]; given && json.Unmarshal(raw, &h.Iterations) != nil {
			return h, false
		}
		function := hashFunction(h.PRF)
		return h, function != nil && h.Iterations >= 1 && h.hasKey(function().Size())
	}
	return h, false
}

// Members returns the members of a document of _users with the hash, in CouchDB's order.
func (h Hash) Members() []Member {
	if h.Scheme == Simple {
		return []Member{{"password_scheme", Simple}, {"salt", h.Salt}, {"password_sha", h.Key}}
	}
	return []Member{
		{"password_scheme", h.Scheme}, {"pbkdf2_prf", h.PRF}, {"salt", h.Salt}, {"iterations", h.Iterations}, {"derived_key", h.Key},
	}
}

// Member is a member of a JSON object.
type Member struct {
	Name  string
	Value any
}

// PasswordMembers are the members of a document of _users that a new password replaces.
var PasswordMembers = []string{
	"derived_key", "iterations", "password", "password_scheme", "password_sha", "preserve_salt", "pbkdf2_prf", "salt",
}

// MAC returns the HMAC-SHA256 of a list of texts. Different lists have different MACs.
func MAC(key []byte, texts ...string) [sha256.Size]byte {
	mac := hmac.New(sha256.New, key)
	for _, text := range texts {
		_, _ = mac.Write(strconv.AppendInt(nil, int64(len(text)), 10)) // never fails
		_, _ = mac.Write([]byte{':'})
		_, _ = mac.Write([]byte(text))
	}
	return [sha256.Size]byte(mac.Sum(nil))
}
