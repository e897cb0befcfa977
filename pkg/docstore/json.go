package docstore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// BodyMember reports whether the body of a document may have a member of that name. Names
// that begin with an underscore are reserved, but for five that CouchDB keeps in bodies, of
// any database: those in which its replicator says what became of a document.
func BodyMember(name string) bool {
	switch name {
	case "_replication_state", "_replication_state_time", "_replication_state_reason",
		"_replication_id", "_replication_stats":
		return true
	}
	return !strings.HasPrefix(name, "_")
}

// checkBody checks that body can be a document's: a JSON object with no other members than
// those of [BodyMember].
func checkBody(body []byte) error {
	return checkObject(body, func(name string) error {
		if !BodyMember(name) {
			return fmt.Errorf("bad special document member: %s", quote(name))
		}
		return nil
	})
}

// checkObject checks that text is a JSON object in valid UTF-8, and each name of its members.
// As CouchDB's, its strings have no half of a surrogate pair without the other.
func checkObject(text []byte, checkName func(string) error) error {
	if !json.Valid(text) {
		return errors.New("it is not JSON")
	}
	if !utf8.Valid(text) {
		return errors.New("it is not UTF-8")
	}
	text = bytes.TrimLeft(text, " \t\r\n")
	if text[0] != '{' {
		return errors.New("it is not a JSON object")
	}
	depth, isName := 0, false
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{', '[':
			depth++
			isName = depth == 1
		case '}', ']':
			depth--
		case ',':
			isName = depth == 1
		case '"':
			end := i + stringLength(text[i:])
			if err := checkSurrogates(text[i:end]); err != nil {
				return err
			}
			if isName {
				var name string
				if err := json.Unmarshal(text[i:end], &name); err != nil {
					return err
				}
				if err := checkName(name); err != nil {
					return err
				}
				isName = false
			}
			i = end - 1
		}
	}
	return nil
}

// stringLength returns how long the string is, with its quotes, that valid JSON begins with.
func stringLength(text []byte) int {
	for i := 1; ; i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
}

// checkSurrogates checks the escapes of a string of valid JSON.
func checkSurrogates(text []byte) error {
	for {
		i := bytes.IndexByte(text, '\\')
		if i < 0 {
			return nil
		}
		if text[i+1] != 'u' {
			text = text[i+2:]
			continue
		}
		unit := escaped(text[i:])
		text = text[i+6:]
		if !utf16.IsSurrogate(unit) {
			continue
		}
		if !bytes.HasPrefix(text, []byte(`\u`)) || utf16.DecodeRune(unit, escaped(text)) == utf8.RuneError {
			return fmt.Errorf("it has half of a surrogate pair, \\u%04x", unit)
		}
		text = text[6:]
	}
}

// escaped reads \uXXXX.
func escaped(text []byte) rune {
	n, _ := strconv.ParseUint(string(text[2:6]), 16, 16) // valid JSON has four digits there
	return rune(n)
}
