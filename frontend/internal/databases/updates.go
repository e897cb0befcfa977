package databases

import (
	"context"
	"net/http"
	"time"

	"settee/frontend/internal/web"
	"settee/pkg/budget"
	"settee/pkg/config"
	"settee/pkg/docstore"
)

// updatesRequest has the parameters of a feed of the updates of all databases.
type updatesRequest struct {
	kind       feedKind
	since      since
	limit      int
	descending bool
	patience
}

// DatabaseUpdates answers GET /_db_updates: which databases were created, changed and deleted.
func (e *Endpoints) DatabaseUpdates(w http.ResponseWriter, r *http.Request) error {
	request, err := readUpdatesRequest(r, config.ChangesTimeout.Get(e.Settings.Current()))
	if err != nil {
		return err
	}
	since, last, err := request.since.find(r, request.kind == feedNormal, e.Documents.LastUpdate, e.Documents.UpdatesBefore)
	if err != nil {
		return web.StoreFailure(err)
	}
	if request.kind == feedNormal {
		tag := digestTag([]byte(last.String()))
		w.Header().Set("ETag", tag)
		if web.NotModified(w, r, tag) {
			return nil
		}
	}
	return newUpdatesFeed(e, w, r, request, since).run()
}

// reasonOfUpdates is the reason of _db_updates, in the words of CouchDB.
func reasonOfUpdates(string, bool) string { return "invalid_integer" }

func readUpdatesRequest(r *http.Request, standard time.Duration) (request updatesRequest, err error) {
	q := web.NewQuery(r)
	request.limit, request.descending = readCount(q, "limit", noLimit, reasonOfUpdates), q.Switch("descending")
	request.kind = readKind(q, "", "normal, continuous, longpoll, eventsource")
	request.patience = readPatience(q, request.kind, standard, reasonOfUpdates)
	if q.Err != nil {
		return request, q.Err
	}
	request.since, err = readSince(r, q, request.kind)
	return request, err
}

// updatesFeed is a feed of the updates of all databases. Like [feed], it has only the goroutine of its request.
type updatesFeed struct {
	sending
	request   updatesRequest
	since     docstore.Sequence // all updates up to it were sent
	remaining int               // rows until the limit
}

func newUpdatesFeed(e *Endpoints, w http.ResponseWriter, r *http.Request, request updatesRequest, since docstore.Sequence) *updatesFeed {
	f := &updatesFeed{
		sending: newSending(e, w, r, request.kind, updatesFormatOf(request.kind), request.patience),
		request: request, since: since, remaining: request.limit,
	}
	f.next = func(ctx context.Context) error { return e.Documents.WaitUpdate(ctx, f.since) }
	return f
}

// run sends the feed until it ends.
func (f *updatesFeed) run() error {
	if f.r.Method == http.MethodHead {
		return f.out.Flush()
	}
	if err := f.noteRights(); err != nil {
		return web.StoreFailure(err)
	}
	if err := web.MemoryOf(f.r).Take(f.r.Context(), rowsCost, budget.All); err != nil {
		return f.fail(err)
	}
	if err := f.out.Text(f.format.head); err != nil {
		return err
	}
	for {
		whole, err := f.readOn()
		if err != nil {
			return f.fail(web.StoreFailure(err))
		}
		if f.isOver(whole) {
			return f.end(f.since, "")
		}
		more, err := f.wait()
		if err == nil && more {
			more, err = f.keepsRights()
		}
		if err != nil {
			return err
		}
		if !more {
			return f.end(f.since, "")
		}
	}
}

// readOn sends the updates after since. whole is false if some are left, because the limit was reached or the node is
// going away.
func (f *updatesFeed) readOn() (whole bool, err error) {
	if f.remaining == 0 {
		return false, nil
	}
	options := docstore.UpdatesOptions{Since: f.since, Descending: f.request.descending}
	if f.request.limit < noLimit {
		options.Limit = f.remaining
	}
	reading := f.endpoints.Documents.Updates(options)
	defer func() { f.since = reading.Last() }()
	for row, err := range reading.All(f.r.Context()) {
		if err != nil {
			return false, err
		}
		if err := f.send(row); err != nil {
			return false, err
		}
		if f.remaining == 0 || f.endpoints.Connections.Draining() && f.kind != feedNormal {
			return false, nil
		}
		if err := f.pulse(); err != nil {
			return false, err
		}
	}
	return true, nil
}

// isOver reports whether the feed ends instead of waiting for more. whole: all updates that there are were read.
func (f *updatesFeed) isOver(whole bool) bool {
	return !whole || f.kind == feedNormal || f.request.descending || f.kind == feedLongpoll && f.remaining < f.request.limit
}

// send sends a row.
func (f *updatesFeed) send(row docstore.UpdateRow) error {
	line := web.Appender{To: f.out}
	if f.remaining == f.request.limit {
		line.Raw(f.format.before)
	} else {
		line.Raw(f.format.between)
	}
	line.Raw(`{"db_name":`).Value(row.Database).Raw(`,"type":"` + string(row.Type) + `","seq":`).Value(row.Sequence.String())
	line.Raw("}").Raw(f.format.after)
	if f.format.event {
		line.Raw("\nid: ").Value(row.Sequence.String()).Raw("\n\n")
	}
	f.remaining--
	f.hold()
	return line.Err
}
