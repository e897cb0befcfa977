package replicator

import "strings"

// reasonText is the message of a reason. It ends with the fault if the fault is the reason.
type reasonText struct {
	text      string
	withFault bool
}

var reasonTexts = map[Reason]reasonText{
	ReasonCopiedAll:         {"has copied everything", false},
	ReasonCollision:         {"another job replicates the same", true},
	ReasonInvalidDefinition: {"has a definition that is not allowed", true},
	ReasonGaveUp:            {"has failed, and is not tried again", true},
	ReasonEndedElsewhere:    {"failed on another server, says its document", true},
	ReasonGone:              {"has ended, because its database was deleted at the source", false},

	ReasonNodeLost:         {"ran on a node that is gone, and is taken over by another one", false},
	ReasonPausing:          {"stops because it is paused", false},
	ReasonNewDefinition:    {"stops to start anew with a new definition", false},
	ReasonSourceUnlistable: {"cannot follow its servers", true},
	ReasonListing:          {"lists the databases of the source", false},
	ReasonDatabasesFailing: {"goes on, but replications of databases fail", false},
	ReasonUpToDate:         {"has copied all databases, and waits for changes", false},

	ReasonStopping:    {"stops to let other jobs run", false},
	ReasonRateLimited: {"waits because a server asked for that", true},
	ReasonRetrying:    {"repeats a request that failed", true},
	ReasonStarting:    {"opens its databases", false},
	ReasonRefused:     {"copies, but the target refuses everything", true},
	ReasonCopying:     {"copies changes", false},
	ReasonFiltering:   {"reads changes, of which none passes the filter", false},
	ReasonReading:     {"waits for more changes, which the source has", false},
	ReasonIdle:        {"has copied everything, and waits for changes", false},
	ReasonFinishing:   {"has copied everything, and writes the last checkpoint", false},

	ReasonSealed:    {"cannot be opened by the node that tried", true},
	ReasonDocument:  {"is paused by its document", false},
	ReasonDatabase:  {"is paused, because its database has no shares", false},
	ReasonTurn:      {"waits for its turn among the databases of its mirror", false},
	ReasonNoChanges: {"has copied everything, and waits without a run for changes", false},
	ReasonBackoff:   {"has failed, and waits for its next try", true},
	ReasonSchedule:  {"waits for its next time", false},
	ReasonDelayed:   {"waits for the time from which it may run", false},
	ReasonNoNode:    {"waits for a node with the role replication, of which none is live", false},
	ReasonSlot:      {"waits for a slot", false},
}

// aboutToStart is the message of a job that waits for a slot while there are free ones.
const aboutToStart = "is about to start"

// messageOf returns the message of a condition. cluster may be nil. A reason that this release does not know, because a
// newer one has written it, is its own message.
func messageOf(c *Condition, cluster *Cluster) string {
	its, known := reasonTexts[c.Reason]
	switch {
	case !known:
		return strings.ReplaceAll(string(c.Reason), "_", " ")
	case c.Reason == ReasonSlot && cluster != nil && cluster.Used < cluster.Slots:
		return aboutToStart
	case its.withFault && c.Fault != nil:
		return its.text + ": " + c.Fault.Text
	}
	return its.text
}
