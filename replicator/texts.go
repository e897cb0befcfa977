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

	Reason(DoingStopping):    {"stops to let other jobs run", false},
	Reason(DoingRateLimited): {"waits because a server asked for that", true},
	Reason(DoingRetrying):    {"repeats a request that failed", true},
	Reason(DoingBudget):      {"waits for its turn in the budget of a server", false},
	Reason(DoingStarting):    {"opens its databases", false},
	Reason(DoingRefused):     {"copies, but the target refuses everything", true},
	Reason(DoingCopying):     {"copies changes", false},
	Reason(DoingFiltering):   {"reads changes, of which none passes the filter", false},
	Reason(DoingReading):     {"waits for more changes, which the source has", false},
	Reason(DoingWaiting):     {"has copied everything, and waits for changes", false},
	Reason(DoingFinishing):   {"has copied everything, and writes the last checkpoint", false},

	ReasonSealed:    {"cannot be opened by the node that tried", true},
	ReasonDocument:  {"is paused by its document", false},
	ReasonDatabase:  {"is paused, because its database has no shares", false},
	ReasonMirror:    {"is paused, because its mirror is", false},
	ReasonTurn:      {"waits for its turn among the databases of its mirror", false},
	ReasonNoChanges: {"has copied everything, and waits without a run for changes", false},
	ReasonBackoff:   {"has failed, and waits for its next try", true},
	ReasonSchedule:  {"waits for its next time", false},
	ReasonDelayed:   {"waits for the time from which it may run", false},
	ReasonNoNode:    {"waits for a node with the role replication, of which none is live", false},
	ReasonCordoned:  {"waits because all nodes with the role replication are cordoned", false},
	ReasonSlot:      {"waits for a slot", false},
}

// faultTexts say what is wrong at an end. Those that only words describe have none, except for what several have in common.
var faultTexts = map[FaultCode]string{
	FaultDNSNotFound:      "there is no such host",
	FaultDNSFailed:        "no name server has answered",
	FaultConnectRefused:   "connection refused",
	FaultUnreachable:      "cannot be reached",
	FaultConnectTimeout:   "does not accept connections in time",
	FaultNetworkDenied:    "the settings forbid its address",
	FaultTLSAuthority:     "the authority of its certificate is not trusted",
	FaultTLSExpired:       "its certificate is not valid now",
	FaultTLSName:          "its certificate is for another name",
	FaultTLSClient:        "it wants a certificate of this node, or another one",
	FaultTLSNoAnswer:      "accepts connections, and does not answer the TLS handshake",
	FaultTLSFailed:        "TLS has failed",
	FaultProxyRefused:     "the proxy wants other credentials",
	FaultProxyFailed:      "the proxy cannot be reached, or cannot reach the server",
	FaultNoAnswer:         "accepts requests, and does not answer",
	FaultStalled:          "its answer does not go on",
	FaultClosedEarly:      "its answer ended too early",
	FaultFilterSilent:     "the filter has passed nothing for too long",
	FaultUnauthorized:     "the user or the password is wrong, or missing",
	FaultLoginRefused:     "the login is refused",
	FaultTokenRefused:     "refuses the credentials for an access token",
	FaultTokenFailed:      "gives no access token",
	FaultForbidden:        "the user may not use the database",
	FaultDatabaseMissing:  "the database does not exist",
	FaultDatabaseChanged:  "the database was created anew",
	FaultNotDatabase:      "there is no database at the URL",
	FaultFilterMissing:    "the design document of the filter does not exist",
	FaultFilterInvalid:    "the design document has no such filter",
	FaultFilterChanged:    "the filter has changed",
	FaultNoCheckpoint:     "the user may not write checkpoints",
	FaultCheckpointTwice:  "another replication writes the same checkpoint",
	FaultSecurity:         "the user may not read or write the _security object",
	FaultRateLimited:      "asks for fewer requests",
	FaultServerError:      "answers with a server error",
	FaultUnexpectedStatus: "answers with a status that was not expected",
	FaultMissingRevision:  "lacks a revision that it has announced",
	FaultDigest:           "an attachment differs from its digest",
	FaultDocumentRefused:  "refuses documents",
	FaultDocumentTooLarge: "a document is larger than the settings allow",
	FaultMalformed:        "its answer does not follow CouchDB's protocol",
	FaultRedirected:       "redirects to elsewhere",
	FaultCollision:        "another job replicates the same",
	FaultInvalid:          "the definition is not allowed",
	FaultSealed:           "the key of the definition is missing",
	FaultUnlistable:       "the databases cannot be listed, or not be deleted",
	FaultMirrorRefused:    "a mirror may not do that",
	FaultTargetChanged:    "the target of a mirror has lost databases",
	FaultFeedRefused:      "changes are found late: no login of its jobs may read its feed of updates",
	FaultFeedMissing:      "changes are found late: it has no feed of updates",
	FaultFeedFails:        "changes are found late: it does not answer, or its feed of updates fails",
	FaultUnknown:          "there is no word for the reason: each job has it",
}

