// Package remote asks the server at a URL, a CouchDB or a node of settee, and reads its answers in JSON.
package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"settee/pkg/jsontext"
	"settee/pkg/redact"
)

const (
	// Timeout bounds each request except those of [Server.Send].
	Timeout = 2 * time.Minute
	// maxAnswer is the size in bytes of the largest answer that is read as a whole.
	maxAnswer = 64 << 20
)

// Server is a server that a command asks.
type Server struct {
	// Name says in errors and messages which server it is: "CouchDB" or "settee".
	Name string

	root      *url.URL // without the user
	user      *url.Userinfo
	transport http.RoundTripper
}

// Connect returns the server at a URL, which may have the name and the password of an administrator. It sends nothing.
func Connect(name, text string, transport http.RoundTripper) (*Server, error) {
	root, err := url.Parse(text)
	if err != nil || root.Scheme != "http" && root.Scheme != "https" || root.Host == "" || root.RawQuery != "" {
		return nil, fmt.Errorf("%q is not the URL of a server, such as http://admin:password@127.0.0.1:5984", redact.Text(text))
	}
	s := &Server{Name: name, user: root.User, transport: transport}
	root.User = nil
	root.Path = strings.TrimSuffix(root.Path, "/")
	s.root = root
	return s, nil
}

// URL returns the URL without credentials, and without a slash at its end.
func (s *Server) URL() string { return s.root.String() }

// Host returns the host and the port of the URL.
func (s *Server) Host() string { return s.root.Host }

// String returns the name and the URL, without credentials.
func (s *Server) String() string { return s.Name + " (" + s.root.String() + ")" }

// StatusError is an answer of a server that says no.
type StatusError struct {
	Status       int
	Code, Reason string // the members error and reason of the answer

	waited bool // see waited
}

func (e *StatusError) Error() string {
	return strings.TrimSuffix(fmt.Sprintf("%d %s: %s", e.Status, e.Code, e.Reason), ": ")
}

// IsStatus reports whether err is an answer with a status.
func IsStatus(err error, status int) bool {
	e, ok := errors.AsType[*StatusError](err)
	return ok && e.Status == status
}

// Path returns the path of a database, or of what is below it, from its unescaped segments.
func Path(segments ...string) string {
	for i, s := range segments {
		segments[i] = url.PathEscape(s)
	}
	return "/" + strings.Join(segments, "/")
}

// Send sends a request, and returns the body of an answer with a 2xx. The caller closes it.
func (s *Server) Send(ctx context.Context, method, path string, body any) (io.ReadCloser, error) {
	response, err := s.request(ctx, method, path, nil, body)
	if err != nil {
		return nil, fmt.Errorf("%s %s%s: %w", method, s.root, path, err)
	}
	return response.Body, nil
}

// request returns an answer with a 2xx, or the *StatusError of another one. It sends header besides the usual headers.
func (s *Server) request(ctx context.Context, method, path string, header http.Header, body any) (*http.Response, error) {
	var content io.Reader = http.NoBody
	if body != nil {
		text, err := jsontext.Encode(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, s.root.String()+path, content)
	if err != nil {
		return nil, err
	}
	maps.Copy(request.Header, header)
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Content-Type", "application/json")
	if s.user != nil {
		password, _ := s.user.Password()
		request.SetBasicAuth(s.user.Username(), password)
	}
	response, err := s.transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 == 2 {
		return response, nil
	}
	defer func() { _ = response.Body.Close() }()
	refusal := struct{ Error, Reason string }{}
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	if json.Unmarshal(text, &refusal) != nil {
		refusal.Error = http.StatusText(response.StatusCode)
	}
	return nil, &StatusError{response.StatusCode, refusal.Error, redact.Text(refusal.Reason), waited(response)}
}

// within bounds the time of a request.
func within(ctx context.Context, longest time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, longest, fmt.Errorf("the server has not answered within %v", longest))
}

// Ask sends a request, and decodes the answer into answer, unless that is nil.
func (s *Server) Ask(ctx context.Context, method, path string, body, answer any) error {
	ctx, cancel := within(ctx, Timeout)
	defer cancel()
	from, err := s.Send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // it was read
	text, err := readAll(from)
	if err == nil && answer != nil {
		err = json.Unmarshal(text, answer)
	}
	if err != nil {
		return fmt.Errorf("%s %s%s: %w", method, s.root, path, err)
	}
	return nil
}

// readAll returns the whole of an answer.
func readAll(from io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(from, maxAnswer+1))
	if err == nil && len(text) > maxAnswer {
		err = fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	}
	return text, err
}

// Get is Ask for a GET.
func (s *Server) Get(ctx context.Context, path string, answer any) error {
	return s.Ask(ctx, http.MethodGet, path, nil, answer)
}
