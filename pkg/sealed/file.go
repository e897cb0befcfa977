package sealed

import (
	"bytes"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
)

// maxFile is the most bytes of a key file.
const maxFile = 1 << 20

// Read reads a key file. It refuses a file that its group or others may read or write, except that the group may read a
// file of root: so root gives a service a file that the service cannot change. These are PostgreSQL's rules for its key
// (https://www.postgresql.org/docs/17/ssl-tcp.html). Errors name the file and the line, but quote none of it.
func Read(path string) (*Keys, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the key file: %w", err)
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading the key file: %w", err)
	}
	if info.IsDir() {
		return nil, fmt.Errorf("reading the key file: %s is a directory", path)
	}
	forbidden := fs.FileMode(0o077)
	if ofRoot(info) {
		forbidden = 0o037
	}
	// The permissions of Windows are not in these bits.
	if info.Mode().Perm()&forbidden != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("reading the key file: %s has the permissions %04o: only its owner may have access to it (chmod 600), "+
			"or root and the group of the service, which reads it (chown root:settee, chmod 640)", path, info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading the key file: %w", err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("reading the key file: %s has more than %d bytes", path, maxFile)
	}
	return Parse(path, text)
}

// Parse parses the text of a key file with that name.
func Parse(name string, text []byte) (*Keys, error) {
	keys := &Keys{}
	lines := map[string]int{} // by id
	var secrets [][]byte
	number := 0
	for line := range bytes.Lines(text) {
		number++
		fields := strings.Fields(string(line))
		if len(fields) == 0 || fields[0][0] == '#' {
			continue
		}
		id, secret, err := parseLine(fields)
		switch before := lines[id]; {
		case err != nil:
		case before != 0:
			err = fmt.Errorf("the id %q is already used in line %d", id, before)
		case slices.ContainsFunc(secrets, func(other []byte) bool { return subtle.ConstantTimeCompare(other, secret) == 1 }):
			err = fmt.Errorf("the key %q is already used with another id", id)
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, number, err)
		}
		one, err := newKey(id, secret)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, number, err)
		}
		keys.all = append(keys.all, one)
		lines[id] = number
		secrets = append(secrets, secret)
	}
	if len(keys.all) == 0 {
		return nil, fmt.Errorf("%s: the file has no key", name)
	}
	return keys, nil
}

func parseLine(fields []string) (id string, secret []byte, err error) {
	if len(fields) != 2 {
		return "", nil, errors.New("a line must have an id and a key in base64")
	}
	if err := CheckID(fields[0]); err != nil {
		return "", nil, err
	}
	secret, err = base64.StdEncoding.Strict().DecodeString(fields[1])
	if err != nil {
		return "", nil, errors.New("the key is not base64") // the decoder's error would quote it
	}
	if len(secret) != keySize {
		return "", nil, fmt.Errorf("the key must have %d bytes, and has %d", keySize, len(secret))
	}
	return fields[0], secret, nil
}

// CheckID returns an error if a key cannot have that id. Ids have 1 to 32 ASCII letters, digits,
// and . _ -. The error does not quote the id, which may be a key in the wrong place.
func CheckID(id string) error {
	strange := strings.ContainsFunc(id, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && c != '.' && c != '_' && c != '-'
	})
	if id == "" || len(id) > MaxIDSize || strange {
		return fmt.Errorf("the id of a key must have from 1 to %d letters, digits, and . _ -", MaxIDSize)
	}
	return nil
}

// NewLine returns a line of a key file with a new key.
func NewLine(id string) (string, error) {
	if err := CheckID(id); err != nil {
		return "", err
	}
	secret := make([]byte, keySize)
	_, _ = rand.Read(secret) // never fails (crypto/rand.Read)
	return id + " " + base64.StdEncoding.EncodeToString(secret) + "\n", nil
}
