package couch

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
)

// Security reads the database's security object (GET /{db}/_security), a JSON object that says who may read and who may
// administer the database.
func (d *Database) Security(ctx context.Context) (json.RawMessage, error) {
	return d.securityAt(ctx, "_security")
}

// Security reads the security object of one of the server's databases, as [Database.Security] does.
func (s *Server) Security(ctx context.Context, database string) (json.RawMessage, error) {
	return s.d.securityAt(ctx, escapeSegment(database)+"/_security")
}

func (d *Database) securityAt(ctx context.Context, path string) (json.RawMessage, error) {
	var object json.RawMessage
	err := d.fetch(ctx, &request{method: http.MethodGet, path: path}, maxInfo, func(body []byte) (err error) {
		object, err = wholeObject(body)
		return err
	})
	return object, err
}

// PutSecurity writes the database's security object. The server requires an administrator of the database or of the
// server. CouchDB refuses to change the object of `_users` unless [couchdb] users_db_security_editable allows it.
func (d *Database) PutSecurity(ctx context.Context, object json.RawMessage) error {
	return d.fetch(ctx, &request{
		method: http.MethodPut, path: "_security", content: jsonType, body: bytesBody(object),
	}, maxInfo, nil)
}

// IsCouchDB reports whether a CouchDB has answered. Whether its `_security` object has changed, a database of a CouchDB shows
// by its update_seq.
func (s *Server) IsCouchDB() bool { return s.d.couchDB.Load() }

// Parameters returns the query with which [Database.Create] makes a database like the one that info describes: q, n and
// partitioned. It is empty unless the server has turned out to be a CouchDB: other servers do not have shards. It has no n
// if the database has a single copy: one that moves from one node to a cluster gets the number of copies of the cluster.
func (d *Database) Parameters(info Info) url.Values {
	query := url.Values{}
	if !d.couchDB.Load() {
		return query
	}
	var cluster struct {
		Q, N int
	}
	if json.Unmarshal(info.Cluster, &cluster) == nil {
		if cluster.Q > 0 {
			query.Set("q", strconv.Itoa(cluster.Q))
		}
		if cluster.N > 1 {
			query.Set("n", strconv.Itoa(cluster.N))
		}
	}
	var props struct {
		Partitioned bool `json:"partitioned"`
	}
	if json.Unmarshal(info.Props, &props) == nil && props.Partitioned {
		query.Set("partitioned", "true")
	}
	return query
}
