package replicator

import (
	"net/url"
	"settee/pkg/jsontext"
	"time"
)

// AttentionKind is a kind of [Attention].
type AttentionKind string

// The kinds of attention. A job has the first one that applies; the last one is of the watch of a server.
const (
	NeedsFailed   AttentionKind = "failed"            // it has failed, and is not tried again
	NeedsFailing  AttentionKind = "failing"           // its runs fail
	NeedsStuck    AttentionKind = "stuck"             // its runs make no progress
	NeedsRefused  AttentionKind = "documents_refused" // its target has refused documents, also if it has completed
	NeedsListing  AttentionKind = "source_unlistable" // a mirror cannot list its databases, or delete one
	NeedsCompared AttentionKind = "target_unlistable" // a mirror cannot compare its target
	NeedsTarget   AttentionKind = "target_changed"    // the target of a mirror has lost databases
	NeedsEarlier  AttentionKind = "late"              // it is parked, and its source is asked for changes too seldom
)

// RefusedFor is how long documents that a target has refused need attention, after the latest refusal.
const RefusedFor = 7 * 24 * time.Hour

// Attention says why a job needs a person. The zero value: it needs nobody.
type Attention struct {
	Kind AttentionKind
	Code FaultCode
	// Side and Host are those of the fault, Host with its port. Both are empty if it is one of this node, of the definition or of
	// another job. Of a proxy there is no Side, and Host is its own.
	Side Side
	Host string
	// Since is when it began. Of refused documents it is the time of the latest refusal.
	Since time.Time
}

// Attention returns why the job needs a person, as far as its state says. Paused jobs need nobody, whatever it returns. Host is empty
// if it is the one of Side in the definition: see [Attention.At].
func (s *JobState) Attention() Attention {
	needs := func(kind AttentionKind, f *Fault, since time.Time) Attention {
		a := Attention{Kind: kind, Code: FaultUnknown, Since: wholeSeconds(since)}
		if f != nil {
			a.Code, a.Side, a.Host = f.Code, f.Side, f.Host
			if f.Proxy != "" {
				a.Side, a.Host = "", hostOf(f.Proxy)
			}
		}
		return a
	}
	switch {
	case s.State == StateFailed && s.endedElsewhere():
		return Attention{} // nobody here can do anything about it
	case s.State == StateFailed:
		return needs(NeedsFailed, s.Fault, s.LastUpdated)
	case !s.CrashingSince.IsZero():
		return needs(NeedsFailing, s.Fault, s.CrashingSince)
	case !s.StuckSince.IsZero():
		return needs(NeedsStuck, s.fails(), s.StuckSince)
	case !s.RefusedAt.IsZero():
		return needs(NeedsRefused, &Fault{Code: FaultDocumentRefused, Side: SideTarget}, s.RefusedAt)
	case s.State.Terminal() || s.Mirror == nil:
		return Attention{}
	case s.Mirror.Error != "":
		return needs(NeedsListing, &Fault{Code: FaultUnlistable, Side: SideSource}, s.Mirror.ErrorSince)
	case s.Mirror.Target.Error != "":
		return needs(NeedsCompared, &Fault{Code: FaultUnknown, Side: SideTarget}, s.Mirror.Target.ErrorSince)
	case s.Mirror.Target.Lost != nil:
		return needs(NeedsTarget, &Fault{Code: FaultTargetChanged, Side: SideTarget}, s.Mirror.Target.Lost.At)
	}
	return Attention{}
}

// At returns a with the host of its side.
func (a Attention) At(source, target string) Attention {
	if a.Host == "" {
		a.Host = map[Side]string{SideSource: source, SideTarget: target}[a.Side]
	}
	return a
}

// fails returns the fault of a request that is repeated now, or else that of the latest run that failed.
func (s *JobState) fails() *Fault {
	if s.Activity != nil {
		for _, w := range s.Activity.Waiting {
			if w.Fault != nil {
				return w.Fault
			}
		}
	}
	return s.Fault
}

// endedElsewhere reports whether the job failed on another server, as its document says.
func (s *JobState) endedElsewhere() bool { return s.StartTime.IsZero() && s.Fault == nil }

// hostOf returns the host and the port of a URL, "" if it has none.
func hostOf(text string) string {
	if u, err := url.Parse(text); err == nil {
		return jsontext.Cut(u.Host, maxActivityText)
	}
	return ""
}

// Host returns the host and the port of the endpoint, as the definition has them.
func (e Endpoint) Host() string { return hostOf(e.String()) }

// needsAttention reports whether the job needs a person.
func (f *Facts) needsAttention() bool {
	switch {
	case f.Args.Paused != nil && f.Status != JobFinished, f.Pause != nil && f.Status != JobFinished:
		return false
	case f.Mirror != nil && f.Mirror.NotCopied() > f.Mirror.Acknowledged:
		return true
	}
	a := f.State.Attention()
	return f.acknowledged() == nil && a.Kind != "" && (a.Kind != NeedsRefused || f.Now.Sub(a.Since) < RefusedFor)
}
