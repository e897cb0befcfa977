package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"settee/pkg/couch"
	"settee/replicator"
)

// A mirror changes nothing at its target that no mirror has made. What it has made is known by a local document at both
// databases, which goes with the database and stays when the mirror is deleted:
//
//	_local/settee-mirror -> {"made_from": place, "mirrored_to": [place, ...]}
//	place                -> {"server": couch.Database.ServerIdentity, "database": name}
//
// The target has the place of its source in made_from, and the source has the place of its target in mirrored_to. So a mirror
// may go on in the other direction: the database that another one was made from is as good as made by it. Servers without an
// identity have their URL in its place.
//
// [meeting.claim] decides what a run may do. The job remembers it with the target's instance_start_time
// (replicator.MirrorTarget). Between the creation of a database and its mark a run may die: it notes before that it is
// making the database.

const (
	// markID is the id of the mark, without _local/.
	markID = "settee-mirror"
	// maxMirroredTo is the maximum number of places in a mark. The oldest go.
	maxMirroredTo = 20
)

// place is a database of a server.
type place struct {
	Server   string `json:"server"`
	Database string `json:"database"`
}

func (p place) String() string {
	return fmt.Sprintf("the database %q of the server %s", p.Database, p.Server)
}

// mark is the content of a mark. The zero value stands for a missing one.
type mark struct {
	ID         string  `json:"_id"`
	Rev        string  `json:"_rev,omitempty"`
	MadeFrom   *place  `json:"made_from,omitempty"`
	MirroredTo []place `json:"mirrored_to,omitempty"`
}

// from returns the mark with the place that the database was made from.
func (m mark) from(source place) mark {
	m.MadeFrom = &source
	return m
}

// to returns the mark with one more place that was made from the database.
func (m mark) to(target place) mark {
	list := append(slices.Clone(m.MirroredTo), target)
	m.MirroredTo = list[max(0, len(list)-maxMirroredTo):]
	return m
}

// meeting is what a run knows of the two databases of a mirrored replication before it copies anything.
type meeting struct {
	source, target         place
	sourceMark, targetMark mark
	exists                 bool // the target
	empty                  bool // the target has no documents, and no deleted ones
	// known is what the job has noted of the target. same reports that the target is the one that it has noted.
	known replicator.MirrorTarget
	same  bool
}

// made reports whether the target is a mirror's copy of the source, or the source of it.
func (m *meeting) made() bool {
	from := m.targetMark.MadeFrom
	return from != nil && *from == m.source || slices.Contains(m.targetMark.MirroredTo, m.source)
}

// claim decides what the mirror may do to the target. An error says why that is nothing.
func (m *meeting) claim(allowed *replicator.Mirrored) (replicator.TargetClaim, error) {
	if m.source == m.target {
		return "", fmt.Errorf("the source is the target: both URLs lead to %s", m.target)
	}
	if from := m.sourceMark.MadeFrom; from != nil && *from != m.target && !allowed.Chain {
		return "", fmt.Errorf("a mirror has made the source of %s, and its documents would be mirrored twice. "+
			"A mirror of a mirror needs \"chain\": true", from)
	}
	switch {
	case !m.exists:
		return replicator.TargetMaking, nil
	case m.made(), m.same && m.known.Claim == replicator.TargetMade:
		return replicator.TargetMade, nil
	case m.known.Claim == replicator.TargetMaking && m.empty && m.targetMark.MadeFrom == nil:
		return replicator.TargetMade, nil
	case allowed.Adopt:
		return replicator.TargetAdopted, nil
	case m.known.Claim == replicator.TargetInherited && (m.same || m.known.Instance == ""):
		return replicator.TargetInherited, nil
	case m.targetMark.MadeFrom != nil:
		return "", fmt.Errorf("the target was made by a mirror of %s, and would be mirrored twice. Choose a \"prefix\", or copy into databases "+
			"that are there with \"adopt\": true", m.targetMark.MadeFrom)
	}
	return "", errors.New("the target has a database of this name that no mirror has made of the source. Choose a \"prefix\", or copy into " +
		"databases that are there with \"adopt\": true")
}

// openMirrored opens the target of a mirrored replication, whose source is open. It creates the target if that is missing, and
// finds out what the run may do to it. given and ofSource are as in peer.create.
func (r *run) openMirrored(ctx context.Context, given, ofSource url.Values) error {
	m, err := r.meet(ctx)
	if err != nil {
		return err
	}
	claim, err := m.claim(r.rep.Mirrored)
	if err != nil {
		return newError(codeMirror, err, "%s is left alone: %s", r.target.uri, err)
	}
	if claim == replicator.TargetMaking {
		if err := r.makeTarget(ctx, m, given, ofSource); err != nil {
			return err
		}
		claim = replicator.TargetMade
	}
	if claim == replicator.TargetMade && !m.made() {
		if err := r.markBoth(ctx, m); err != nil {
			return err
		}
	}
	r.claimed(claim)
	r.security.copies = r.rep.Mirrored.Security && claim == replicator.TargetMade
	return nil
}

