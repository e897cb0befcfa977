package mirror

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"settee/pkg/config"
	"settee/replicator"
)

const (
	// maxListed times mirror_databases is the most databases that a source may list.
	maxListed = 10
	// firstLeftOut is the number of databases left out that are named, and maxShownName the number of bytes of their names.
	firstLeftOut = 5
	// firstReplicators is the number of replicator databases left out that are named.
	firstReplicators = 20
	maxShownName     = 100
)

// leftOut are databases of the source that the mirror selects and leaves out.
type leftOut struct {
	count       int64
	first       []replicator.MirroredFailure
	replicators []string // the first firstReplicators; no failures
}

// addLeftOut adds a database.
func (l *leftOut) addLeftOut(database, reason string) {
	if l.count++; len(l.first) == firstLeftOut {
		return
	}
	l.first = append(l.first, replicator.MirroredFailure{Database: shownName(database), Reason: reason, Since: time.Now().UTC()})
}

func shownName(database string) string {
	if len(database) > maxShownName {
		return strings.ToValidUTF8(database[:maxShownName], "") + "…"
	}
	return database
}

// withSince returns the first databases, each since it was first left out.
func (l *leftOut) withSince(before []replicator.MirroredFailure) []replicator.MirroredFailure {
	for i, now := range l.first {
		at := slices.IndexFunc(before, func(f replicator.MirroredFailure) bool { return f.Database == now.Database })
		if at >= 0 {
			l.first[i].Since = before[at].Since
		}
	}
	return l.first
}

// mirrorable returns the names that can be mirrored, or are not selected.
func (m *mirror) mirrorable(names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool {
		if m.r.Mirror.LeavesReplications(name) && len(m.left.replicators) < firstReplicators {
			m.left.replicators = append(m.left.replicators, shownName(name))
		}
		why := replicator.Unmirrorable(name)
		if why != "" && m.selects(name) {
			m.left.addLeftOut(name, why)
		}
		return why != ""
	})
}

// addDatabases makes the mirror know databases, as many as it may have.
func (m *mirror) addDatabases(ctx context.Context, databases []string, turn int64) error {
	if len(databases) == 0 {
		return nil
	}
	summary, err := m.Run.Summary(ctx)
	if err != nil {
		return err
	}
	most := config.MirrorDatabases.Get(m.Config())
	free := min(max(int64(most)-summary.Known, 0), int64(len(databases)))
	for _, database := range databases[free:] {
		m.left.addLeftOut(database, fmt.Sprintf("the mirror has %d databases, as many as [replicator] mirror_databases allows", summary.Known))
	}
	return m.Run.AddDatabases(ctx, databases[:free], turn)
}
