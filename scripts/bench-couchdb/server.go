package main

import (
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
	"os"
	"strings"
	"time"

	"settee/internal/servers"
)

const (
	// quietFor is how long a server must use less than a twentieth of a processor to be idle. After quietLimit a turn
	// begins anyway.
	quietFor, quietLimit = 500 * time.Millisecond, 30 * time.Second
	// fillBatch is the number of bytes in a request that fills a database.
	fillBatch = 1 << 20
)

// server is the CouchDB whose databases are copied.
type server struct {
	root    *url.URL // with an administrator's name and password
	about   string
	process *servers.CouchDB // nil for one at a URL
	dir     string           // of the process
	q       int
	client  http.Client
	names   int // databases named so far
}

// openServer starts the installed CouchDB, or checks that the named one answers.
func openServer(ctx context.Context, o *options) (*server, error) {
	s := &server{q: o.q, client: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}}
	named := o.couchDB
	if named == "" {
		dir, err := os.MkdirTemp("", "bench-couchdb-")
		if err != nil {
			return nil, err
		}
		s.dir = dir
		s.process, err = servers.StartCouchDB(ctx, servers.CouchDBOptions{Dir: dir, Temporary: true,
			Settings: map[string]map[string]string{
				"replicator": {"max_jobs": "100000"},
				"couchdb":    {"max_dbs_open": "10000"},
			}})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%w (-couchdb=URL names one that runs)", err), os.RemoveAll(dir))
		}
		named = s.process.Admin()
	}
	root, err := url.Parse(strings.TrimSuffix(named, "/"))
	if err != nil || root.User == nil || root.Host == "" {
		return nil, errors.Join(errors.New("-couchdb is not a URL with a name and a password"), s.close())
	}
	s.root = root
	var about struct{ Version string }
	if err := s.ask(ctx, http.MethodGet, "", nil, &about); err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.about = "CouchDB " + about.Version
	return s, nil
}

func (s *server) close() error {
	s.client.CloseIdleConnections()
	if s.process == nil {
		return nil
	}
	s.process.Kill()
	return os.RemoveAll(s.dir)
}

// do makes a request as the administrator. The caller must close the answer's body. A status of 400 or more is an
// error.
func (s *server) do(ctx context.Context, method, path, content string, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.root.String()+"/"+path, body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", content)
	return s.send(r, path)
}

// send is do for a request that is made.
func (s *server) send(r *http.Request, path string) (*http.Response, error) {
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

// ask sends JSON, and reads the answer into a variable if it is not nil.
func (s *server) ask(ctx context.Context, method, path string, body []byte, into any) error {
	answer, err := s.do(ctx, method, path, "application/json", bytes.NewReader(body))
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

// create makes a database with a new name.
func (s *server) create(ctx context.Context) (string, error) {
	s.names++
	name := fmt.Sprintf("bench-%s-%d", strings.ToLower(rand.Text()[:8]), s.names)
	return name, s.ask(ctx, http.MethodPut, fmt.Sprintf("%s?q=%d&n=1", name, s.q), nil, nil)
}

// remove deletes databases.
func (s *server) remove(ctx context.Context, names ...string) error {
	var all error
	for _, name := range names {
		all = errors.Join(all, s.ask(ctx, http.MethodDelete, name, nil, nil))
	}
	return all
}

// count returns the number of documents in a database.
func (s *server) count(ctx context.Context, name string) (int, error) {
	var info struct {
		Count int `json:"doc_count"`
	}
	err := s.ask(ctx, http.MethodGet, name, nil, &info)
	return info.Count, err
}

// url returns the URL of a database, with credentials and at another address if that is not empty.
func (s *server) url(name, address string) string {
	u := s.root.JoinPath(name)
	if address != "" {
		u.Host = address
	}
	return u.String()
}

// processor returns the processor time of the server, or 0 if it is unknown.
func (s *server) processor() (time.Duration, error) {
	if s.process == nil {
		return 0, nil
	}
	return servers.ProcessorTime(s.process.PID())
}

// rest waits until the server is idle.
func (s *server) rest(ctx context.Context) error {
	for limit := time.Now().Add(quietLimit); time.Now().Before(limit); {
		before, err := s.processor()
		if err != nil {
			return err
		}
		if err := pause(ctx, quietFor); err != nil {
			return err
		}
		after, err := s.processor()
		if err != nil || after-before < quietFor/20 {
			return err
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// text returns random text of a number of bytes, which does not compress by much.
func text(size int) string {
	raw := make([]byte, size*3/4+3)
	_, _ = rand.Read(raw) // never fails
	return base64.RawURLEncoding.EncodeToString(raw)[:size]
}

// fill writes documents of a size. Each every-th one has an attachment, whose size is the third number; 0 for none.
func (s *server) fill(ctx context.Context, name string, docs, docSize, attachment, every int, contentType string) error {
	request := []byte(`{"docs":[`)
	for i := range docs {
		request = fmt.Appendf(request, `{"_id":"document-%08d","text":%q`, i, text(docSize))
		if attachment > 0 && attachment <= fillBatch && i%every == 0 {
			data := base64.StdEncoding.EncodeToString([]byte(text(attachment)))
			request = fmt.Appendf(request, `,"_attachments":{"attached":{"content_type":%q,"data":%q}}`, contentType, data)
		}
		request = append(request, '}', ',')
		if len(request) > fillBatch || i == docs-1 {
			if err := s.ask(ctx, http.MethodPost, name+"/_bulk_docs", append(request[:len(request)-1], "]}"...), nil); err != nil {
				return err
			}
			request = []byte(`{"docs":[`)
		}
	}
	if attachment <= fillBatch {
		return nil
	}
	for i := 0; i < docs; i += every {
		if err := s.attach(ctx, fmt.Sprintf("%s/document-%08d", name, i), int64(attachment), contentType); err != nil {
			return err
		}
	}
	return nil
}

// attach adds a large attachment to a document.
func (s *server) attach(ctx context.Context, path string, size int64, contentType string) error {
	var doc struct {
		Rev string `json:"_rev"`
	}
	if err := s.ask(ctx, http.MethodGet, path, nil, &doc); err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, s.root.String()+"/"+path+"/attached?rev="+doc.Rev,
		io.LimitReader(rand.Reader, size))
	if err != nil {
		return err
	}
	r.ContentLength = size
	r.Header.Set("Content-Type", contentType)
	answer, err := s.send(r, path+"/attached")
	if err != nil {
		return err
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusCreated {
		return fmt.Errorf("writing an attachment: status %d", answer.StatusCode)
	}
	return nil
}

// newID returns an id for a document.
func (s *server) newID() string { return strings.ToLower(rand.Text()) }

// put writes a small document.
func (s *server) put(ctx context.Context, name, id string) error {
	return s.ask(ctx, http.MethodPut, name+"/"+id, []byte(`{"a":1}`), nil)
}
