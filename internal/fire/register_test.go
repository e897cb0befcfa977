//go:build fdb && fire

package fire

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"sort"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/couch/couchtest"
	"settee/replicator"
)

const (
	registerDatabase   = "registers"
	registers          = 6
	registerClients    = 4
	registerPause      = 40 * time.Millisecond
	lifecyclePause     = 200 * time.Millisecond
	checkHistoryWithin = 10 * time.Minute // for a history that cannot be explained: others take seconds
)

// access is one operation on a document: a read, or a write of a value that no other write has. Values are positive.
type access struct {
	doc   string
	write bool
	base  int // the value of the revision that the write names; 0: it names none
	value int // of the write
	// deletes says that the revision of the write is a deletion. It has a value, too: that of later writes' base.
	deletes bool
}

// result is the answer to an access.
type result struct {
	unknown  bool // a write without an answer, which may take effect at any time later, or never
	conflict bool // the write was refused
	gone     bool // the read found no document, or a deletion
	value    int  // what the read found
}

// register is the state of a document: the value of its winning revision, 0 if it has none, and whether that is a deletion.
type register struct {
	value   int
	deleted bool
}

// step is what an access does to a document, and whether the result is true. Only the winning revision can be replaced, so
// there never is a second one. A write without an answer has no result that could be wrong; one that never took effect is
// one that came after everything else. No write is refused because of itself.
func (s register) step(a access, r result) (bool, register) {
	if !a.write {
		gone := s.value == 0 || s.deleted
		return r.gone == gone && (gone || r.value == s.value), s
	}
	takes := a.base == s.value || a.base == 0 && s.deleted
	if takes && (r.unknown || !r.conflict) {
		return true, register{a.value, a.deletes}
	}
	return r.unknown || r.conflict && !takes && s.value != a.value, s
}

// registerModel is the sequential behaviour of documents, each for itself.
var registerModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byDoc := map[string][]porcupine.Operation{}
		for _, op := range history {
			doc := op.Input.(access).doc
			byDoc[doc] = append(byDoc[doc], op)
		}
		return slices.Collect(maps.Values(byDoc))
	},
	Init: func() any { return register{} },
	Step: func(state, input, output any) (bool, any) {
		ok, next := state.(register).step(input.(access), output.(result))
		return ok, next
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v: %+v", input, output) },
}

// history is what clients of the frontends have done with documents, and what they were told.
type history struct {
	*work

	mu       sync.Mutex
	began    time.Time
	done     []porcupine.Operation
	revs     map[int]string // the revision of a value, once an answer has named it
	last     int            // the last value that a write has
	statuses map[int]int

	names []string // the documents of lifecycles
	lived int      // those that nothing interrupted
}

func newHistory(w *work) *history {
	w.must(http.MethodPut, w.forTest(hosted, registerDatabase), "", http.StatusCreated, nil)
	return &history{work: w, began: time.Now(), revs: map[int]string{}, statuses: map[int]int{}}
}

// frontend returns the URL of a random frontend, for the test.
func (h *history) frontend(random *rand.Rand, path string) string {
	return h.at(hosted, h.doors[random.IntN(frontends)]) + path
}

// send makes a request to a random frontend. It reports false without an answer that says what has happened.
func (h *history) send(random *rand.Rand, method, path, body string) (status int, answer string, ok bool) {
	status, answer, err := ask(h.Context(), patience, method, h.frontend(random, path), body)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.statuses[status]++ // 0: no answer
	return status, answer, err == nil && status < http.StatusInternalServerError
}