// adviceTexts say what helps. SIDE, HOST, PROXY, USER and AGAIN are replaced.
var adviceTexts = map[AdviceCode]string{ //nolint:gosec // texts, not credentials
	AdviceHost:              "Correct the name of the host.",
	AdviceCorrectHost:       "The certificate of HOST is for another name: correct the host, or the certificate.",
	AdviceCorrectURL:        "Is this the URL of a CouchDB database?",
	AdviceNameServer:        "Ask who runs the name servers of the replication nodes.",
	AdviceServer:            "Is the server up, and is the port right?",
	AdviceServerHangs:       "HOST accepts connections and does not answer: look at its load, its log, and proxies before it.",
	AdviceServerLog:         "Look at the log of HOST.",
	AdviceTrust:             "If you trust it, add its authority to [replicator] ssl_trusted_certificates_file.",
	AdviceRenew:             "Renew the certificate of HOST, or correct the clocks.",
	AdviceClientCertificate: "HOST wants a certificate of the replication nodes: set [replicator] cert_file and key_file.",
	AdviceCheckTLS:          "Does HOST speak TLS at this port? If it speaks plain HTTP there, correct the port, or write http:// instead of https://.",
	AdviceCredentials:       "Correct the user or the password.",
	AdviceToken:             "Correct the credentials in `auth` of the SIDE: HOST refuses them.",
	AdviceTokenServer:       "Is HOST up, and is its URL in `auth` of the SIDE or in [ibm] token_url right? The SIDE itself was not asked.",
	AdviceRights:            "Give USER access to the SIDE.",
	AdviceListRights:        "The user of a mirror must be allowed to list the databases of HOST.",
	AdviceProxy:             "Is PROXY up, and may it connect to the server?",
	AdviceProxyCredentials:  "Correct the user or the password of PROXY.",
	AdviceDeniedNetworks:    "[replicator] denied_networks has the address of HOST.",
	AdviceCreateDatabase:    "Create the database, or correct its name.",
	AdviceCreateTarget:      "Set create_target, or create the database, or correct its name.",
	AdviceFilter:            "Write the design document, or correct the filter.",
	AdviceFilterSlow:        "Replace the filter function by a selector.",
	AdviceNoCheckpoints:     `A SIDE that may only be read needs "use_checkpoints": false.`,
	AdviceMirrorSecurity:    `A mirror with "security": false leaves the object alone.`,
	AdviceDeleteOne:         "Another job replicates the same: delete one of them.",
	AdviceEdit:              "AGAIN with a definition that the settings allow.",
	AdviceAddKey:            "Add the key to [secrets] key_file of each node.",
	AdviceDocuments:         "The job lists them, with the reasons.",
	AdviceMaxDocument:       "Raise the limit of the size of documents in the settings.",
	AdviceSlower:            "HOST asks to wait: run fewer jobs with it, or ask its owner why.",
	AdviceTargetURL:         "If you have not rebuilt it, find out who has deleted the databases, and look where the URL of the target leads.",
	AdviceWatchLogin:        "Give its watch the login of a server administrator: in [replicator.watches], or in the source of a job.",
	AdviceFeed:              "If it is a CouchDB, create its database _global_changes. Otherwise raise [replicator] max_questions_per_sec.",
	AdviceAddNode:           "Start a node with the role replication.",
	AdviceUncordon:          "Uncordon a node, or start another one with the role replication.",
	AdviceMoreSlots:         "Add a node, or raise [replicator] max_jobs.",
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
		return its.text + ": " + c.Fault.Message
	}
	return its.text
}
