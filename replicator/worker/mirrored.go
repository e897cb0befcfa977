package worker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"settee/pkg/couch"
	"settee/replicator"
)

// A mirror changes nothing at its target that no mirror has made. What it has made is known by local documents at both
// databases, which go with the database and stay when the mirror is deleted:
//
//	_local/settee-mirror         -> {"made_from": place}    at the copy: its source
//	_local/settee-mirror-to-HASH -> {"mirrored_to": place}  at the source: a copy of it, by the hash of its place
//	place                        -> {"server": couch.Database.ServerIdentity, "database": name}
//
// So a mirror may go on in the other direction: the database that another one was made from is as good as made by it.
// Servers without an identity have their URL in its place. Each document has one writer and one content, because CouchDB does
// not compare the revisions of local documents: of two mirrors that change the same one, each would undo what the other wrote.
//
// [meeting.claim] decides what a run may do. The job remembers it with the target's instance_start_time
// (replicator.MirrorTarget). Between the creation of a database and its mark a run may die: it notes before that it is
// making the database.

const (
	// markID is the id of the mark of a copy, without _local/.
	markID = "settee-mirror"
	// copyIDPrefix is the beginning of the ids of the marks of a source, without _local/.
	copyIDPrefix = markID + "-to-"
)

// place is a database of a server.
type place struct {
	Server   string `json:"server"`
	Database string `json:"database"`
}

func (p place) String() string {
	return fmt.Sprintf("the database %q of the server %s", p.Database, p.Server)
}

// copyID returns the id of the mark that says, at a source, that p is a copy of it.
func (p place) copyID() string {
	hash := sha256.Sum256([]byte(p.Server + "\x00" + p.Database))
	return copyIDPrefix + hex.EncodeToString(hash[:16])
}

// mark is the content of a mark. The zero value stands for a missing one.
type mark struct {
	ID         string `json:"_id"`
	Rev        string `json:"_rev,omitempty"`
	MadeFrom   *place `json:"made_from,omitempty"`
	MirroredTo *place `json:"mirrored_to,omitempty"`
}

// meeting is what a run knows of the two databases of a mirrored replication before it copies anything.
type meeting struct {
	source, target         place
	sourceMark, targetMark mark // made_from
	copied                 bool // the target says that the source is a copy of it
	exists                 bool // the target
	empty                  bool // the target has no documents, and no deleted ones
	// known is what the job has noted of the target. same reports that the target is the one that it has noted.
	known replicator.MirrorTarget
	same  bool
}

// made reports whether the target is a mirror's copy of the source, or the source of it.
func (m *meeting) made() bool {
	from := m.targetMark.MadeFrom
	return from != nil && *from == m.source || m.copied
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
		return newError(r.target.coded(replicator.FaultMirrorRefused, "", r.target.uri+" is left alone: "+err.Error()), err)
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
	r.noteTarget(replicator.MirrorTarget{Claim: claim, Instance: Created(r.target.instance)})
}

// noteTarget notes what is known of the target.
func (r *run) noteTarget(next replicator.MirrorTarget) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if next != r.mirrorTarget {
		r.mirrorTarget = next
		r.tellSoon()
	}
}

// makeTarget creates the target. If another request does so at the same moment, it fails, and the next run decides anew, by what
// this one has known: the other request may be one of an earlier run, which has noted that it makes the database.
func (r *run) makeTarget(ctx context.Context, m *meeting, given, ofSource url.Values) error {
	r.claimed(replicator.TargetMaking)
	if err := r.tell(ctx, r.report); err != nil {
		return err
	}
	isNew, err := r.target.create(ctx, given, ofSource)
	if err == nil && !isNew {
		r.noteTarget(m.known)
		err = Failed(r.target.coded(replicator.FaultMirrorRefused, replicator.RequestCreate,
			r.target.uri+" was created just now, by somebody else or by a request of an earlier run"))
	}
	return err
}

// markBoth marks the two databases. A source that this user may not write to has no mark: the mirror cannot go on in the
// other direction then.
func (r *run) markBoth(ctx context.Context, m *meeting) error {
	return r.onBoth(ctx, func(ctx context.Context, p *peer) error {
		if p == r.target {
			return p.putMark(ctx, markID, mark{Rev: m.targetMark.Rev, MadeFrom: &m.source})
		}
		err := p.putMark(ctx, m.target.copyID(), mark{MirroredTo: &m.target})
		switch {
		case errors.Is(err, couch.ErrConflict): // it has the mark
		case errors.Is(err, couch.ErrUnauthorized), errors.Is(err, couch.ErrForbidden):
		default:
			return err
		}
		return nil
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
	m.same = m.exists && m.known.Instance != "" && m.known.Instance == Created(r.target.instance)
	err = r.onBoth(ctx, func(ctx context.Context, p *peer) (err error) {
		if p == r.source {
			if m.source, err = p.place(ctx, r.rep.Source); err == nil {
				m.sourceMark, err = p.mark(ctx, markID)
			}
			return err
		}
		if m.target, err = p.place(ctx, r.rep.Target); err == nil && m.exists {
			m.targetMark, err = p.mark(ctx, markID)
		}
		return err
	})
	if err == nil && m.exists {
		err = r.copyOf(ctx, m)
	}
	return m, err
}

// copyOf asks the target whether the source is a copy of it, unless the answer decides nothing.
func (r *run) copyOf(ctx context.Context, m *meeting) error {
	if m.made() {
		return nil
	}
	found, err := r.target.mark(ctx, m.source.copyID())
	m.copied = found.MirroredTo != nil && *found.MirroredTo == m.source
	return err
}

// place returns the place of a database.
func (p *peer) place(ctx context.Context, e replicator.Endpoint) (place, error) {
	server, database, ok := e.Server()
	if !ok {
		return place{}, Failed(p.coded(replicator.FaultInvalid, replicator.RequestReadServer, "the URL "+p.uri+" names no database of a server"))
	}
	identity, err := p.db.ServerIdentity(ctx)
	if err != nil {
		return place{}, p.failed(replicator.RequestReadServer, err)
	}
	if identity != "" {
		server = identity
	}
	return place{server, database}, nil
}

// mark reads a mark of a database. Members of a wrong type count as missing.
func (p *peer) mark(ctx context.Context, id string) (mark, error) {
	var found mark
	doc, err := p.db.GetLocal(ctx, id)
	switch {
	case errors.Is(err, couch.ErrNotFound) && !errors.Is(err, couch.ErrNoDatabase):
		return found, nil
	case err != nil:
		return found, p.failed(replicator.RequestReadMark, err)
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

func (p *peer) putMark(ctx context.Context, id string, m mark) error {
	m.ID = "_local/" + id
	if _, err := p.db.PutLocal(ctx, id, encode(m)); err != nil {
		return p.failed(replicator.RequestWriteMark, err)
	}
	return nil
}

// MadeByMirror reports whether the target of a mirrored replication was made by a mirror of its source, or is the source of
// what a mirror has made, so that the mirror may delete it. It is false if there is no target. Errors are *Error.
func MadeByMirror(ctx context.Context, rep *replicator.Replication, cfg Config) (bool, error) {
	r, err := newRun(&Job{Replication: rep}, &cfg, nil)
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
		m.targetMark, err = p.mark(ctx, markID)
		return err
	})
	if err == nil {
		err = r.copyOf(ctx, &m)
	}
	if errors.Is(err, couch.ErrNoDatabase) {
		return false, nil
	}
	return m.made(), verdict(err)
}