// record adds an operation. A write without an answer may take effect until the end of time.
func (h *history) record(client int, call time.Duration, a access, r result) {
	ended := int64(time.Since(h.began))
	if r.unknown {
		ended = math.MaxInt64
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.done = append(h.done, porcupine.Operation{ClientId: client, Input: a, Output: r, Call: int64(call), Return: ended})
}

// doubted adds to each refused write a write without an answer before the refusal. A commit whose result is unknown is repeated,
// and the repetition is refused if another write has replaced the revision meanwhile (see package docstore).
func doubted(history []porcupine.Operation) []porcupine.Operation {
	out := slices.Clone(history)
	for _, op := range history {
		if op.Output.(result).conflict {
			op.Output = result{unknown: true}
			out = append(out, op)
		}
	}
	return out
}

// settled bounds how late the writes without an answer took effect, so that an order is found in seconds. It leaves out those of
// which a history shows that they never did. After all answers each document was read.
//
// Nobody replaces a value that no answer has shown, for its revision is not known. So the last read shows it, or it was never
// there; and if it was, that was before the end of the first read that shows it. A deletion replaces a value that an answer
// has shown. It came before the end of the first later read that shows something else, or never: no value is written twice.
func settled(history []porcupine.Operation) (out []porcupine.Operation) {
	shown := map[int]int64{} // the end of the first answer that shows a value
	deletion := map[int]bool{}
	for _, op := range history {
		a, r := op.Input.(access), op.Output.(result)
		value := r.value
		if a.write {
			value = a.value
			deletion[value] = a.deletes
		}
		if end, known := shown[value]; !r.unknown && !r.conflict && !r.gone && (!known || op.Return < end) {
			shown[value] = op.Return
		}
	}
	for _, op := range history {
		a, r := op.Input.(access), op.Output.(result)
		switch {
		case r.unknown && !a.deletes:
			end, ever := shown[a.value]
			if !ever {
				continue
			}
			op.Return = min(op.Return, max(op.Call, end))
		case r.unknown:
			for _, read := range history {
				found := read.Output.(result)
				other := found.value != a.base
				if found.gone {
					other = !deletion[a.base]
				}
				if in := read.Input.(access); in.doc == a.doc && !in.write && read.Call > shown[a.base] && other {
					op.Return = min(op.Return, max(op.Call, read.Return))
				}
			}
		}
		out = append(out, op)
	}
	return out
}

// named notes the revision that an answer gives for a value. All answers must give the same.
func (h *history) named(doc string, value int, rev string) {
	h.mu.Lock()
	before, known := h.revs[value]
	h.revs[value] = rev
	h.mu.Unlock()
	if known && before != rev {
		h.wrongAnswer("value %d of %s has the revisions %s and %s", value, doc, before, rev)
	}
}

// draw returns a write, and the revision that it names: that of the value which the client has seen last, so often an old
// one, or none.
func (h *history) draw(random *rand.Rand, doc string, seen int) (a access, rev string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	a = access{doc: doc, write: true, base: seen, value: h.last, deletes: random.IntN(5) == 0}
	if random.IntN(8) == 0 {
		a.base = 0
	}
	if a.base == 0 {
		a.deletes = false // a deletion without a revision is another request
	}
	return a, h.revs[a.base]
}

func (a access) body(rev string) map[string]any {
	body := map[string]any{"_id": a.doc, "value": a.value}
	if rev != "" {
		body["_rev"] = rev
	}
	if a.deletes {
		body["_deleted"] = true
	}
	return body
}

// client reads and writes documents, one after another, until ctx ends.
func (h *history) client(ctx context.Context, number int, random *rand.Rand) {
	seen := map[string]int{}
	for ctx.Err() == nil {
		doc := fmt.Sprint("register", random.IntN(registers))
		switch random.IntN(5) {
		case 0, 1:
			h.read(number, random, doc, seen)
		case 2:
			h.writeBulk(number, random, seen)
		default:
			h.writeOne(number, random, doc, seen)
		}
		pause(ctx, registerPause)
	}
}

// read reads a document. It reports false without an answer: then it has no effect, and is no evidence.
func (h *history) read(client int, random *rand.Rand, doc string, seen map[string]int) bool {
	call := time.Since(h.began)
	status, answer, ok := h.send(random, http.MethodGet, registerDatabase+"/"+doc+"?conflicts=true", "")
	if !ok {
		return false
	}
	var found struct {
		Rev       string `json:"_rev"`
		Value     int
		Conflicts []string `json:"_conflicts"`
	}
	if status != http.StatusOK && status != http.StatusNotFound || status == http.StatusOK && json.Unmarshal([]byte(answer), &found) != nil || len(found.Conflicts) > 0 {
		h.wrongAnswer("reading %s: %d %s", doc, status, answer)
		return true
	}
	h.record(client, call, access{doc: doc}, result{gone: status == http.StatusNotFound, value: found.Value})
	seen[doc] = found.Value
	if status == http.StatusOK {
		h.named(doc, found.Value, found.Rev)
	}
	return true
}

func (h *history) writeOne(client int, random *rand.Rand, doc string, seen map[string]int) {
	a, rev := h.draw(random, doc, seen[doc])
	body, _ := json.Marshal(a.body(rev)) // strings and numbers
	call := time.Since(h.began)
	status, answer, ok := h.send(random, http.MethodPut, registerDatabase+"/"+doc, string(body))
	var written struct{ Rev string }
	done := http.StatusCreated
	if a.deletes {
		done = http.StatusOK
	}
	switch {
	case !ok:
		h.record(client, call, a, result{unknown: true})
	case status == http.StatusConflict:
		h.record(client, call, a, result{conflict: true})
		seen[doc] = 0 // until it is read
	case status == done && json.Unmarshal([]byte(answer), &written) == nil:
		h.record(client, call, a, result{})
		h.named(doc, a.value, written.Rev)
		seen[doc] = a.value
	default:
		h.wrongAnswer("writing %s: %d %s", doc, status, answer)
	}
}

// writeBulk writes two documents with one request. Each is written or refused for itself.
func (h *history) writeBulk(client int, random *rand.Rand, seen map[string]int) {
	first := random.IntN(registers)
	var writes []access
	var docs []map[string]any
	for n := range 2 {
		doc := fmt.Sprint("register", (first+n)%registers)
		a, rev := h.draw(random, doc, seen[doc])
		writes, docs = append(writes, a), append(docs, a.body(rev))
	}
	body, _ := json.Marshal(map[string]any{"docs": docs})
	call := time.Since(h.began)
	status, answer, ok := h.send(random, http.MethodPost, registerDatabase+"/_bulk_docs", string(body))
	var rows []struct{ ID, Rev, Error string }
	if ok && (status != http.StatusCreated || json.Unmarshal([]byte(answer), &rows) != nil || len(rows) != len(writes)) {
		h.wrongAnswer("_bulk_docs: %d %s", status, answer)
		return
	}
	for n, a := range writes {
		switch {
		case !ok:
			h.record(client, call, a, result{unknown: true})
		case rows[n].Error == "conflict":
			h.record(client, call, a, result{conflict: true})
			seen[a.doc] = 0
		case rows[n].Error == "":
			h.record(client, call, a, result{})
			h.named(a.doc, a.value, rows[n].Rev)
			seen[a.doc] = a.value
		default:
			h.wrongAnswer("_bulk_docs: %s", answer)
		}
	}
}

// check checks that there is an order of all operations in which each answer is true, and that no document has two leaves.
func (h *history) check(random *rand.Rand) {
	for n := range registers {
		assert.True(h, h.read(registerClients, random, fmt.Sprint("register", n), map[string]int{}), "the last read of a document")
	}
	bounded := settled(doubted(h.done))
	outcome, _ := porcupine.CheckOperationsVerbose(registerModel, bounded, checkHistoryWithin)
	if !assert.Equal(h, porcupine.Ok, outcome, "%d reads and writes of documents", len(h.done)) {
		h.explain(bounded)
	}
	for doc, leaves := range couchtest.Leaves(h, h.forTest(hosted, registerDatabase)) {
		assert.Len(h, leaves, 1, doc)
	}
	for _, name := range h.names { // a write without an answer may have been late
		h.remove(name)
	}
	assert.NotZero(h, h.lived, "documents of replications that nothing interrupted")
	unknown, refused, shown := 0, map[int]bool{}, map[int]bool{}
	for _, op := range h.done {
		switch a, r := op.Input.(access), op.Output.(result); {
		case r.unknown:
			unknown++
		case r.conflict:
			refused[a.value] = true
		case !a.write:
			shown[r.value] = true
		}
	}
	maps.DeleteFunc(refused, func(value int, _ bool) bool { return !shown[value] })
	assert.Greater(h, len(h.done)-unknown, registers*registerClients)
	h.Logf("%d reads and writes of documents by %d clients, of which %d without an answer and %d refused though made, and %d of %d replications from their documents to the deletion of these; statuses %v",
		len(h.done), registerClients, unknown, len(refused), h.lived, len(h.names), h.statuses)
}

// explain logs the operations on each document that has no order, up to some after the first that no order explains.
func (h *history) explain(bounded []porcupine.Operation) {
	for _, ops := range registerModel.Partition(bounded) {
		slices.SortFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
		explained := func(n int) bool {
			outcome, _ := porcupine.CheckOperationsVerbose(registerModel, ops[:n], checkHistoryWithin)
			return outcome == porcupine.Ok
		}
		if explained(len(ops)) {
			continue
		}
		first := sort.Search(len(ops), func(n int) bool { return !explained(n + 1) })
		for n, op := range ops[max(0, first-40):min(len(ops), first+20)] {
			h.Logf("%d: client %d, from %s to %s: %s", n+max(0, first-40)-first, op.ClientId, time.Duration(op.Call), time.Duration(op.Return),
				registerModel.DescribeOperation(op.Input, op.Output))
		}
	}
}

// errStops is the end of a lifecycle that a fault interrupts: the client cannot know what was done.
var errStops = errors.New("no answer")

// lifecycles adds replications as documents, waits until they have completed, and deletes them, one after another until ctx
// ends. Each step goes to another frontend; all say the same.
func (h *history) lifecycles(ctx context.Context, random *rand.Rand) {
	source := h.sources[0] // of couch0, which is not under fire
	for n := 0; ctx.Err() == nil; n++ {
		name := fmt.Sprintf("lifecycle%04d", n)
		k := &task{name: name, source: source, peer: couch1}
		if h.lifecycle(random, name, k.definition(h.cluster)) == nil {
			h.lived++
		} else {
			h.remove(name)
		}
		h.names = append(h.names, name)
		pause(ctx, lifecyclePause)
	}
}

// request is a step of a lifecycle. What must have been answered is one of the statuses.
func (h *history) request(random *rand.Rand, method, path, body string, into any, statuses ...int) error {
	status, answer, ok := h.send(random, method, path, body)
	if !ok {
		return errStops
	}
	if !slices.Contains(statuses, status) {
		h.wrongAnswer("%s %s: %d %s", method, path, status, answer)
		return errStops
	}
	if into != nil {
		if err := json.Unmarshal([]byte(answer), into); err != nil {
			h.wrongAnswer("%s %s: %d %s: %v", method, path, status, answer, err)
			return errStops
		}
	}
	return nil
}

func (h *history) lifecycle(random *rand.Rand, name, definition string) error {
	var put struct{ Rev string }
	if err := h.request(random, http.MethodPut, "_replicator/"+name, definition, &put, http.StatusCreated); err != nil {
		return err
	}
	var listed struct{ State replicator.State }
	var doc struct {
		Rev   string           `json:"_rev"`
		State replicator.State `json:"_replication_state"`
	}
	for deadline := time.Now().Add(limit); doc.State == ""; pause(h.Context(), 50*time.Millisecond) {
		if err := h.request(random, http.MethodGet, "_scheduler/docs/_replicator/"+name, "", &listed, http.StatusOK); err != nil {
			return err
		}
		if err := h.request(random, http.MethodGet, "_replicator/"+name, "", &doc, http.StatusOK); err != nil {
			return err
		}
		if listed.State.Terminal() && doc.State != listed.State {
			h.wrongAnswer("%s has %s, and its document %q", name, listed.State, doc.State)
		}
		if time.Now().After(deadline) {
			h.wrongAnswer("%s does not end", name)
			return errStops
		}
	}
	if err := h.request(random, http.MethodGet, "_scheduler/docs/_replicator/"+name, "", &listed, http.StatusOK); err != nil {
		return err
	}
	if listed.State != doc.State {
		h.wrongAnswer("the document of %s says %s, and the list %s", name, doc.State, listed.State)
	}
	if err := h.request(random, http.MethodDelete, "_replicator/"+name+"?rev="+doc.Rev, "", nil, http.StatusOK); err != nil {
		return err
	}
	if err := h.request(random, http.MethodGet, "_scheduler/docs/_replicator/"+name, "", nil, http.StatusNotFound); err != nil {
		return err
	}
	return h.request(random, http.MethodGet, "_replicator/"+name, "", nil, http.StatusNotFound)
}

// remove deletes the document of a lifecycle, if it is there.
func (h *history) remove(name string) {
	at := h.forTest(hosted, "_replicator/"+name)
	for {
		status, answer, err := askAgain(h.Context(), patience, http.MethodGet, at, "", anyAnswer)
		if err != nil || status == http.StatusNotFound {
			return
		}
		var doc struct {
			Rev string `json:"_rev"`
		}
		if json.Unmarshal([]byte(answer), &doc) != nil {
			h.wrongAnswer("%s: %d %s", at, status, answer)
			return
		}
		_, _, _ = askAgain(h.Context(), patience, http.MethodDelete, at+"?rev="+doc.Rev, "", anyAnswer) // until it is gone
	}
}

func TestRegisterModel(t *testing.T) {
	const doc = "d"
	at := func(call, ended int64, a access, r result) porcupine.Operation {
		a.doc = doc
		return porcupine.Operation{Input: a, Output: r, Call: call, Return: ended}
	}
	first := at(0, 1, access{write: true, value: 1}, result{})
	second := at(2, 3, access{write: true, base: 1, value: 2}, result{})
	lost := at(2, math.MaxInt64, access{write: true, base: 1, value: 2}, result{unknown: true})
	for name, test := range map[string]struct {
		history []porcupine.Operation
		want    bool
	}{
		"in order":             {[]porcupine.Operation{first, second, at(4, 5, access{}, result{value: 2})}, true},
		"a stale read":         {[]porcupine.Operation{first, second, at(4, 5, access{}, result{value: 1})}, false},
		"a read meanwhile":     {[]porcupine.Operation{first, second, at(2, 5, access{}, result{value: 1})}, true},
		"two of one revision":  {[]porcupine.Operation{first, second, at(4, 5, access{write: true, base: 1, value: 3}, result{})}, false},
		"refused":              {[]porcupine.Operation{first, second, at(4, 5, access{write: true, base: 1, value: 3}, result{conflict: true})}, true},
		"refused for no cause": {[]porcupine.Operation{first, at(4, 5, access{write: true, base: 1, value: 3}, result{conflict: true})}, false},
		"refused, and made": {[]porcupine.Operation{first, at(2, 9, access{write: true, base: 1, value: 2}, result{conflict: true}),
			at(3, 4, access{}, result{value: 2}), at(5, 6, access{write: true, base: 2, value: 3}, result{})}, true},
		"refused, and made later": {[]porcupine.Operation{first, second, at(4, 5, access{write: true, base: 2, value: 3}, result{conflict: true}),
			at(6, 7, access{}, result{value: 3})}, false},
		"refused for itself": {[]porcupine.Operation{first, at(2, 9, access{write: true, base: 1, value: 2}, result{conflict: true}),
			at(3, 4, access{}, result{value: 2})}, false},
		"a deletion refused, and made": {[]porcupine.Operation{first, at(2, 9, access{write: true, base: 1, value: 2, deletes: true}, result{conflict: true}),
			at(3, 4, access{write: true, value: 3}, result{}), at(5, 6, access{}, result{value: 3})}, true},
		"unknown, written":     {[]porcupine.Operation{first, lost, at(4, 5, access{}, result{value: 2})}, true},
		"unknown, not written": {[]porcupine.Operation{first, lost, at(4, 5, access{}, result{value: 1})}, true},
		"unknown, then not":    {[]porcupine.Operation{first, lost, at(4, 5, access{}, result{value: 2}), at(6, 7, access{}, result{value: 1})}, false},
		"deleted": {[]porcupine.Operation{first, at(2, 3, access{write: true, base: 1, value: 2, deletes: true}, result{}),
			at(4, 5, access{}, result{gone: true}), at(6, 7, access{write: true, value: 3}, result{})}, true},
		"lost": {[]porcupine.Operation{first, at(4, 5, access{}, result{gone: true})}, false},
	} {
		assert.Equal(t, test.want, porcupine.CheckOperations(registerModel, doubted(test.history)), name)
	}
}

// Bounds for writes without an answer do not change whether a history can be explained.
func TestSettled(t *testing.T) {
	explained, left := 0, 0
	for seed := range uint64(20_000) {
		history := doubted(randomHistory(rand.New(rand.NewPCG(seed, 0))))
		want := porcupine.CheckOperations(registerModel, history)
		bounded := settled(history)
		require.Equal(t, want, porcupine.CheckOperations(registerModel, bounded), "seed %d: %v", seed, history)
		if want {
			explained++
		}
		left += len(history) - len(bounded)
	}
	assert.Greater(t, explained, 5_000)
	assert.Less(t, explained, 15_000)
	assert.Greater(t, left, 5_000)
}

// randomHistory returns what two clients have done with a document. One answer of half of the histories is another one.
func randomHistory(random *rand.Rand) (history []porcupine.Operation) {
	var state register
	var value int
	seen := []int{0, 0}
	ended := []int64{0, 0}
	untrue := random.IntN(20)
	for n := range 10 {
		client := random.IntN(2)
		now := int64(n+1) * 10 // when it takes effect
		op := porcupine.Operation{ClientId: client, Call: max(ended[client]+1, now-random.Int64N(20)), Return: now + random.Int64N(20)}
		if n == 9 {
			op.Call, op.Return = slices.Max(ended)+1, slices.Max(ended)+2
		}
		ended[client] = op.Return
		a, r := access{doc: "d"}, result{value: state.value}
		if random.IntN(3) > 0 && n < 9 {
			value++
			a = access{doc: "d", write: true, base: seen[client], value: value, deletes: seen[client] > 0 && random.IntN(3) == 0}
			takes := a.base == state.value || a.base == 0 && state.deleted
			r = result{conflict: !takes}
			if random.IntN(3) == 0 {
				r = result{unknown: true}
				op.Return = math.MaxInt64
				takes = takes && random.IntN(2) == 0
			}
			if takes {
				state = register{a.value, a.deletes}
			}
		} else if state.value == 0 || state.deleted {
			r = result{gone: true}
		}
		switch {
		case n != untrue || r.unknown:
		case a.write:
			r.conflict = !r.conflict
		default:
			r = result{value: 1 + random.IntN(max(1, value))}
		}
		op.Input, op.Output = a, r
		history = append(history, op)
		switch {
		case a.write && !r.unknown && !r.conflict:
			seen[client] = a.value
		case !r.unknown:
			seen[client] = r.value
		}
	}
	return history
}
