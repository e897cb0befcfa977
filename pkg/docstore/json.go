package docstore

import (
	"errors"
	"fmt"
	"strings"

	"settee/pkg/jsontext"
)

// BodyMember reports whether the body of a document may have a member of that name. Names that begin with an underscore
// are reserved, except the five in which CouchDB's replicator stores a document's state. These are allowed in any
// database.
func BodyMember(name string) bool {
	switch name {
	case "_replication_state", "_replication_state_time", "_replication_state_reason",
		"_replication_id", "_replication_stats":
		return true
	}
	return !strings.HasPrefix(name, "_")
}

// checkBody checks that body is a JSON object with only the members that [BodyMember] allows.
func checkBody(body []byte) error {
	return checkObject(body, func(name string) error {
		if !BodyMember(name) {
			return fmt.Errorf("bad special document member: %s", quote(name))
		}
		return nil
	})
}

// checkObject checks that text is a JSON object in valid UTF-8, and the names of its members. As in CouchDB, a string
// must not have half of a surrogate pair without the other half.
func checkObject(text []byte, checkName func(string) error) error {
	switch err := jsontext.Check(text, jsontext.PairedSurrogates); {
	case errors.Is(err, jsontext.ErrSurrogate):
		return fmt.Errorf("it has %w", err)
	case err != nil:
		return fmt.Errorf("it is %w", err)
	case !jsontext.IsObject(text):
		return errors.New("it is not a JSON object")
	}
	for m := range jsontext.Members(text) {
		if err := checkName(string(m.Key)); err != nil {
			return err
		}
	}
	return nil
}
