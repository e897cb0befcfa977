package mirror

import (
	"settee/replicator"
	"settee/replicator/jobs"
)

// plan is what a comparison of the source's databases with those that the mirror knows asks for. Its lists are in the order
// of names.
type plan struct {
	add      []string // not known yet, or known as gone
	redefine []string // have jobs that follow an earlier definition, or have failed
	missing  []string // known, but the source does not list them
	end      []string // known, and not selected any more
}

// compare compares a part of both lists, which are sorted by name and begin and end at the same place.
func compare(names []string, known []jobs.MirroredDatabase, selects func(string) bool) plan {
	var p plan
	for len(names) > 0 || len(known) > 0 {
		switch {
		case len(known) == 0 || len(names) > 0 && names[0] < known[0].Database:
			if selects(names[0]) {
				p.add = append(p.add, names[0])
			}
			names = names[1:]
		case len(names) == 0 || known[0].Database < names[0]:
			p.unlisted(known[0], selects)
			known = known[1:]
		default:
			p.listed(known[0], selects)
			names, known = names[1:], known[1:]
		}
	}
	return p
}

// listed is for a known database that the source has.
func (p *plan) listed(d jobs.MirroredDatabase, selects func(string) bool) {
	switch {
	case !selects(d.Database):
		p.end = append(p.end, d.Database)
	case d.State == replicator.MirroredGone:
		p.add = append(p.add, d.Database)
	case !d.Current || d.State.Ended():
		p.redefine = append(p.redefine, d.Database)
	}
}

// unlisted is for a known database that the source does not list. If the mirror does not select it any more, it is not
// deleted at the target either.
func (p *plan) unlisted(d jobs.MirroredDatabase, selects func(string) bool) {
	switch {
	case !selects(d.Database):
		p.end = append(p.end, d.Database)
	case d.State != replicator.MirroredGone:
		p.missing = append(p.missing, d.Database)
	}
}

// knownPrefix returns how many elements of sorted lists come before the place up to which both are known: the last name of each
// list that has more after it.
func knownPrefix(names []string, lastNames bool, known []jobs.MirroredDatabase, lastKnown bool) (n, k int) {
	n, k = len(names), len(known)
	if !lastNames && n > 0 {
		for k > 0 && known[k-1].Database > names[n-1] {
			k--
		}
	}
	if !lastKnown && len(known) > 0 {
		for n > 0 && names[n-1] > known[len(known)-1].Database {
			n--
		}
	}
	return n, k
}
