package fdbjobs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"settee/pkg/kv"
	"settee/pkg/tuple"
)

// The limits of what follows from a job.
const (
	// maxFactsSize is the limit of the facts of Listed, and of the facts of the state, in bytes.
	maxFactsSize = 4_000
	// maxEntries is the maximum number of entries of a job.
	maxEntries = 16
)

// The limits of an entry.
const (
	maxIndexSize      = 30    // bytes of the name of an index, and of the name of a tally
	maxEntryKeySize   = 4_000 // bytes of a packed key
	maxEntryValueSize = 200   // bytes
	maxAdds           = 8
)

// Derivation says what follows from the jobs of a queue: entries in indexes, tallies of them, and the tags of due jobs. The layer
// writes them in the transaction that changes a job, and removes them with it.
//
// Its functions are pure: they use no clock, no settings and no store, and return the same for the same arguments in each
// process. Who writes a job decides what depends on the time, and writes the decision into the state. The functions do not
// fail: what they cannot read has no facts and no entries. A function that is nil returns nothing.
//
// To change what they return, give the new result another version, and keep the old one for as long as rows have it: a
// row says which version its entries are of.
type Derivation struct {
	// OfListed and OfState return what Entries needs of [Spec].Listed and of the state: at most 4,000 bytes. They are called
	// once for each call that writes the part, not for each run of its transaction, except that Add is called in each run. A
	// nil Listed has no facts.
	OfListed, OfState func(version int64, part json.RawMessage) []byte
	// Entries returns what follows from a job: at most 16 entries, the most important first. It depends on nothing but its arguments.
	Entries func(version int64, f Facts) []Entry
	// Version returns the version of rows that are added, more than 0, or 0 if nothing must follow from them yet. Rows that
	// are changed keep theirs until [Queue.Rederive]. nil means version 1.
	Version func(tx kv.Transaction) (int64, error)
	// Due has the tags of due jobs, by the tags with which they are added, resubmitted or delayed. A delayed job whose tag is not in
	// it loses the tag when its time comes.
	Due map[string]string
	// Unlisted says that the jobs of the queue are not listed. The layer then writes four keys less for a job from its
	// addition to its end: it has no entries for [Queue.List] and [Queue.Skip], which return ErrInvalid, and counts only jobs
	// that have not ended. It stays as it is for as long as the queue has jobs.
	Unlisted bool
}

// Facts are what [Derivation].Entries sees of a job: its row, without the lock and the place in the queue.
type Facts struct {
	ID, Owner  string
	Status     Status
	Label, Tag string
	Scheduled  int64 // seconds since the Unix epoch
	// Listed and State are what OfListed and OfState have returned. Those that are not there are nil.
	Listed, State []byte
}

// Entry is a row of an index that follows from a job. The layer adds the job's id to the key, so jobs never share a key. A
// job may have several entries in an index, with different keys.
type Entry struct {
	Index string      // the name of the index, 1 to 30 bytes, without an underscore at its start
	Key   tuple.Tuple // elements are string, []byte and int64; at most 4,000 bytes when packed
	Value []byte      // at most 200 bytes
	Adds  []Add       // at most 8; not read
	ID    string      // of the job, in what [Queue.Entries] reads

	keyless bool // it only adds to tallies
}

// Add adds N to a tally of the entry's index: the one with a name that belongs to all entries with the same first Prefix
// elements of the key. N is not negative. A tally is the sum of what the entries add that are there.
type Add struct {
	Prefix int
	Name   string // at most 30 bytes
	N      int64
}

// facts are what a row keeps for Entries of the parts that have keys of their own. It is comparable.
type facts struct{ listed, state string }

// factsOfListed returns the facts of Listed. With an error, which is an ErrTooLarge, there are none.
func (d *Derivation) factsOfListed(version int64, listed json.RawMessage) (string, error) {
	if d == nil || d.OfListed == nil || version == 0 || listed == nil {
		return "", nil
	}
	return checkFacts("listed part", d.OfListed(version, listed))
}

// factsOfState returns the facts of a state. With an error, which is an ErrTooLarge, there are none.
func (d *Derivation) factsOfState(version int64, state json.RawMessage) (string, error) {
	if d == nil || d.OfState == nil || version == 0 {
		return "", nil
	}
	return checkFacts("state", d.OfState(version, state))
}

func checkFacts(of string, facts []byte) (string, error) {
	if err := checkSize("facts of its "+of, len(facts), maxFactsSize); err != nil {
		return "", err
	}
	return string(facts), nil
}

