package replicator

import (
	"cmp"
	"strings"
	"time"
)

// Advice says what helps. Text is a sentence or two for people.
type Advice struct {
	Code AdviceCode `json:"code"`
	Text string     `json:"text"`
}

// AdviceCode is a kind of advice.
type AdviceCode string

// The kinds of advice. Their texts are in texts.go.
const (
	AdviceHost              AdviceCode = "host"
	AdviceCorrectHost       AdviceCode = "correct_host"
	AdviceCorrectURL        AdviceCode = "correct_url"
	AdviceNameServer        AdviceCode = "name_server"
	AdviceServer            AdviceCode = "server"
	AdviceServerHangs       AdviceCode = "server_hangs"
	AdviceServerLog         AdviceCode = "server_log"
	AdviceTrust             AdviceCode = "trust_authority"
	AdviceRenew             AdviceCode = "renew_certificate"
	AdviceClientCertificate AdviceCode = "client_certificate"
	AdviceCheckTLS          AdviceCode = "check_tls"
	AdviceCredentials       AdviceCode = "credentials"
	AdviceToken             AdviceCode = "token"
	AdviceTokenServer       AdviceCode = "token_server"
	AdviceRights            AdviceCode = "rights"
	AdviceListRights        AdviceCode = "list_rights"
	AdviceProxy             AdviceCode = "proxy"
	AdviceProxyCredentials  AdviceCode = "proxy_credentials" //nolint:gosec // a word, not a credential
	AdviceDeniedNetworks    AdviceCode = "denied_networks"
	AdviceCreateDatabase    AdviceCode = "create_database"
	AdviceCreateTarget      AdviceCode = "create_target"
	AdviceFilter            AdviceCode = "filter"
	AdviceFilterSlow        AdviceCode = "filter_slow"
	AdviceNoCheckpoints     AdviceCode = "no_checkpoints"
	AdviceMirrorSecurity    AdviceCode = "mirror_security"
	AdviceDeleteOne         AdviceCode = "delete_one"
	AdviceEdit              AdviceCode = "edit"
	AdviceAddKey            AdviceCode = "add_key"
	AdviceDocuments         AdviceCode = "refused_documents"
	AdviceMaxDocument       AdviceCode = "max_document_size"
	AdviceSlower            AdviceCode = "slower"
	AdviceTargetURL         AdviceCode = "check_target"
	AdviceWatchLogin        AdviceCode = "watch_login"
	AdviceFeed              AdviceCode = "feed"
	AdviceAddNode           AdviceCode = "add_node"
	AdviceMoreSlots         AdviceCode = "more_slots"
	AdviceUncordon          AdviceCode = "uncordon"
)

// advices has what helps against each fault; nothing is known to help against the others.
var advices = map[FaultCode]AdviceCode{
	FaultDNSNotFound: AdviceHost, FaultDNSFailed: AdviceNameServer,
	FaultConnectRefused: AdviceServer, FaultUnreachable: AdviceServer, FaultConnectTimeout: AdviceServer, FaultNetworkDenied: AdviceDeniedNetworks,
	FaultTLSAuthority: AdviceTrust, FaultTLSExpired: AdviceRenew, FaultTLSName: AdviceCorrectHost, FaultTLSClient: AdviceClientCertificate,
	FaultTLSNoAnswer:  AdviceCheckTLS,
	FaultProxyRefused: AdviceProxyCredentials, FaultProxyFailed: AdviceProxy,
	FaultNoAnswer: AdviceServerHangs, FaultStalled: AdviceServerHangs, FaultFilterSilent: AdviceFilterSlow,
	FaultUnauthorized: AdviceCredentials, FaultLoginRefused: AdviceCredentials, FaultForbidden: AdviceRights, FaultUnlistable: AdviceListRights,
	FaultTokenRefused: AdviceToken, FaultTokenFailed: AdviceTokenServer,
	FaultDatabaseMissing: AdviceCreateDatabase, FaultNotDatabase: AdviceCorrectURL, FaultFilterMissing: AdviceFilter, FaultFilterInvalid: AdviceFilter,
	FaultNoCheckpoint: AdviceNoCheckpoints, FaultCheckpointTwice: AdviceDeleteOne, FaultSecurity: AdviceMirrorSecurity,
	FaultRateLimited: AdviceSlower, FaultServerError: AdviceServerLog,
	FaultMissingRevision: AdviceDocuments, FaultDigest: AdviceDocuments, FaultDocumentRefused: AdviceDocuments, FaultDocumentTooLarge: AdviceMaxDocument,
	FaultMalformed: AdviceCorrectURL, FaultRedirected: AdviceCorrectURL,
	FaultCollision: AdviceDeleteOne, FaultInvalid: AdviceEdit, FaultSealed: AdviceAddKey, FaultTargetChanged: AdviceTargetURL,
	FaultFeedRefused: AdviceWatchLogin, FaultFeedMissing: AdviceFeed, FaultFeedFails: AdviceServer,
}

