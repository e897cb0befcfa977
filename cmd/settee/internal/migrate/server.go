package migrate

import (
	"net/http"

	"settee/cmd/settee/internal/remote"
)

// Server is one of the two servers. Its Name is "CouchDB" or "settee".
type Server struct{ *remote.Server }

// Connect returns the server at a URL, which may have the name and the password of an administrator. It sends nothing.
func Connect(name, text string, transport http.RoundTripper) (*Server, error) {
	s, err := remote.Connect(name, text, transport)
	return &Server{s}, err
}
