package couch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"

	"settee/pkg/jsontext"
	"settee/pkg/redact"
)

const (
	// MaxDatabasesInfo is the maximum number of names in a call of [Server.DatabasesInfo]. It is CouchDB's default
	// ([couchdb] max_db_number_for_dbs_info_req).
	MaxDatabasesInfo = 100
	// maxDatabasesInfo is the maximum size in bytes of the answer.
	maxDatabasesInfo = 16 << 20
)

// Server is a server with databases. It has the requests that concern several of them, most of which need an
// administrator of the server. It is safe for concurrent use.
type Server struct {
	// d makes the requests. Its root is the server.
	d *Database
	// names is the number of names that the server accepts in a _dbs_info, as far as that is known.
	names atomic.Int64
}

// OpenServer checks cfg and returns the server it describes. cfg.URL is the server's root, which may be below a path.
// The rest is as in [Open], and the server shares sessions and limits of rates with its databases. It does not connect.
func OpenServer(cfg Config) (*Server, error) {
	d, err := openAt(cfg, "server", func(_ *url.URL, root string) string { return root })
	if err != nil {
		return nil, err
	}
	s := &Server{d: d}
	s.names.Store(MaxDatabasesInfo)
	return s, nil
}

// String returns the server's URL, without credentials.
func (s *Server) String() string { return "server " + s.d.root }

// Format writes String for every verb, so that printing never shows a secret.
func (s *Server) Format(f fmt.State, verb rune) {
	redact.Format(f, verb, s.String(), "couch.Server("+s.d.root+")")
}

// URL returns the server's URL, without credentials and without a slash at its end.
func (s *Server) URL() string { return s.d.root }

// Close closes the idle connections of the server's own pool. It does not affect active requests.
func (s *Server) Close() { s.d.Close() }

// Changes opens the changes feed of one of the server's databases, as [Database.Changes] does.
func (s *Server) Changes(ctx context.Context, database string, o ChangesOptions) (*Changes, error) {
	return s.d.changes(ctx, escapeSegment(database)+"/_changes", o)
}

// DatabaseInfo is what a server says about one of several databases.
type DatabaseInfo struct {
	Name string
	// UpdateSeq is the sequence of the last change, see [Info]. It is nil if the server does not tell it.
	UpdateSeq json.RawMessage
	// InstanceStartTime is as in [Info]. It is nil if the server does not tell it.
	InstanceStartTime json.RawMessage
	// SecurityDigest is a digest of the security object that does not depend on its spelling. It is empty if the server does not tell it:
	// only settee does.
	SecurityDigest string
	// Missing reports whether the server says that there is no such database. CouchDB says so, too, if it fails to read the
	// description, for example because too many databases are open.
	Missing bool
}

// DatabasesInfo reads the descriptions of databases (POST /_dbs_info), in the order of names, which are at most
// [MaxDatabasesInfo]. If the server accepts fewer names in a request, it makes several. Servers other than CouchDB 2.2
// and later and settee do not have the request, and CouchDB requires an administrator of the server: see
// [ErrUnauthorized] and [ErrNotFound].
func (s *Server) DatabasesInfo(ctx context.Context, names []string) ([]DatabaseInfo, error) {
	if len(names) > MaxDatabasesInfo {
		return nil, fmt.Errorf("_dbs_info: %d names are more than %d", len(names), MaxDatabasesInfo)
	}
	infos := make([]DatabaseInfo, 0, len(names))
	for len(infos) < len(names) {
		rest := names[len(infos):]
		some := rest[:min(len(rest), int(s.names.Load()))]
		more, err := s.databasesInfo(ctx, some)
		if e, ok := errors.AsType[*Error](err); ok && e.Status == http.StatusBadRequest && len(some) > 1 {
			s.names.Store(int64(len(some)+1) / 2) // too many names, unless they fail one by one
			continue
		}
		if err != nil {
			return nil, err
		}
		infos = append(infos, more...)
	}
	return infos, nil
}

// databasesInfo makes one request for all names.
func (s *Server) databasesInfo(ctx context.Context, names []string) ([]DatabaseInfo, error) {
	infos := make([]DatabaseInfo, len(names))
	for i, name := range names {
		infos[i].Name = name
	}
	err := s.d.fetch(ctx, &request{
		method: http.MethodPost, path: "_dbs_info",
		content: jsonType, body: bytesBody(appendStrings([]byte(`{"keys":`), names, '}')),
	}, maxDatabasesInfo, func(body []byte) error {
		told, err := parseDatabasesInfo(body)
		if err != nil {
			return err
		}
		for i := range infos {
			if info, ok := told[infos[i].Name]; ok {
				infos[i] = info
			}
		}
		return nil
	})
	return infos, err
}

// parseDatabasesInfo reads [{"key": name, "info": {...}}, {"key": name, "error": "not_found"}, ...].
func parseDatabasesInfo(body []byte) (map[string]DatabaseInfo, error) {
	var rows []struct {
		Key   string `json:"key"`
		Error string `json:"error"`
		Info  struct {
			UpdateSeq         json.RawMessage `json:"update_seq"`
			InstanceStartTime json.RawMessage `json:"instance_start_time"`
			SecurityDigest    json.RawMessage `json:"security_digest"`
		} `json:"info"`
	}
	if err := json.Unmarshal(body, &rows); err != nil {
		return nil, fmt.Errorf("%w: the descriptions of databases", ErrMalformed)
	}
	told := make(map[string]DatabaseInfo, len(rows))
	for _, row := range rows {
		info := DatabaseInfo{Name: row.Key, Missing: row.Error == "not_found", InstanceStartTime: row.Info.InstanceStartTime}
		if seq := row.Info.UpdateSeq; len(seq) > 0 && string(seq) != "null" {
			info.UpdateSeq = seq
		}
		info.SecurityDigest, _ = jsontext.String(row.Info.SecurityDigest)
		told[row.Key] = info
	}
	return told, nil
}
