package replication

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"settee/fdbjobs"
	"settee/frontend/internal/web"
	"settee/replicator"
	"settee/replicator/jobs"
)

// The parameters of lists of jobs. Each is read by itself, into a jobs.Filter or into jobs.ListOptions. Then checkCombination looks at
// all of them. A list with a parameter of the first column can have these others, and its pages have these members:
//
//	                    skip               start_key     q    total_rows  scanned
//	none                yes                yes           -    yes         no
//	q                   no                 yes           -    yes         yes
//	sort=state          without start_key  without skip  no   yes         no
//	sort by a mark      no                 yes           yes  no          yes
//	mirror              no                 yes           yes  no          with q or sort
//
// The databases of a mirror have no sort except failing, and no other filter except states.

// defaultLimit is the default number of jobs in a list, which is CouchDB's.
const defaultLimit = 100

// JobParameters are the parameters that ListJobs reads.
var JobParameters = web.Parameters(func(q *web.Query) { readJobList(q) })

// readJobList reads which jobs a list has, and the page.
func readJobList(q *web.Query) (jobs.Filter, jobs.ListOptions) {
	opts, filter := readPage(q), readFilter(q)
	opts.Order = readOrder(q)
	checkCombination(q, filter, opts)
	return filter, opts
}

// DocParameters are the parameters that ListDocs and DocsBelow read.
var DocParameters = web.Parameters(func(q *web.Query) { readDocList(q) })

// readDocList reads which jobs of documents a list has, and the page.
func readDocList(q *web.Query) (jobs.Filter, jobs.ListOptions) {
	filter, opts := jobs.Filter{Documents: true, States: readStates(q)}, readPage(q)
	checkCombination(q, filter, opts)
	return filter, opts
}

// readFilter reads which jobs a list has: by state, and by replicator database, user or mirror. An empty database means the jobs
// without one.
func readFilter(q *web.Query) jobs.Filter {
	f := jobs.Filter{States: readStates(q), Database: q.Text("database"), Mirror: q.Text("mirror")}
	f.Transient = q.Has("database") && f.Database == ""
	switch q.Text("mirrored") {
	case "", "true":
	case "false":
		f.Unmirrored = true
	default:
		q.Refuse("`mirrored` must be true or false")
	}
	if q.Has("user") {
		user := q.Text("user")
		f.User = &user
	}
	return f
}

// readPage reads the parameters of a page of a list: limit, skip, q, and start_key, which is the next_start_key of the page before.
func readPage(q *web.Query) jobs.ListOptions {
	opts := jobs.ListOptions{
		Limit: min(q.Count("limit", defaultLimit), jobs.MaxLimit), Skip: q.Count("skip", 0), Query: q.Text("q"),
	}
	if key := q.Text("start_key"); key != "" {
		var place [2]string
		text, err := base64.RawURLEncoding.DecodeString(key)
		if err == nil {
			err = json.Unmarshal(text, &place)
		}
		if err != nil || len(place[0]) > jobs.MaxOwnerSize || len(place[1]) > fdbjobs.MaxNameSize {
			q.Refuse(wrongStartKey)
		}
		opts.After = fdbjobs.Position{Owner: place[0], ID: place[1]}
	}
	return opts
}

// readOrder reads the order of a list of jobs.
func readOrder(q *web.Query) jobs.Order {
	order := jobs.Order(q.Text("sort"))
	switch order {
	case jobs.ByOwner, jobs.ByState, jobs.ByCrash, jobs.ByStuck, jobs.ByLag, jobs.ByRefusal:
	default:
		q.Refuse("`sort` must be one of [%s,%s,%s,%s,%s]", jobs.ByState, jobs.ByCrash, jobs.ByStuck, jobs.ByLag, jobs.ByRefusal)
	}
	return order
}

const wrongStartKey = "`start_key` must be the next_start_key of an earlier page"