// newVersion returns the version of a row that is added.
func (d *Derivation) newVersion(tx kv.Transaction) (int64, error) {
	switch {
	case d == nil:
		return 0, nil
	case d.Version == nil:
		return 1, nil
	}
	version, err := d.Version(tx)
	if err == nil && version < 0 {
		err = fmt.Errorf("%w: the version of a derivation is %d", ErrInvalid, version)
	}
	return version, err
}

// tagDue gives a row that is ready the tag that Due has for its tag, if it has one, and reports whether it has.
func (d *Derivation) tagDue(r *row) bool {
	if d == nil || r.status != Pending || r.waits() {
		return false
	}
	tag, has := d.Due[r.tag]
	if has {
		r.tag = tag
	}
	return has
}

// of returns what Entries sees of a row.
func (r *row) of(id string) Facts {
	f := Facts{ID: id, Owner: r.owner, Status: r.status, Label: r.label, Tag: r.tag, Scheduled: r.scheduled}
	if r.facts.listed != "" {
		f.Listed = []byte(r.facts.listed)
	}
	if r.facts.state != "" {
		f.State = []byte(r.facts.state)
	}
	return f
}

// sources are everything from which the entries of a job follow, except its id.
type sources struct {
	owner      string
	status     Status
	label, tag string
	scheduled  int64
	version    int64
	facts      facts
}

func (r *row) sources() sources {
	if r == nil || r.version == 0 {
		return sources{}
	}
	return sources{r.owner, r.status, r.label, r.tag, r.scheduled, r.version, r.facts}
}

// check returns what is wrong with an entry. The error is ErrTooLarge or ErrInvalid.
func (e Entry) check() error {
	if e.Index == "" || isOwn(e.Index) {
		return fmt.Errorf("%w: an entry of the index %q: a name is not empty, and those with an underscore are the layer's", ErrInvalid, e.Index)
	}
	size, err := e.keySize()
	switch {
	case err != nil:
		return err
	case len(e.Index) > maxIndexSize:
		return fmt.Errorf("%w: the index %q: %d bytes, at most %d", ErrTooLarge, e.Index, len(e.Index), maxIndexSize)
	case size > maxEntryKeySize:
		return fmt.Errorf("%w: a key of the index %q: %d bytes, at most %d", ErrTooLarge, e.Index, size, maxEntryKeySize)
	case len(e.Value) > maxEntryValueSize:
		return fmt.Errorf("%w: a value of the index %q: %d bytes, at most %d", ErrTooLarge, e.Index, len(e.Value), maxEntryValueSize)
	case len(e.Adds) > maxAdds:
		return fmt.Errorf("%w: an entry of the index %q adds to %d tallies, at most %d", ErrTooLarge, e.Index, len(e.Adds), maxAdds)
	}
	for _, a := range e.Adds {
		switch {
		case len(a.Name) > maxIndexSize:
			return fmt.Errorf("%w: the tally %q: %d bytes, at most %d", ErrTooLarge, a.Name, len(a.Name), maxIndexSize)
		case a.Prefix < 0 || a.Prefix > len(e.Key) || a.N < 0:
			return fmt.Errorf("%w: an entry of the index %q adds %d to a tally of %d of its %d elements",
				ErrInvalid, e.Index, a.N, a.Prefix, len(e.Key))
		}
	}
	return nil
}

// keySize returns the size of the key when packed, in bytes, or a bound that is not over the limit. The error is ErrInvalid
// if an element has another type than those that an entry may have.
func (e Entry) keySize() (int, error) {
	const number, ends = 9, 2 // bytes: at most of an int64; of what is before and after a text
	bound := 0
	for _, element := range e.Key {
		switch v := element.(type) {
		case string:
			bound += ends + 2*len(v) // each zero byte is packed as two
		case []byte:
			bound += ends + 2*len(v)
		case int64:
			bound += number
		default:
			return 0, fmt.Errorf("%w: a key of the index %q has an element of the type %T", ErrInvalid, e.Index, element)
		}
	}
	if bound <= maxEntryKeySize {
		return bound, nil
	}
	return len(e.Key.Pack()), nil
}

// hasKey reports whether the entries of a job have the same key.
func (e Entry) hasKey(other Entry) bool {
	return e.Index == other.Index && slices.EqualFunc(e.Key, other.Key, sameElement)
}

// sameElement compares two elements of keys that have been checked.
func sameElement(a, b any) bool {
	bytesA, is := a.([]byte)
	if !is {
		return a == b
	}
	bytesB, is := b.([]byte)
	return is && bytes.Equal(bytesA, bytesB)
}

// indexOf returns the place of the entry with the same key among others, -1 if there is none.
func indexOf(all []Entry, e Entry) int { return slices.IndexFunc(all, e.hasKey) }
