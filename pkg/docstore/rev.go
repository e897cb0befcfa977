package docstore

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"settee/pkg/docstore/internal/revtree"
	"settee/pkg/tuple"
)

// MaxRevIDSize is the maximum length of a revision's id, in bytes. Those that CouchDB makes have 32.
const MaxRevIDSize = 200

// Rev names a revision of a document: its position in the history, from 1, and its id, which may be empty. The zero
// value is no revision.
type Rev struct {
	Pos int64
	ID  string
}

// ParseRev parses a revision of the form N-id, as CouchDB does. Whether a document can have it, a write decides. The
// error is [ErrRevision].
func ParseRev(s string) (Rev, error) {
	pos, id, found := strings.Cut(s, "-")
	n, err := strconv.ParseInt(pos, 10, 64)
	if found && err == nil {
		id, err = ParseRevID(id)
	}
	if !found || err != nil || n == 0 && id == "" {
		return Rev{}, fmt.Errorf("%w: %s", ErrRevision, quote(s))
	}
	return Rev{n, id}, nil
}

// ParseRevID parses the id of a revision, as CouchDB does. Any 16 bytes are an id that is written as 32 lower-case
// hexadecimal digits. Any 32 bytes are hexadecimal digits, which become lower-case ones. All other text is an id as it is,
// also the empty one. The error is [ErrRevision].
func ParseRevID(id string) (string, error) {
	_, isHex := revtree.Raw(id)
	switch {
	case isHex:
		return id, nil
	case !utf8.ValidString(id):
		return "", fmt.Errorf("%w: the id %s", ErrRevision, quote(id))
	case len(id) == rawIDSize:
		return hex.EncodeToString([]byte(id)), nil
	case len(id) == 2*rawIDSize:
		if _, err := hex.DecodeString(id); err != nil {
			return "", fmt.Errorf("%w: the id %s", ErrRevision, quote(id))
		}
		return strings.ToLower(id), nil
	}
	return id, nil
}

// rawIDSize is the size in bytes of an id that is a digest.
const rawIDSize = 16

func (r Rev) String() string {
	if r == (Rev{}) {
		return ""
	}
	return strconv.FormatInt(r.Pos, 10) + "-" + r.ID
}

// Compare orders revisions as CouchDB does to find the winner among leaves that are all deleted, or all not: by
// position, then by the bytes of the id. 32 lower-case hexadecimal digits count as the 16 bytes that they stand for.
func (r Rev) Compare(s Rev) int { return revtree.Rev(r).Compare(revtree.Rev(s)) }

func (r Rev) check() error {
	if id, err := ParseRevID(r.ID); r.Pos < 1 || len(r.ID) > MaxRevIDSize || err != nil || id != r.ID {
		return fmt.Errorf("%w: %d-%s", ErrRevision, r.Pos, quote(r.ID))
	}
	return nil
}

// Sequence is the position of a document's last change among all changes of a database. Sequences only grow, also
// across restarts. The zero value lies before all changes.
type Sequence struct {
	stamp tuple.Versionstamp // of the commit
	// number is the number of changes in the database up to this one. It may be too small by the number of changes that
	// were committed at the same time.
	number int64
}

// sequenceForm is the form of a sequence: the number of changes and the stamp.
var sequenceForm = regexp.MustCompile(`^([0-9]{1,18})-([0-9a-fA-F]{24})$`)

// ParseSequence parses the result of [Sequence.String]. The error is [ErrInvalid].
func ParseSequence(s string) (Sequence, error) {
	var seq Sequence
	if s == "0" {
		return seq, nil
	}
	parts := sequenceForm.FindStringSubmatch(s)
	if parts == nil {
		return seq, fmt.Errorf("%w sequence %s", ErrInvalid, quote(s))
	}
	seq.number, _ = strconv.ParseInt(parts[1], 10, 64) // of at most 18 digits
	b, _ := hex.DecodeString(parts[2])                 // they are 24
	seq.stamp, _ = tuple.ParseVersionstamp(b)          // it has the length
	if !seq.stamp.IsComplete() {
		return Sequence{}, fmt.Errorf("%w sequence %s", ErrInvalid, quote(s))
	}
	return seq, nil
}

// String returns the number of changes up to this one, which clients show as progress, a dash, and 24 hexadecimal
// digits. The zero value is 0.
func (s Sequence) String() string {
	if s == (Sequence{}) {
		return "0"
	}
	return fmt.Sprintf("%d-%s", s.number, s.stamp)
}

// Compare returns -1, 0 or +1 if s lies before t, is t, or lies after t. Only the stamps count.
func (s Sequence) Compare(t Sequence) int { return s.stamp.Compare(t.stamp) }

// quote quotes and shortens a name, which may be any text, for an error.
func quote(s string) string {
	const most = 200
	if len(s) <= most {
		return strconv.Quote(s)
	}
	return strconv.Quote(s[:most]) + "..."
}
