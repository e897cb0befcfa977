package lab

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"settee/internal/servers"
)

// Server is a CouchDB or a node of settee that the program has started. It is asked as its administrator.
type Server struct {
	// About is the name and the version.
	About string

	root   *url.URL // with the administrator's name and password
	client http.Client
	pid    int
}

func newServer(root *url.URL) *Server {
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

// Processor returns the processor time of all processes of the server.
func (s *Server) Processor() (time.Duration, error) { return servers.ProcessorTime(s.pid) }

// do makes a request. The caller must close the answer's body. A status of 400 or more is an error.
func (s *Server) do(ctx context.Context, method, path string, header http.Header, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.root.String()+"/"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header = header
	answer, err := s.client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, errors.Unwrap(err)) // the error of Do names the URL
	}
	if answer.StatusCode < http.StatusBadRequest {
		return answer, nil
	}
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 1000)) // the status is an error anyway
	answer.Body.Close()
	return nil, fmt.Errorf("%s %s: %d %s", method, path, answer.StatusCode, bytes.TrimSpace(text))
}

// Ask sends a value as JSON, or nothing if it is nil, and reads the answer into a variable if that is not nil.
func (s *Server) Ask(ctx context.Context, method, path string, value, into any) error {
	var body []byte
	if value != nil {
		var err error
		if body, err = json.Marshal(value); err != nil {
			return err
		}
	}
	header := http.Header{"Content-Type": {"application/json"}}
	answer, err := s.do(ctx, method, path, header, body)
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

// bulk writes documents to a database. It fails if one of them is refused.
func (s *Server) bulk(ctx context.Context, database string, docs any) error {
	var written []struct{ ID, Error, Reason string }
	if err := s.Ask(ctx, http.MethodPost, database+"/_bulk_docs", map[string]any{"docs": docs}, &written); err != nil {
		return err
	}
	for _, one := range written {
		if one.Error != "" {
			return fmt.Errorf("writing %s: %s: %s", one.ID, one.Error, one.Reason)
		}
	}
	return nil
}

// Fill writes documents to a database, so many in a request. doc returns one of them by its number, from 0 to before docs.
func (s *Server) Fill(ctx context.Context, database string, docs, batch int, doc func(n int) map[string]any) error {
	return InBatches(ctx, 1, batch, 0, docs, func(ctx context.Context, begin, end int) error {
		var some []map[string]any
		for n := begin; n < end; n++ {
			some = append(some, doc(n))
		}
		return s.bulk(ctx, database, some)
	})
}

// Text returns random text of a number of bytes, which does not compress by much.
func Text(size int) string {
	raw := make([]byte, base64.RawURLEncoding.DecodedLen(size)+1)
	_, _ = rand.Read(raw) // never fails
	return base64.RawURLEncoding.EncodeToString(raw)[:size]
}

// Count returns the number of documents in a database.
func (s *Server) Count(ctx context.Context, database string) (int, error) {
	var info struct {
		Docs int `json:"doc_count"`
	}
	err := s.Ask(ctx, http.MethodGet, database, nil, &info)
	return info.Docs, err
}

// CheckCount fails if a database has another number of documents.
func (s *Server) CheckCount(ctx context.Context, database string, want int) error {
	got, err := s.Count(ctx, database)
	if err == nil && got != want {
		err = fmt.Errorf("%s has %d documents, not %d", database, got, want)
	}
	return err
}

// follow calls row with the id of each change of a database until ctx ends, or the feed, which is an error.
func (s *Server) follow(ctx context.Context, database string, row func(id string)) error {
	answer, err := s.do(ctx, http.MethodGet, database+"/_changes?feed=continuous&since=0&heartbeat=10000", nil, nil)
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