// claimed notes what the run may do to the open target.
func (r *run) claimed(claim replicator.TargetClaim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if next := (replicator.MirrorTarget{Claim: claim, Instance: text(created(r.target.instance))}); next != r.mirrorTarget {
		r.mirrorTarget = next
		r.tellSoon()
	}
}

// makeTarget creates the target. If somebody else does so at the same moment, it fails, and the next run decides anew.
func (r *run) makeTarget(ctx context.Context, m *meeting, given, ofSource url.Values) error {
	r.claimed(replicator.TargetMaking)
	if err := r.tell(ctx, r.report); err != nil {
		return err
	}
	isNew, err := r.target.create(ctx, given, ofSource)
	if err == nil && !isNew {
		r.claimed("")
		err = newError(codeMirror, nil, "somebody else has created %s just now", r.target.uri)
	}
	return err
}

// markBoth marks the two databases. A source that this user may not write to has no mark: the mirror cannot go on in the
// other direction then.
func (r *run) markBoth(ctx context.Context, m *meeting) error {
	return r.onBoth(ctx, func(ctx context.Context, p *peer) error {
		if p == r.target {
			return p.putMark(ctx, m.targetMark, func(old mark) mark { return old.from(m.source) })
		}
		if slices.Contains(m.sourceMark.MirroredTo, m.target) {
			return nil
		}
		err := p.putMark(ctx, m.sourceMark, func(old mark) mark { return old.to(m.target) })
		if errors.Is(err, couch.ErrUnauthorized) || errors.Is(err, couch.ErrForbidden) {
			return nil
		}
		return err
	})
}

// meet reads what claim decides by.
func (r *run) meet(ctx context.Context) (*meeting, error) {
	m := &meeting{known: r.mirrorTarget}
	err := r.target.open(ctx)
	if m.exists = err == nil; err != nil && !errors.Is(err, couch.ErrNoDatabase) {
		return nil, err
	}
	m.empty = r.target.info.DocCount == 0 && r.target.info.DocDelCount == 0
	m.same = m.exists && m.known.Instance != "" && m.known.Instance == text(created(r.target.instance))
	err = r.onBoth(ctx, func(ctx context.Context, p *peer) (err error) {
		if p == r.source {
			if m.source, err = p.place(ctx, r.rep.Source); err == nil {
				m.sourceMark, err = p.mark(ctx)
			}
			return err
		}
		if m.target, err = p.place(ctx, r.rep.Target); err == nil && m.exists {
			m.targetMark, err = p.mark(ctx)
		}
		return err
	})
	return m, err
}

// place returns the place of a database.
func (p *peer) place(ctx context.Context, e replicator.Endpoint) (place, error) {
	server, database, ok := e.Server()
	if !ok {
		return place{}, newError(codePlain, nil, "the URL %s names no database of a server", p.uri)
	}
	identity, err := p.db.ServerIdentity(ctx)
	if err != nil {
		return place{}, p.failed(codePlain, err)
	}
	if identity != "" {
		server = identity
	}
	return place{server, database}, nil
}

// mark reads the mark of a database. Members of a wrong type count as missing.
func (p *peer) mark(ctx context.Context) (mark, error) {
	var found mark
	doc, err := p.db.GetLocal(ctx, markID)
	switch {
	case errors.Is(err, couch.ErrNotFound) && !errors.Is(err, couch.ErrNoDatabase):
		return found, nil
	case err != nil:
		return found, p.failed(codePlain, err)
	}
	fields := members(doc)
	found.Rev = text(fields["_rev"])
	if json.Unmarshal(fields["made_from"], &found.MadeFrom) != nil {
		found.MadeFrom = nil
	}
	if json.Unmarshal(fields["mirrored_to"], &found.MirroredTo) != nil {
		found.MirroredTo = nil
	}
	return found, nil
}

// putMark changes the mark of a database, which had the content old.
func (p *peer) putMark(ctx context.Context, old mark, change func(mark) mark) error {
	const tries = 5 // another mirror may write the mark of the same source
	for i := 1; ; i++ {
		next := change(old)
		next.ID = "_local/" + markID
		_, err := p.db.PutLocal(ctx, markID, encode(next))
		if err == nil {
			return nil
		}
		if i == tries || !errors.Is(err, couch.ErrConflict) {
			return p.failed(codePlain, err)
		}
		if old, err = p.mark(ctx); err != nil {
			return err
		}
	}
}

// MadeByMirror reports whether the target of a mirrored replication was made by a mirror of its source, or is the source of
// what a mirror has made, so that the mirror may delete it. It is false if there is no target. Errors are *Error.
func MadeByMirror(ctx context.Context, rep *replicator.Replication, cfg Config) (bool, error) {
	r, err := newRun(&Job{Replication: rep}, &cfg)
	if err != nil {
		return false, verdict(err)
	}
	defer r.databases.close()
	var m meeting
	err = r.onBoth(ctx, func(ctx context.Context, p *peer) (err error) {
		if p == r.source {
			m.source, err = p.place(ctx, rep.Source)
			return err
		}
		m.targetMark, err = p.mark(ctx)
		return err
	})
	if errors.Is(err, couch.ErrNoDatabase) {
		return false, nil
	}
	return m.made(), verdict(err)
}
