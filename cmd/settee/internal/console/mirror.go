package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"settee/cmd/settee/internal/remote"
	"settee/pkg/retry"
)

// Mirror is what a node knows of the databases of a mirror.
type Mirror struct {
	LastLook  time.Time        `json:"last_look"` // zero before the list of the source was read to its end
	Error     string           `json:"error"`
	Databases int64            `json:"databases"`
	States    map[string]int64 `json:"states"`
	Failures  []struct {
		Database string `json:"database"`
		Reason   string `json:"reason"`
	} `json:"failures"`
	BehindSince    time.Time `json:"behind_since"` // zero if the target lacks nothing
	BehindDatabase string    `json:"behind_database"`
	UnseenSince    time.Time `json:"unseen_since"` // zero if a feed tells of changes
	Replicators    []string  `json:"replicators_left_out"`
	Verified       *Verified `json:"verified"`        // nil before the first comparison of both servers
	Verifying      time.Time `json:"verifying_since"` // zero unless they are compared
}

// Verified is what a comparison of both servers of a mirror has found.
type Verified struct {
	Ended     time.Time `json:"ended"`
	Databases int64     `json:"databases"`
	Different int64     `json:"different"`
	Failed    int64     `json:"failed"`
	First     []struct {
		Database string `json:"database"`
		Reason   string `json:"reason"`
	} `json:"first"`
}

// JobVerified is what a comparison of both ends of a job has found.
type JobVerified struct {
	Ended     time.Time `json:"ended"`
	Revisions int64     `json:"revisions_checked"`
	Missing   int64     `json:"missing_at_target"`
	Error     string    `json:"error"`
}

// String says what was found.
func (v *JobVerified) String() string {
	switch {
	case v.Error != "":
		return "not compared: " + v.Error
	case v.Missing > 0:
		return fmt.Sprintf("the target lacks %s of %s", count(v.Missing), some(v.Revisions, "revision"))
	}
	return "the target has all " + some(v.Revisions, "revision")
}

// String says what was found.
func (v *Verified) String() string {
	if v.Different+v.Failed == 0 {
		return some(v.Databases, "database") + " equal"
	}
	words := []string{fmt.Sprintf("%s of %s different, %s failed", count(v.Different), some(v.Databases, "database"), count(v.Failed))}
	for _, d := range v.First {
		words = append(words, fmt.Sprintf("%q: %s", d.Database, d.Reason))
	}
	return strings.Join(words, "; ")
}

// UpToDate reports whether the mirror has looked, and the target has everything of all databases.
func (m *Mirror) UpToDate() bool {
	return m != nil && !m.LastLook.IsZero() && m.Error == "" && m.States["up_to_date"] == m.Databases
}

// String says how many databases are in which state, and what fails.
func (m *Mirror) String() string {
	if m == nil || m.LastLook.IsZero() {
		return "the list of databases is not read yet"
	}
	words := append([]string{some(m.Databases, "database")}, m.states()...)
	if m.BehindDatabase != "" {
		words = append(words, fmt.Sprintf("%q may lack changes since %s", m.BehindDatabase, m.BehindSince.UTC().Format(time.RFC3339)))
	}
	for _, f := range m.Failures {
		words = append(words, fmt.Sprintf("%q fails: %s", f.Database, f.Reason))
	}
	if m.Error != "" {
		words = append(words, m.Error)
	}
	return strings.Join(words, ", ")
}

// AwaitUpToDate waits until the target of a mirror has everything. It calls report each time that String says something else.
func (n *Node) AwaitUpToDate(ctx context.Context, job Job, report func(string)) error {
	said, upToDate := "", errors.New("up to date")
	err := n.WatchJob(ctx, job, func(now Job) error {
		switch {
		case now.Ended():
			return fmt.Errorf("the mirror has ended: %s", now.Condition.Message)
		case now.Condition.State == "paused":
			return fmt.Errorf("the mirror %s: resume it first", now.Condition.Message)
		}
		m, says := now.Summary(), now.Summary().String()
		if m == nil && now.Info != nil && now.Info.Error != "" {
			says = now.Info.Error
		}
		if says != said {
			said = says
			report(says)
		}
		if m.UpToDate() {
			return upToDate
		}
		return nil
	}, func(err error) error { return err })
	if errors.Is(err, upToDate) {
		return nil
	}
	return err
}

// errChanged is returned if a document was changed after it was read.
var errChanged = errors.New("the document was not turned round: somebody has changed it meanwhile")

const (
	// turnAttempts is the number of times that a document is written if the node does not answer.
	turnAttempts = 3
	turnPause    = time.Second
)

// TurnRound writes the document with the source and the target exchanged, unless it was changed since it was read. If the node does not
// say that it has written the document, TurnRound reads it again. The error says whether the document was turned round.
func (n *Node) TurnRound(ctx context.Context, d *Document) error {
	for source, target := range map[string]string{"source": "target", "source_proxy": "target_proxy"} {
		d.members[source], d.members[target] = d.members[target], d.members[source]
	}
	for attempt := 1; ; attempt++ {
		err := n.writeAnew(ctx, d)
		if err == nil {
			return nil
		}
		refused, ok := errors.AsType[*remote.StatusError](err)
		final := ok && refused.Status < 500 || attempt == turnAttempts
		now := &Document{path: d.path}
		unread := n.Get(ctx, d.path, &now.members)
		switch {
		case unread != nil && !remote.IsStatus(unread, http.StatusNotFound):
			err = fmt.Errorf("it is not known whether the document was turned round: %w", err)
		case now.equal(d):
			return nil
		case string(now.members["_rev"]) != string(d.members["_rev"]):
			return errChanged
		default:
			err = fmt.Errorf("the document was not turned round: %w", err)
		}
		if final || retry.Wait(ctx, turnPause) != nil {
			return err
		}
	}
}
