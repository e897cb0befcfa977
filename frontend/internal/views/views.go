// Package views lets a client wait until an answer differs from the one that it has.
//
// A GET with "Prefer: wait=N" (RFC 7240) gets its answer with an entity tag. If it has an If-None-Match with that tag,
// it is answered as soon as the answer has another tag, and with 304 after N seconds without one. So a page that shows
// a list sends one request after the other, and each ends when there is something new to show.
//
// A view is what one user sees at one URL in one media type. While clients wait for it, its action runs at most once
// every [Interval], however many they are: the request that finds the latest answer older than that runs the action for
// all. A view has no goroutine, and nothing of it stays when the last client has left.
package views

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"settee/frontend/internal/access"
	"settee/frontend/internal/web"
)

const (
	// Interval is the least time between two runs of the action of a view.
	Interval = time.Second
	// longestWait is the longest that a request waits. Until then the rights of its user are those that it began with.
	longestWait = time.Minute
	// maxKept is the size of the largest answer that is kept, and maxKeptInAll that of all answers of a node, in bytes. An
	// answer that is too large is sent at once, without a tag.
	maxKept      = 4 << 20
	maxKeptInAll = 16 * maxKept
)

// Views are the views that clients wait for.
type Views struct {
	connections *web.Connections

	mu   sync.Mutex
	open map[string]*view
	size int // of the answers that are kept, in bytes
}

// New returns views without clients.
func New(c *web.Connections) *Views {
	return &Views{connections: c, open: make(map[string]*view)}
}

// view is the answer to one request of one user.
type view struct {
	clients int // guarded by Views.mu

	reading chan struct{} // has room for the one client that may use the fields below
	latest  *kept         // nil: there is none yet. It changes under Views.mu, for Views.size
	read    time.Time     // when latest was read
}

// kept is an answer. It does not change.
type kept struct {
	contentType, tag string
	body             []byte
}

func (k *kept) size() int {
	if k == nil {
		return 0
	}
	return cap(k.body)
}

// Watched returns an action that waits where the request asks for it.
func (v *Views) Watched(act web.Action) web.Action {
	return func(w http.ResponseWriter, r *http.Request) error {
		wait, asked := waitOf(r)
		if !asked || r.Method != http.MethodGet {
			return act(w, r)
		}
		latest, err := v.await(r, wait, act)
		if errors.Is(err, errTooLarge) {
			return act(w, r)
		}
		if err != nil {
			return err
		}
		w.Header().Set("Preference-Applied", "wait="+strconv.Itoa(int(wait/time.Second)))
		w.Header().Add("Vary", "Prefer, Accept, Authorization, Cookie")
		w.Header().Set("Content-Type", latest.contentType)
		web.ExtendDeadline(w)
		if web.NotModified(w, r, latest.tag) {
			return nil
		}
		web.SetLength(w, int64(len(latest.body)))
		_, _ = w.Write(latest.body) // a client that has gone needs no answer
		return nil
	}
}

// await returns the answer as soon as it has another tag than the client's, or when the time is over.
func (v *Views) await(r *http.Request, wait time.Duration, act web.Action) (*kept, error) {
	key, err := keyOf(r)
	if err != nil {
		return nil, err
	}
	view := v.join(key)
	defer v.leave(key, view)
	ctx, done := v.connections.Wait(r, web.ForView)
	defer done()
	ends := time.Now().Add(wait)
	for {
		latest, err := v.look(view, r, act)
		if err != nil || !web.HasTag(r, latest.tag) {
			return latest, err
		}
		pause := time.NewTimer(min(Interval, time.Until(ends)))
		select {
		case <-ctx.Done(): // the client gets what it has: it asks again
			pause.Stop()
			return latest, nil
		case <-pause.C:
		}
		if !time.Now().Before(ends) {
			return latest, nil
		}
	}
}

func (v *Views) join(key string) *view {
	v.mu.Lock()
	defer v.mu.Unlock()
	found := v.open[key]
	if found == nil {
		found = &view{reading: make(chan struct{}, 1)}
		v.open[key] = found
	}
	found.clients++
	return found
}

func (v *Views) leave(key string, left *view) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if left.clients--; left.clients == 0 {
		delete(v.open, key)
		v.size -= left.latest.size()
	}
}

// keep makes an answer the latest of a view, and reports whether there is room for it.
func (v *Views) keep(of *view, latest *kept) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	size := v.size - of.latest.size() + latest.size()
	if size > maxKeptInAll {
		return false
	}
	v.size, of.latest = size, latest
	return true
}

// look returns the latest answer, which is read again if it is older than Interval.
func (v *Views) look(of *view, r *http.Request, act web.Action) (*kept, error) {
	select {
	case of.reading <- struct{}{}:
	case <-r.Context().Done():
		return nil, web.ErrClientGone
	}
	defer func() { <-of.reading }()
	now := time.Now()
	if of.latest != nil && now.Sub(of.read) < Interval {
		return of.latest, nil
	}
	latest, err := record(r, act)
	if err != nil {
		return nil, err
	}
	if (of.latest == nil || latest.tag != of.latest.tag) && !v.keep(of, latest) {
		return nil, errTooLarge
	}
	of.read = now
	return of.latest, nil
}

var errTooLarge = errors.New("the answer is too large to be kept")

// record runs an action and keeps its answer.
func record(r *http.Request, act web.Action) (*kept, error) {
	out := recorder{header: make(http.Header)}
	// The action sees no tag of the client's: its answer is for all.
	asked := r.Clone(r.Context())
	asked.Header.Del("If-None-Match")
	err := act(&out, asked)
	switch {
	case out.tooLarge:
		return nil, errTooLarge
	case err != nil:
		return nil, err
	}
	sum := sha256.Sum256(out.body.Bytes())
	return &kept{
		contentType: out.header.Get("Content-Type"), tag: `"` + hex.EncodeToString(sum[:16]) + `"`, body: out.body.Bytes(),
	}, nil
}

// recorder is the writer of an answer that is kept.
type recorder struct {
	header   http.Header
	body     bytes.Buffer
	tooLarge bool
}

func (rec *recorder) Header() http.Header { return rec.header }

// WriteHeader ignores the status: an action that does not fail answers 200.
func (rec *recorder) WriteHeader(int) {}

func (rec *recorder) Write(text []byte) (int, error) {
	if rec.tooLarge = rec.tooLarge || rec.body.Len()+len(text) > maxKept; rec.tooLarge {
		return 0, errTooLarge
	}
	return rec.body.Write(text)
}

// waitOf returns how long a request wants to wait.
func waitOf(r *http.Request) (wait time.Duration, asked bool) {
	for preference := range strings.SplitSeq(strings.Join(r.Header.Values("Prefer"), ","), ",") {
		name, value, _ := strings.Cut(preference, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "wait") {
			continue
		}
		value, _, _ = strings.Cut(value, ";")
		seconds, err := strconv.ParseUint(strings.TrimSpace(value), 10, 31)
		return min(time.Duration(seconds)*time.Second, longestWait), err == nil // a preference that makes no sense is ignored
	}
	return 0, false
}

// keyOf returns what two requests have in common that get the same answer.
func keyOf(r *http.Request) (string, error) {
	user := access.UserOf(r)
	key, err := json.Marshal([]any{user.Name, user.Roles, r.Header.Values("Accept"), r.URL.RequestURI()})
	return string(key), err
}
