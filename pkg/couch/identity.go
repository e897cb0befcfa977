package couch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// welcome is what a server says of itself.
type welcome struct {
	UUID   string `json:"uuid"`
	Vendor struct {
		Name string `json:"name"`
	} `json:"vendor"`
}

// ServerIdentity returns what identifies the database's server, whatever the spelling of its URL is (GET /): its uuid with
// the name of its vendor, because a settee that has taken over from a CouchDB has the uuid of that. All nodes of a cluster
// have the same. It is empty if the server has no uuid. A server that does not tell it to this user is an error, because what
// is not known must not count as another server.
func (d *Database) ServerIdentity(ctx context.Context) (string, error) {
	var server welcome
	err := d.fetch(ctx, &request{method: http.MethodGet, server: true}, maxInfo, func(body []byte) error {
		_ = json.Unmarshal(body, &server) // other servers answer something else
		return nil
	})
	if errors.Is(err, ErrNotFound) {
		return "", nil
	}
	if err != nil || server.UUID == "" {
		return "", err
	}
	identity := strings.TrimSpace(server.UUID + " " + server.Vendor.Name)
	if len(identity) > maxIdentity {
		return "", fmt.Errorf("%w: the server has a uuid or a vendor of more than %d bytes", ErrMalformed, maxIdentity)
	}
	return identity, nil
}

// maxIdentity is the maximum size of an identity in bytes.
const maxIdentity = 300

// Identity returns what identifies the server, as [Database.ServerIdentity] does.
func (s *Server) Identity(ctx context.Context) (string, error) { return s.d.ServerIdentity(ctx) }

// told reads an object that a server need not have, or need not show to this user. Then into stays as it is. The request needs no
// method.
func (d *Database) told(ctx context.Context, r *request, into any) error {
	r.method = http.MethodGet
	err := d.fetch(ctx, r, maxInfo, func(body []byte) error {
		_ = json.Unmarshal(body, into) // the value is optional
		return nil
	})
	if e, ok := errors.AsType[*Error](err); ok && e.Status >= 400 && e.Status < 500 && !e.Temporary() {
		return nil
	}
	return err
}
