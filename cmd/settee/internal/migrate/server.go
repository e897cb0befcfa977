package migrate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"settee/pkg/jsontext"
	"settee/pkg/redact"
)

const (
	// requestTimeout bounds each request to one of the two servers.
	requestTimeout = 2 * time.Minute
	// maxAnswer is the size in bytes of the largest answer that is read as a whole.
	maxAnswer = 64 << 20
)

// Server is one of the two servers.
type Server struct {
	// Name is "CouchDB" or "settee".
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

// String returns the name and the URL, without credentials.
func (s *Server) String() string { return s.Name + " (" + s.root.String() + ")" }

// statusError is an answer of a server that says no.
type statusError struct {
	status       int
	code, reason string
}

func (e *statusError) Error() string {
	return strings.TrimSuffix(fmt.Sprintf("%d %s: %s", e.status, e.code, e.reason), ": ")
}

// isStatus reports whether err is an answer with a status.
func isStatus(err error, status int) bool {
	e, ok := errors.AsType[*statusError](err)
	return ok && e.status == status
}

// aboutBody reports whether err is an answer that says that the body of the request is not acceptable. Other answers are
// about the account, the path, the moment, or the server.
func aboutBody(err error) bool {
	e, ok := errors.AsType[*statusError](err)
	if !ok {
		return false
	}
	switch e.status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed,
		http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	}
	return e.status/100 == 4
}

// path returns the path of a database, or of what is below it, from its unescaped segments.
func path(segments ...string) string {
	for i, s := range segments {
		segments[i] = url.PathEscape(s)
	}
	return "/" + strings.Join(segments, "/")
}

// send sends a request, and returns the body of an answer with a 2xx. The caller must call release.
func (s *Server) send(ctx context.Context, method, path string, body any) (answer io.Reader, release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	content, err := s.request(ctx, method, path, body)
	if err != nil {
		cancel()
		return nil, nil, fmt.Errorf("%s %s%s: %w", method, s.root, path, err)
	}
	return content, func() {
		_ = content.Close() // it was read
		cancel()
	}, nil
}

// request returns the body of an answer with a 2xx, or its *statusError.
func (s *Server) request(ctx context.Context, method, path string, body any) (io.ReadCloser, error) {
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
		return response.Body, nil
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
	return nil, &statusError{response.StatusCode, refusal.Error, redact.Text(refusal.Reason)}
}

// ask sends a request, and decodes the answer into answer, unless that is nil.
func (s *Server) ask(ctx context.Context, method, path string, body, answer any) error {
	from, release, err := s.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer release()
	text, err := io.ReadAll(io.LimitReader(from, maxAnswer+1))
	switch {
	case err == nil && len(text) > maxAnswer:
		err = fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	case err == nil && answer != nil:
		err = json.Unmarshal(text, answer)
	}
	if err != nil {
		return fmt.Errorf("%s %s%s: %w", method, s.root, path, err)
	}
	return nil
}

// get is ask for a GET.
func (s *Server) get(ctx context.Context, path string, answer any) error {
	return s.ask(ctx, http.MethodGet, path, nil, answer)
}
