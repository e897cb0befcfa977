package databases

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strings"

	"settee/frontend/internal/web"
	"settee/pkg/config"
	"settee/pkg/docstore"
	"settee/pkg/jsontext"
)

const (
	// filterRows and filterBytes are about how many rows, and how much JSON, a filter function gets at a time. With these a
	// usual filter is a small call (package script).
	filterRows  = 200
	filterBytes = 250_000
)

// filterBatch is rows of a feed that a function has not seen yet.
type filterBatch struct {
	rows []docstore.ChangeRow
	docs []string // the candidates of all rows, as JSON
	revs []docstore.Rev
	of   []int // the number of candidates of each row
	size int   // of docs
	// loaded is the number of bytes of memory that was taken for large documents.
	loaded int64
}

// readFiltered is readOn for a feed whose filter is a function.
func (f *feed) readFiltered(reading *docstore.Changes) (whole bool, err error) {
	ctx := f.r.Context()
	if f.filterRequest == "" {
		if f.filterRequest, err = f.functionRequest(ctx); err != nil {
			return false, err
		}
	}
	var batch filterBatch
	for row, err := range reading.All(ctx) {
		if err != nil {
			return false, err
		}
		if err := f.collect(ctx, &batch, row); err != nil {
			return false, err
		}
		if len(batch.docs) < filterRows && batch.size < filterBytes {
			continue
		}
		if more, err := f.sendPassing(ctx, &batch); !more || err != nil {
			return false, err
		}
		web.MemoryOf(f.r).Give(batch.loaded)
		batch = filterBatch{}
	}
	if more, err := f.sendPassing(ctx, &batch); !more || err != nil {
		return false, err
	}
	f.since = reading.Last()
	return true, nil
}

// collect adds a row to a batch, with the revisions that the function decides about: the winner, or all leaves.
func (f *feed) collect(ctx context.Context, batch *filterBatch, row docstore.ChangeRow) error {
	row.Document.DeletedConflicts = nil // feeds do not show them
	winner := *row.Document
	before := len(batch.docs)
	if f.request.leaves {
		winner.Conflicts = nil // as in CouchDB, like any leaf that is read by its revision
	}
	if err := f.candidate(batch, &winner); err != nil {
		return err
	}
	if f.request.leaves && len(row.Revs) > 1 {
		for leaf, err := range f.db.OpenRevs(ctx, row.ID, docstore.OpenRevsOptions{Revs: row.Revs[1:], LargeBody: largeBody}) {
			if err != nil {
				return err
			}
			if leaf.Document == nil {
				continue // it was replaced meanwhile, and the feed will have the document again
			}
			if err := f.candidate(batch, leaf.Document); err != nil {
				return err
			}
		}
	}
	if !f.request.documents {
		row.Document = nil
	}
	batch.rows, batch.of = append(batch.rows, row), append(batch.of, len(batch.docs)-before)
	return nil
}

func (f *feed) candidate(batch *filterBatch, doc *docstore.Document) error {
	loaded, err := bodies{f.r.Context(), f.db}.load(web.MemoryOf(f.r), doc)
	if err != nil {
		return err
	}
	batch.loaded += loaded
	text, err := functionText(doc, config.FunctionRevsLimit.Get(f.endpoints.Settings.Current()))
	batch.docs, batch.revs = append(batch.docs, string(text)), append(batch.revs, doc.Rev)
	batch.size += len(text)
	return err
}

// sendPassing sends the rows of a batch that have a revision that passes. more is false if the feed stops there. If the
// function fails, the rows before that one are sent, and the error is returned.
func (f *feed) sendPassing(ctx context.Context, batch *filterBatch) (more bool, err error) {
	var passed []bool
	var failure error
	next := 0
	for i, row := range batch.rows {
		first := next
		for next += batch.of[i]; len(passed) < next; {
			if failure != nil {
				return false, failure
			}
			var some []bool
			some, failure = f.request.filter.function.Pass(ctx, batch.docs[len(passed):], f.filterRequest)
			passed = append(passed, some...)
		}
		var revs []docstore.Rev
		for k := first; k < next; k++ {
			if passed[k] {
				revs = append(revs, batch.revs[k])
			}
		}
		f.read++
		if err := f.sendOrPulse(&row, revs); err != nil {
			return false, err
		}
		f.since = row.Sequence
		if f.stops() {
			return false, nil
		}
	}
	return true, failure
}

// functionRequest returns what a filter function gets as its request, as JSON. It has no credentials.
func (f *feed) functionRequest(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, web.StoreTimeout)
	defer cancel()
	info, err := f.db.Info(ctx)
	if err != nil {
		return "", err
	}
	security, err := f.db.Security(ctx)
	if err != nil {
		return "", err
	}
	r := f.r
	peer, _, _ := net.SplitHostPort(r.RemoteAddr) // it is empty if the server was not started with a listener
	path := web.PathSegments(r.URL)
	text, err := jsontext.Encode(struct {
		Info          any               `json:"info"`
		UUID          string            `json:"uuid"`
		ID            *string           `json:"id"`
		Method        string            `json:"method"`
		RequestedPath []string          `json:"requested_path"`
		Path          []string          `json:"path"`
		RawPath       string            `json:"raw_path"`
		Query         map[string]any    `json:"query"`
		Headers       map[string]string `json:"headers"`
		Body          any               `json:"body"`
		Peer          string            `json:"peer"`
		Form          struct{}          `json:"form"`
		Cookie        struct{}          `json:"cookie"`
		User          userContext       `json:"userCtx"`
		Security      json.RawMessage   `json:"secObj"`
	}{
		Info: web.NewDatabaseInfo(info), UUID: web.NewUUID(), Method: r.Method, RequestedPath: path, Path: path, RawPath: r.URL.RequestURI(),
		Query: functionQuery(r), Headers: functionHeaders(r, f.endpoints.Settings.Current()), Body: functionBody(f.request.body), Peer: peer,
		User: userContextOf(r, f.db), Security: security,
	})
	return string(text), err
}

// functionQuery returns the parameters of a request. As in CouchDB some of them are JSON.
func functionQuery(r *http.Request) map[string]any {
	query := map[string]any{}
	for name, values := range r.URL.Query() {
		value := values[len(values)-1]
		switch name {
		case "startkey", "endkey", "key", "descending":
			if jsontext.Valid([]byte(value)) {
				query[name] = json.RawMessage(value)
				continue
			}
		}
		query[name] = value
	}
	return query
}

// functionHeaderNames are the headers of requests that functions see. Any other header may have credentials.
var functionHeaderNames = []string{
	"Accept", "Accept-Encoding", "Accept-Language", "Content-Length", "Content-Type", "Origin", "Referer", "User-Agent",
	"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Ssl", "X-Request-Id",
}

// functionHeaders returns the headers of a request that functions see: Host and the headers of functionHeaderNames, except the
// one in which proxies prove the user.
func functionHeaders(r *http.Request, cfg *config.Config) map[string]string {
	headers := map[string]string{"Host": r.Host}
	for _, name := range functionHeaderNames {
		if values := r.Header.Values(name); len(values) > 0 && !strings.EqualFold(name, config.ProxyToken.Get(cfg)) {
			headers[name] = strings.Join(values, ", ")
		}
	}
	return headers
}

// functionBody returns the body of a request. Functions of CouchDB get this word if there is none.
func functionBody(members map[string]json.RawMessage) any {
	if members == nil {
		return "undefined"
	}
	return members
}
