package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"settee/scripts/internal/lab"
)

const (
	// quietFor is how long a server must use less than a twentieth of a processor to be idle. After quietLimit a turn
	// begins anyway.
	quietFor, quietLimit = 500 * time.Millisecond, 30 * time.Second
	// fillBatch is the number of bytes in a request that fills a database.
	fillBatch = 1 << 20
)

// server is the CouchDB whose databases are copied.
type server struct{ *lab.CouchDB }

// count returns the number of documents in a database.
func (s *server) count(ctx context.Context, name string) (int, error) {
	var info struct {
		Count int `json:"doc_count"`
	}
	err := s.Ask(ctx, http.MethodGet, name, nil, &info)
	return info.Count, err
}

// rest waits until the server is idle.
func (s *server) rest(ctx context.Context) error {
	for limit := time.Now().Add(quietLimit); time.Now().Before(limit); {
		before, err := s.Processor()
		if err != nil {
			return err
		}
		if err := lab.Pause(ctx, quietFor); err != nil {
			return err
		}
		after, err := s.Processor()
		if err != nil || after-before < quietFor/20 {
			return err
		}
	}
	return nil
}

// text returns random text of a number of bytes, which does not compress by much.
func text(size int) string {
	raw := make([]byte, size*3/4+3)
	_, _ = rand.Read(raw) // never fails
	return base64.RawURLEncoding.EncodeToString(raw)[:size]
}

// fill writes documents of a size, with ids that no other call has given. Each every-th one has an attachment, whose size is the third number; 0 for none.
func (s *server) fill(ctx context.Context, name string, docs, docSize, attachment, every int, contentType string) error {
	prefix := s.newID()[:8]
	request := []byte(`{"docs":[`)
	for i := range docs {
		request = fmt.Appendf(request, `{"_id":"%s-%08d","text":%q`, prefix, i, text(docSize))
		if attachment > 0 && attachment <= fillBatch && i%every == 0 {
			data := base64.StdEncoding.EncodeToString([]byte(text(attachment)))
			request = fmt.Appendf(request, `,"_attachments":{"attached":{"content_type":%q,"data":%q}}`, contentType, data)
		}
		request = append(request, '}', ',')
		if len(request) > fillBatch || i == docs-1 {
			if err := s.Ask(ctx, http.MethodPost, name+"/_bulk_docs", append(request[:len(request)-1], "]}"...), nil); err != nil {
				return err
			}
			request = []byte(`{"docs":[`)
		}
	}
	if attachment <= fillBatch {
		return nil
	}
	for i := 0; i < docs; i += every {
		if err := s.attach(ctx, fmt.Sprintf("%s/%s-%08d", name, prefix, i), int64(attachment), contentType); err != nil {
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
	if err := s.Ask(ctx, http.MethodGet, path, nil, &doc); err != nil {
		return err
	}
	return s.Put(ctx, path+"/attached?rev="+doc.Rev, contentType, io.LimitReader(rand.Reader, size), size)
}

// newID returns an id for a document.
func (s *server) newID() string { return strings.ToLower(rand.Text()) }

// put writes a small document.
func (s *server) put(ctx context.Context, name, id string) error {
	return s.Ask(ctx, http.MethodPut, name+"/"+id, []byte(`{"a":1}`), nil)
}
