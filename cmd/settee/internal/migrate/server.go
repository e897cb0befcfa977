package migrate

import (
	"errors"
	"net/http"

	"settee/cmd/settee/internal/remote"
)

// Server is one of the two servers. Its Name is "CouchDB" or "settee".
type Server struct{ *remote.Server }

// aboutBody reports whether err is an answer that says that the body of the request is not acceptable. Other answers are
// about the account, the path, the moment, or the server.
func aboutBody(err error) bool {
	e, ok := errors.AsType[*remote.StatusError](err)
	if !ok {
		return false
	}
	switch e.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed,
		http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	}
	return e.Status/100 == 4
}