// checkCombination refuses parameters that cannot be combined.
func checkCombination(q *web.Query, f jobs.Filter, opts jobs.ListOptions) {
	byMark, ofMirror := !opts.Order.Counted(), f.Mirror != ""
	_, noTime := strconv.ParseInt(opts.After.Owner, 10, 64)
	switch {
	case opts.Query != "" && opts.Skip > 0:
		q.Refuse("`skip` cannot be combined with `q`: use `start_key`")
	case f.User != nil && f.Database != "":
		q.Refuse("`user` is for jobs without a database, and cannot be combined with a `database`")
	case opts.Order == jobs.ByState && (opts.Query != "" || opts.Skip > 0 && q.Has("start_key")):
		q.Refuse("`sort=%s` cannot be combined with `q`, nor with both `skip` and `start_key`", opts.Order)
	case byMark && opts.Skip > 0:
		q.Refuse("`skip` cannot be combined with `sort`: use `start_key`")
	case byMark && q.Has("start_key") && noTime != nil:
		q.Refuse(wrongStartKey)
	case ofMirror && (f.Database != "" || f.User != nil || f.Transient):
		q.Refuse("`mirror` cannot be combined with `database` or `user`")
	case ofMirror && f.Unmirrored:
		q.Refuse("`mirrored=false` cannot be combined with `mirror`")
	case ofMirror && opts.Skip > 0:
		q.Refuse("`skip` cannot be combined with `mirror`: use `start_key`")
	case ofMirror && opts.Order != jobs.ByOwner && opts.Order != jobs.ByCrash:
		q.Refuse("`sort` of the jobs of a mirror must be %s", jobs.ByCrash)
	}
}

// totalOf returns the total of a list, or nil if it is not known.
func totalOf(list jobs.List, f jobs.Filter, opts jobs.ListOptions) *int64 {
	if !opts.Order.Counted() || f.Mirror != "" {
		return nil
	}
	return &list.Total
}

// pageEnd has the last members of a page.
type pageEnd struct {
	Scanned *int   `json:"scanned,omitempty"` // of a search, or a list by a mark: how many jobs the page looked at
	Next    string `json:"next_start_key,omitempty"`
}

func endOf(list jobs.List, opts jobs.ListOptions) pageEnd {
	end := pageEnd{Next: startKey(list.Next)}
	if opts.Query != "" || !opts.Order.Counted() {
		end.Scanned = &list.Scanned
	}
	return end
}

// startKey returns a position as the parameter start_key, or nothing without one.
func startKey(place *fdbjobs.Position) string {
	if place == nil {
		return ""
	}
	text, err := json.Marshal([2]string{place.Owner, place.ID})
	if err != nil {
		panic(err) // strings have a text
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// readStates returns the states that a list is restricted to. `states` has CouchDB's states, and `condition` those of
// Condition.State. With both a job must have one of each.
func readStates(q *web.Query) jobs.States {
	return jobs.States{
		Couch: readWords(q, "states", replicator.ParseState, "States must be one or more of [initializing,error,running,pending,crashing,completed,failed]"),
		Shown: readWords(q, "condition", parseShown, fmt.Sprintf("`condition` must be one or more of %s", shownStates)),
	}
}

// shownStates is the list of states in errors.
var shownStates = strings.ReplaceAll(fmt.Sprint(replicator.ShownStates), " ", ",")

func parseShown(name string) (replicator.ShownState, error) {
	state := replicator.ShownState(name)
	if !slices.Contains(replicator.ShownStates, state) {
		return "", errors.New("unknown")
	}
	return state, nil
}

// readWords reads a parameter with words between commas. It returns nil without the parameter. As in CouchDB an empty word
// selects nothing.
func readWords[T any](q *web.Query, name string, parse func(string) (T, error), wrong string) []T {
	if !q.Has(name) {
		return nil
	}
	out := []T{}
	for word := range strings.SplitSeq(q.Text(name), ",") {
		if word == "" {
			continue
		}
		value, err := parse(strings.TrimSpace(word))
		if err != nil {
			q.Refuse("%s", wrong)
			return nil
		}
		out = append(out, value)
	}
	return out
}
