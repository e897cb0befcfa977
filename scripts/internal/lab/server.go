// Package lab starts what benchmarks measure, nodes of settee and CouchDBs, and reads what processes have used. It
// needs Linux, which counts that in /proc.
package lab

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// Server makes requests to a CouchDB or a node, as its administrator.
type Server struct {
	root   *url.URL // with the administrator's name and password
	client http.Client
}

// NewServer returns the server at a URL without a slash at its end. Requests have the name and the password in the URL,
// if any.
func NewServer(root *url.URL) *Server {
	return &Server{root: root, client: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}}
}

// CloseIdle closes the connections that no request uses.
func (s *Server) CloseIdle() { s.client.CloseIdleConnections() }

// URL returns the URL of a path, with credentials and at another address if that is not empty.
func (s *Server) URL(path, address string) string {
	u := s.root.JoinPath(path)
	if address != "" {
		u.Host = address
	}
	return u.String()
}

// Host returns the server's address.
func (s *Server) Host() string { return s.root.Host }

// Do makes a request. The caller must close the answer's body. A status of 400 or more is an error.
func (s *Server) Do(ctx context.Context, method, path, content string, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.root.String()+"/"+path, body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", content)
	return s.send(r, path)
}

// send is Do for a request that is made.
func (s *Server) send(r *http.Request, path string) (*http.Response, error) {
	answer, err := s.client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", r.Method, path, errors.Unwrap(err)) // the error of Do names the URL
	}
	if answer.StatusCode < http.StatusBadRequest {
		return answer, nil
	}
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 1000)) // the status is an error anyway
	answer.Body.Close()
	return nil, fmt.Errorf("%s %s: %d %s", r.Method, path, answer.StatusCode, bytes.TrimSpace(text))
}

// Ask sends JSON, and reads the answer into a variable if it is not nil.
func (s *Server) Ask(ctx context.Context, method, path string, body []byte, into any) error {
	answer, err := s.Do(ctx, method, path, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && into != nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// Put sends a body of a known size.
func (s *Server) Put(ctx context.Context, path, content string, body io.Reader, size int64) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, s.root.String()+"/"+path, body)
	if err != nil {
		return err
	}
	r.ContentLength = size
	r.Header.Set("Content-Type", content)
	answer, err := s.send(r, path)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// Follow calls row with the id of each change of a database until ctx ends.
func (s *Server) Follow(ctx context.Context, name string, row func(id string)) error {
	if err := s.follow(ctx, name, row); ctx.Err() == nil {
		return err
	}
	return nil
}

func (s *Server) follow(ctx context.Context, name string, row func(id string)) error {
	answer, err := s.Do(ctx, http.MethodGet, name+"/_changes?feed=continuous&since=0&heartbeat=10000", "", nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		var change struct{ ID string }
		if len(lines.Bytes()) == 0 {
			continue
		}
		if err := json.Unmarshal(lines.Bytes(), &change); err != nil {
			return fmt.Errorf("the feed of a database: %w", err)
		}
		row(change.ID)
	}
	return errors.Join(errors.New("the feed of a database has ended"), lines.Err())
}
