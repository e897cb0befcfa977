//go:build fdb && fire

package fire

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
)

// followFeeds starts clients that follow the changes of a source at the frontends, and one that follows _db_updates. end waits
// until they have had every acknowledged write, and ends them.
func (r *roll) followFeeds() (end func()) {
	s := r.work.sources[slices.IndexFunc(r.work.sources, func(s *source) bool { return s.peer == hosted && !s.quiet })]
	ctx, cancel := context.WithCancel(r.Context())
	r.Cleanup(cancel)
	var group sync.WaitGroup
	var feeds []*following
	for _, kind := range []string{"continuous", "longpoll", eventSource} {
		f := &following{work: r.work, source: s, path: s.database + "/_changes", kind: kind, revs: map[string]string{}}
		feeds = append(feeds, f)
		group.Go(func() { f.follow(ctx) })
	}
	updates := &following{work: r.work, source: s, path: "_db_updates", kind: "continuous", revs: map[string]string{}}
	group.Go(func() { updates.follow(ctx) })
	return func() {
		for _, f := range feeds {
			require.Eventually(r, f.complete, limit, 50*time.Millisecond, "the feed %s of %s", f.kind, f.path)
		}
		cancel()
		group.Wait()
		for _, f := range append(feeds, updates) {
			r.Logf("%d feeds %s of %s ended and were followed elsewhere", f.ends, f.kind, f.path)
		}
	}
}

// eventSource is a feed of server-sent events. A client goes on from the identifier of the last one.
const eventSource = "eventsource"

// following is a client that follows the changes of a source, or _db_updates, at the frontends. When its feed ends it goes on
// at the sequence with which that has ended.
type following struct {
	*work
	source *source
	path   string
	kind   string // of the feed
	since  string // the sequence to go on from
	ends   int    // feeds that ended

	mu   sync.Mutex
	revs map[string]string // the revision of each document
}

// change is a row of a feed, or its end.
type change struct {
	ID      string
	Changes []struct{ Rev string }
	Deleted bool
	LastSeq string `json:"last_seq"`
}

// follow follows feeds until ctx ends.
func (f *following) follow(ctx context.Context) {
	for ; ctx.Err() == nil; pause(ctx, 20*time.Millisecond) {
		query := url.Values{"feed": {f.kind}, "heartbeat": {"5000"}}
		if f.since != "" && f.kind != eventSource {
			query.Set("since", f.since)
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, f.forTest(hosted, f.path)+"?"+query.Encode(), nil)
		require.NoError(f, err)
		if f.since != "" && f.kind == eventSource {
			request.Header.Set("Last-Event-ID", f.since)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			continue // no frontend has taken the request
		}
		if response.StatusCode == http.StatusOK {
			err = f.read(response.Body)
			if f.ends++; err != nil && ctx.Err() == nil {
				f.wrongAnswer("the feed %s of %s did not end as it should: %v", f.kind, f.path, err)
			}
		} else if text, _ := io.ReadAll(response.Body); ctx.Err() == nil {
			if noteServerError(request, response.StatusCode, string(text)); response.StatusCode != http.StatusServiceUnavailable {
				f.wrongAnswer("the feed %s of %s: %d %s", f.kind, f.path, response.StatusCode, text)
			}
		}
		_ = response.Body.Close()
	}
}

// read reads a feed up to its last sequence, or up to the end of server-sent events.
func (f *following) read(body io.Reader) error {
	if f.kind == "longpoll" {
		var whole struct {
			Results []change
			LastSeq string `json:"last_seq"`
		}
		if err := json.NewDecoder(body).Decode(&whole); err != nil {
			return err
		}
		for _, row := range whole.Results {
			f.note(row)
		}
		f.since = whole.LastSeq
		return nil
	}
	rows := bufio.NewReader(body)
	for {
		line, err := rows.ReadString('\n')
		switch {
		case f.kind == eventSource && err == io.EOF && line == "":
			return nil
		case err != nil:
			return err
		case f.kind == eventSource:
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			if name == "id" {
				f.since = value
			}
			if name != "data" {
				continue
			}
			line = value
		}
		if line == "\n" || line == "" { // a heartbeat
			continue
		}
		var row change
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			return fmt.Errorf("%q: %w", line, err)
		}
		if row.LastSeq != "" {
			f.since = row.LastSeq
			return nil
		}
		if f.kind == eventSource && row.ID == "" {
			return fmt.Errorf("an error: %s", line)
		}
		f.note(row)
	}
}

// note notes a change.
func (f *following) note(row change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, leaf := range row.Changes {
		f.revs[row.ID] = leaf.Rev
	}
	if row.Deleted {
		f.revs[row.ID] += " deleted"
	}
}

// complete reports whether the feeds have had all acknowledged writes, or later ones.
func (f *following) complete() bool {
	known := f.source.known()
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, rev := range known {
		if f.revs[id] == "" || generation(f.revs[id]) < generation(rev) {
			return false
		}
	}
	return true
}
