// Package views lets a client wait until an answer differs from the one that it has.
//
// A GET with "Prefer: wait=N" (RFC 7240) gets its answer with an entity tag. If it has an If-None-Match with that tag,
// it is answered as soon as the answer has another tag, and with 304 after N seconds without one. So a page that shows
// a list sends one request after the other, and each ends when there is something new to show.
//
// A view is what one user sees at one path, with the parameters that its action reads, in one media type. Other parameters,
// and their order, make no difference. While clients wait for a view, its action runs at most once every [Interval], and
// less often if it takes long, however many they are: the request that finds the latest answer older than that runs the
// action for all. A view has no goroutine, and nothing of it stays when the last client has left. The number of views is
// bounded, for the node and for each user: mayOpen decides.
package views

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
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
	// longestWait is the longest that a request waits. Until then its user keeps the rights that it began with.
	longestWait = time.Minute
	// costFactor is the least pause between two runs of an action, as a multiple of the time that the last one took, up to
	// longestPause. So the views of a busy node take little of its time.
	costFactor   = 10
	longestPause = longestWait / 2
	// maxViews is the most views of a node, forAdmins the part of them that only server administrators may have, and
	// maxOfUser the most of one user. See mayOpen.
	maxViews  = 1_000
	forAdmins = 200
	maxOfUser = 200
	// maxKept is the size of the largest answer that is kept, in bytes, and keptPart the part of the memory for clients that
	// all kept answers may take. An answer that is too large is sent at once, without a tag.
	maxKept  = 4 << 20
	keptPart = 8
)

// pauseAfter returns the pause after a run of an action.
func pauseAfter(took time.Duration) time.Duration {
	return max(Interval, min(costFactor*took, longestPause))
}

// Views are the views that clients wait for.
type Views struct {
	connections *web.Connections

	mu    sync.Mutex
	open  map[string]*view
	users map[string]int // views by user, see access.TurnOf
	size  int            // of the answers that are kept, in bytes
}

// New returns views without clients.
func New(c *web.Connections) *Views {
	return &Views{connections: c, open: make(map[string]*view), users: make(map[string]int)}
}

// view is the answer to one request of one user.
type view struct {
	clients int // guarded by Views.mu

	reading chan struct{} // has room for the one client that may use the fields below
	latest  *kept         // nil: there is none yet. It changes under Views.mu, for Views.size
	due     time.Time     // when latest is to be read again
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

// Watched returns an action that waits where the request asks for it. act sees only the named parameters of a request that
// waits.
func (v *Views) Watched(act web.Action, parameters ...string) web.Action {
	return func(w http.ResponseWriter, r *http.Request) error {
		wait, waits := waitOf(r)
		if !waits || r.Method != http.MethodGet {
			return act(w, r)
		}
		asked, key, ok := canonical(r, parameters)
		if !ok {
			return act(w, r) // which refuses the parameters
		}
		latest, err := v.await(r, wait, key, func() (*kept, error) { return record(asked, act) })
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
func (v *Views) await(r *http.Request, wait time.Duration, key viewKey, read func() (*kept, error)) (*kept, error) {
	view := v.join(key)
	if view == nil {
		return nil, web.Busy("too many requests with \"Prefer: wait\" wait on this node, or of this user: try again later")
	}
	defer v.leave(key, view)
	ctx, done := v.connections.Wait(r, web.ForView)
	defer done()
	ends := time.Now().Add(wait)
	for {
		latest, due, err := v.look(view, r, read)
		web.GiveBack(r)
		if err != nil || !web.HasTag(r, latest.tag) {
			return latest, err
		}
		pause := time.NewTimer(min(time.Until(due), time.Until(ends)))
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

// mayOpen reports whether a user that has some of the open views of a node may have one more. A user gets at most half of
// the places that are left, so that a few users cannot take all from the others. A server administrator, who has to see
// what such users do, also gets the places that are kept for administrators.
func mayOpen(open, ofUser int, admin bool) bool {
	if admin {
		return open < maxViews && ofUser < maxOfUser
	}
	left := maxViews - forAdmins - open
	return ofUser < min(maxOfUser, (left+1)/2)
}

// join returns a view with another client, or nil if there would be too many views.
func (v *Views) join(key viewKey) *view {
	v.mu.Lock()
	defer v.mu.Unlock()
	found := v.open[key.text]
	if found == nil {
		if !mayOpen(len(v.open), v.users[key.user], key.admin) {
			return nil
		}
		found = &view{reading: make(chan struct{}, 1)}
		v.open[key.text] = found
		v.users[key.user]++
	}
	found.clients++
	return found
}

func (v *Views) leave(key viewKey, left *view) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if left.clients--; left.clients > 0 {
		return
	}
	delete(v.open, key.text)
	v.size -= left.latest.size()
	if v.users[key.user]--; v.users[key.user] == 0 {
		delete(v.users, key.user)
	}
}

// keep makes an answer the latest of a view, and reports whether there is room for it.
func (v *Views) keep(of *view, latest *kept) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	size := v.size - of.latest.size() + latest.size()
	if size > int(v.connections.Bytes()/keptPart) {
		return false
	}
	v.size, of.latest = size, latest
	return true
}

// look returns the latest answer, which is read again if it is due, and when it is due next.
func (v *Views) look(of *view, r *http.Request, read func() (*kept, error)) (*kept, time.Time, error) {
	select {
	case of.reading <- struct{}{}:
	case <-r.Context().Done():
		return nil, time.Time{}, web.ErrClientGone
	}
	defer func() { <-of.reading }()
	began := time.Now()
	if of.latest != nil && began.Before(of.due) {
		return of.latest, of.due, nil
	}
	latest, err := read()
	if err != nil {
		return nil, time.Time{}, err
	}
	if (of.latest == nil || latest.tag != of.latest.tag) && !v.keep(of, latest) {
		return nil, time.Time{}, errTooLarge
	}
	of.due = began.Add(pauseAfter(time.Since(began)))
	return of.latest, of.due, nil
}

var errTooLarge = errors.New("the answer is too large to be kept")

// record runs an action and keeps its answer.
func record(asked *http.Request, act web.Action) (*kept, error) {
	out := recorder{header: make(http.Header)}
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

// viewKey is what requests have in common that get the same answer.
type viewKey struct {
	text, user string
	admin      bool // the user is a server administrator
}

// mediaTypes are the media types of answers.
var mediaTypes = []string{"application/json", "multipart/related", "multipart/mixed"}

// canonical returns a request with what an action may read of it: the named parameters, and the media types that the client
// accepts. It has no tag of the client's, because its answer is for all. Requests with the same key get the same answer. ok
// is false if the parameters cannot be read.
func canonical(r *http.Request, parameters []string) (asked *http.Request, key viewKey, ok bool) {
	given, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, key, false
	}
	read := url.Values{}
	for _, name := range parameters {
		if given.Has(name) {
			read.Set(name, given.Get(name))
		}
	}
	accepted := []string{"none/none"}
	for _, mediaType := range mediaTypes {
		if web.Accepts(r, mediaType) {
			accepted = append(accepted, mediaType)
		}
	}
	asked = r.Clone(r.Context())
	asked.URL.RawQuery = read.Encode()
	asked.Header.Del("If-None-Match")
	asked.Header.Set("Accept", strings.Join(accepted, ", "))
	user := access.UserOf(r)
	turn := access.TurnOf(r)
	text, err := json.Marshal([]any{user.Name, user.Roles, accepted, web.PathSegments(r.URL), asked.URL.RawQuery})
	return asked, viewKey{string(text), turn, user.IsAdmin()}, err == nil
}
