package fdbjobs

import (
	"encoding/json"

	"settee/pkg/kv"
)

// A holder writes states often. What Entries needs of a state is stored in the job's row with it. Amounts change more often
// than anything else, so an update that does not renew the hold leaves the row as it is if only they differ. The next write of
// the row stores them. If that one keeps the state, it reads the state in its transaction: this process may not know which of
// its states the store has, because several calls write at the same time, or because the result of one is unknown.
//
// [Held].omitted says whether a row may lack amounts. A run that leaves some out counts itself before its commit. A write of the
// row stores the amounts of the state that it writes or reads, and makes good for the runs that were counted when it began.
// An update that was counted by then and is committed later has a conflict with it, and counts itself again.

// stateFacts are the facts of a state that a call writes. They are computed once, however often the transaction runs, unless
// the row gets another version meanwhile.
type stateFacts struct {
	text       json.RawMessage
	derivation *Derivation

	known   bool
	version int64
	facts   string
	amounts amounts
	err     error
}

// of returns the facts and the amounts in a version.
func (s *stateFacts) of(version int64) (string, amounts, error) {
	if !s.known || s.version != version {
		s.facts, s.amounts, s.err = s.derivation.factsOfState(version, s.text)
		s.known, s.version = true, version
	}
	return s.facts, s.amounts, s.err
}

// fresh reports whether the write is an update that does not renew the hold.
func (w *write) fresh() bool { return !w.renews && !w.ends }

// readKept starts reading the state that the job keeps, if the row may lack its amounts and gets them now.
func (w *write) readKept(tx kv.Transaction) {
	h := w.held
	var lacks bool
	w.omitted, lacks = h.lacksAmounts()
	w.kept, w.exact = nil, false
	if lacks && w.state == nil && !w.fresh() {
		w.kept = tx.Snapshot().Get(h.queue.keys.state.Pack(h.job.ID)) // its writers write the row, or conflict as if they did
	}
}

// put writes the row after a call, and the state if the call has one.
func (w *write) put(s *sharing, old, next *row) error {
	id := w.held.job.ID
	if next != old {
		if err := w.setFacts(old, next); err != nil {
			return err
		}
		next.checked = true
	}
	if w.state != nil {
		w.held.queue.setState(s.tx, id, w.state)
	}
	return s.batch.gather(id, old, next)
}

// setFacts gives a row the facts of the state after the call.
func (w *write) setFacts(old, next *row) (err error) {
	switch {
	case next.version == 0 || w.state == nil && w.fresh():
		return nil
	case w.state != nil && w.facts == nil:
		return w.held.queue.needsDerivation()
	case w.facts != nil:
		if next.facts.state, next.facts.amounts, err = w.facts.of(next.version); err != nil {
			return err
		}
	case w.kept != nil:
		text, err := w.kept.Await()
		if err != nil {
			return err
		}
		// The row has the facts. They are within the limits, or the row has none.
		_, next.facts.amounts, _ = w.held.queue.derivation.factsOfState(next.version, text)
	}
	w.exact = true
	if w.fresh() && next.facts.state == old.facts.state && next.facts.amounts != old.facts.amounts {
		next.facts.amounts, w.exact = old.facts.amounts, false
		w.held.leavesAmounts()
	}
	return nil
}

// lacksAmounts reports whether the row may lack amounts of the state, and how often a run has left some out.
func (h *Held) lacksAmounts() (omitted int, lacks bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.queue.derivation
	return h.omitted, d != nil && d.OfState != nil && h.omitted > h.made
}

// leavesAmounts notes that a run leaves amounts out of the row.
func (h *Held) leavesAmounts() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.omitted++
}

// hasAmounts notes that the row has what was left out by the first runs.
func (h *Held) hasAmounts(omitted int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.made = max(h.made, omitted)
}