// Advised is what advice depends on beside the kind of fault. Empty texts are left open.
type Advised struct {
	Side              Side
	Host, Proxy, User string
	// Asked reports that the server asked to wait, also with a server error.
	Asked bool
	// Mirror: a mirror, or a job of one. CreateTarget: the definition has it. Posted: there is no document.
	Mirror, CreateTarget, Posted bool
}

// Advice returns what helps against a fault, nil if that is not known.
func (c FaultCode) Advice(to Advised) *Advice {
	code, known := advices[c]
	if !known {
		return nil
	}
	switch {
	case c == FaultDatabaseMissing && to.Side == SideTarget && !to.Mirror && !to.CreateTarget:
		code = AdviceCreateTarget
	case c == FaultServerError && to.Asked:
		code = AdviceSlower
	}
	return code.advice(to)
}

// advice fills in what is advised.
func (c AdviceCode) advice(to Advised) *Advice {
	again := "Edit its document"
	if to.Posted {
		again = "Post it again"
	}
	return &Advice{c, strings.NewReplacer(
		"SIDE", cmp.Or(string(to.Side), "endpoint"), "HOST", cmp.Or(to.Host, "the server"), "USER", cmp.Or(to.User, "its user"),
		"PROXY", cmp.Or(to.Proxy, to.Host, "the proxy"), "AGAIN", again,
	).Replace(adviceTexts[c])}
}

const (
	// limitedFor is how long a running job may wait as a server asks before something is advised, and slotFor how long a job may wait
	// for a slot.
	limitedFor = time.Hour
	slotFor    = 15 * time.Minute
)

// advice returns what helps a job in a condition, nil if nothing is known or needed.
func (f *Facts) advice(c *Condition) *Advice {
	to := Advised{
		Mirror: f.Args.Replication.Mirror != nil || f.Args.MirroredDatabase != "", CreateTarget: f.Args.Replication.CreateTarget,
		Posted: f.Args.Database == nil,
	}
	waited := f.Now.Sub(c.Since)
	switch {
	case c.State == ShownPaused || c.Reason == ReasonPausing || c.Reason == ReasonNewDefinition:
		return nil
	case c.Reason == ReasonNoNode:
		return AdviceAddNode.advice(to)
	case c.Reason == ReasonCordoned:
		return AdviceUncordon.advice(to)
	case c.Reason == ReasonSlot && waited >= slotFor && f.Cluster != nil && f.Cluster.Used >= f.Cluster.Slots:
		return AdviceMoreSlots.advice(to)
	case c.Fault != nil:
		to.Side, to.Host, to.Proxy, to.User = c.Fault.Side, c.Fault.Host, hostOf(c.Fault.Proxy), c.Fault.User
		to.Asked = c.Fault.RetryAfter > 0
		if c.Reason == Reason(DoingRateLimited) && waited < limitedFor {
			return nil
		}
		return c.Fault.Code.Advice(to)
	case c.Attention && c.has(MarkDocumentsRefused) && f.State.Attention().Kind == NeedsRefused:
		return AdviceDocuments.advice(to)
	}
	return nil
}
