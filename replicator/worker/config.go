package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"math"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"settee/pkg/couch"
	"settee/pkg/serverbudget"
	"settee/pkg/sockopt"
	"settee/replicator"
)

// DefaultConfig returns the default settings of a node. They are CouchDB's where CouchDB has the setting. The fields
// that it leaves empty are optional.
func DefaultConfig() Config {
	requests := couch.DefaultConfig()
	return Config{ //nolint:gosec // IBMTokenURL is no secret
		WorkerProcesses:     4,   // [replicator] worker_processes
		WorkerBatchSize:     500, // [replicator] worker_batch_size
		HTTPConnections:     requests.MaxConnections,
		RetriesPerRequest:   requests.Retries,
		RetryBase:           requests.RetryBase,
		ConnectionTimeout:   requests.ConnectionTimeout,
		CheckpointInterval:  30 * time.Second, // [replicator] checkpoint_interval
		MissingDocRetry:     2 * time.Second,  // [replicator] missing_doc_retry_msec
		SecurityInterval:    SecurityEvery,    // or [replicator] max_idle_sec
		MaxDocument:         requests.MaxDocument,
		MaxDocumentIDLength: math.MaxInt64,
		ReportInterval:      10 * time.Second,
		StopTimeout:         5 * time.Second,
		IBMTokenURL:         "https://iam.cloud.ibm.com/identity/token", // [ibm] token_url
		SessionRefresh:      requests.SessionRefresh,
		SessionMinAge:       requests.SessionMinAge,
		UserAgent:           requests.UserAgent,
	}
}

// Config has the settings of the node that runs a job. The options of a replication override the fields of the same
// name. [DefaultConfig] returns the defaults.
type Config struct {
	// ServerUUID is [couchdb] uuid. It is part of every replication id.
	ServerUUID string

	WorkerProcesses int // batches that are copied at a time; default: 4
	WorkerBatchSize int // changes in a batch; default: 500
	HTTPConnections int // requests at a time to each of the two databases; default: 20
	// RetriesPerRequest is the number of times that a request is repeated, and that a changes feed which breaks off
	// before its first row is opened again in a row. Default: 5.
	RetriesPerRequest int
	// RetryBase is the wait before the first repetition. It doubles each time. Default: 250 ms.
	RetryBase time.Duration
	// ConnectionTimeout bounds each wait for the network, but no request as a whole. Default: 30 s.
	ConnectionTimeout time.Duration
	// RequestTimeout bounds the wait for an answer to a request that was sent. 0: ConnectionTimeout.
	RequestTimeout time.Duration
	// CheckpointInterval is the time between two checkpoints. Default: 30 s.
	CheckpointInterval time.Duration
	NoCheckpoints      bool // [replicator] use_checkpoints = false
	NoBulkGet          bool // [replicator] use_bulk_get = false
	NoCompression      bool // [replicator] compress_requests = false
	// MissingDocRetry is the wait before a revision is requested again that the source announced but does not have.
	// Default: 2 s.
	MissingDocRetry time.Duration
	// SecurityInterval is the longest time until a run that copies `_security` objects notices a change of one. Default:
	// SecurityEvery.
	SecurityInterval time.Duration
	// MaxDocument is the size in bytes of the largest document, without its attachments, that the run reads. It fails
	// with a larger one. Default: 64 MiB.
	MaxDocument int
	// MaxDocumentIDLength is the longest document id, in bytes. Documents with longer ids count as refused. Default:
	// math.MaxInt64.
	MaxDocumentIDLength int64

	// ReportInterval is the longest time between two reports. A change is reported earlier: see Reporter.Report.
	// Default: 10 s.
	ReportInterval time.Duration
	// StopTimeout bounds how long a run that was asked to stop waits for the batches in flight, and then how long its
	// last checkpoint may take. In the second half of the wait it only writes what it has read. Default: 5 s.
	StopTimeout time.Duration

	// Shared is the state that all runs of a node share. nil: the run has its own.
	Shared *Shared
	// BasicAuth makes requests carry the endpoint's user and password. Without it they carry a session cookie if the
	// endpoint supports sessions.
	BasicAuth bool
	// IBMTokenURL is the URL of the server that gives access tokens for API keys of IBM Cloud. Default: IBM's.
	IBMTokenURL string
	// SessionRefresh and SessionMinAge are passed to couch.Config. Default: 550 s and 5 s.
	SessionRefresh, SessionMinAge time.Duration

	UserAgent string // default: "settee"

	// Transport, if not nil, returns the transport for requests to an endpoint. Runs may share one. It must use the
	// endpoint's proxy and the socket options (nil for none), and must not follow redirects. outbound.Pool makes such
	// transports. If Transport is nil or returns nil, the run uses a pool of its own with outbound.Pool's defaults,
	// which ignores socket options.
	Transport func(endpoint replicator.Endpoint, options *sockopt.Options) http.RoundTripper

	// Budgets are passed to couch.Config.
	Budgets *serverbudget.Node
	// Sending, if not nil, is passed to couch.Config.
	Sending func() error

	// Tracer, if not nil, makes the spans of the run, which the package comment lists. PropagateTrace is passed to
	// couch.Config.
	Tracer         trace.Tracer
	PropagateTrace bool

	// Refused, if not nil, is called at once for each revision that was not copied, see replicator.Failure. The run waits for it. Several
	// goroutines may call it at a time.
	Refused func(Refusal)
	// ListRefused, if not nil, is called with the latest refused revisions since the last call, oldest first and at
	// most replicator.MaxFailures, and the count of all since then. It is never called while the Reporter is. It is called
	// before each report and each checkpoint, so that every revision below a checkpoint is either on the target or
	// listed. An error ends the run like an error of the Reporter, and the revisions of that call do not count as
	// listed.
	ListRefused func(ctx context.Context, latest []Refusal, count int64) error
}

// Shared holds what the runs of one node share: the request rates that servers accept, sessions, and what servers have said of
// themselves. The zero value is ready to use. It must not be copied.
type Shared struct {
	limiter    couch.Limiter
	sessions   couch.Sessions
	identities identities
}

// Refusal is a revision that the target refused. The run continues without it.
type Refusal = replicator.Failure

// Job is a replication to run and its stored state.
type Job struct {
	Replication *replicator.Replication

	// ReplicationID and Stats come from earlier runs. The statistics continue from there, or from the checkpoint, if the
	// replication still has that id, and otherwise from the checkpoint alone.
	ReplicationID string
	Stats         replicator.Stats

	// Flow, if not nil, says with whom the requests of the run take turns in the budgets of servers.
	Flow *serverbudget.Flow

	// Attributes are added to each trace of the run, if Config has a Tracer.
	Attributes []attribute.KeyValue

	// Lacking is what the run before has learned. It counts if Woken is true, and so does Security: what the run before
	// has reported as Progress.Security.
	Lacking  replicator.Lacking
	Security string
	// Target is what the runs before have reported as Progress.Target.
	Target replicator.MirrorTarget
	// Woken says that the job was parked before this run. It saves requests: if both databases still have the checkpoint
	// with which a run was parked, the run relies on what that names, and reads a live feed at once. If not, it begins like
	// any other.
	Woken bool

	// Opened, if not nil, is called when the run has opened both databases, before it goes on from a checkpoint. It is called like the
	// methods of the Reporter, and its error ends the run like theirs.
	Opened func(ctx context.Context) error
	// Parking, if not nil, is called when the run is about to park, so that the caller notes what the source looked like.
	// Only after that the run looks for changes for the last time. So the run may go on although Parking was called, and
	// call it again later. An error makes the run go on, too. nil: the job cannot park, and Idle is not called.
	Parking func(ctx context.Context, at replicator.Parked) error
	// Park asks the run to park; see Parker. nil: the run is never asked.
	Park *Parker
	// Idle, if not nil, is called with true when the run has nothing left to copy and could park, and with false when it
	// reads a change, has looked for changes in vain, or does not reach the source. Calls do not overlap. It must not wait,
	// but may call Parker.Ask.
	Idle func(idle bool)

	// Stop, when it ends, asks the run to end soon. The run stops reading changes, waits up to StopTimeout for the
	// batches in flight, writes the documents that it has read of the others, and writes a checkpoint for what is done.
	// nil: never.
	Stop context.Context
}

// Reporter receives the reports of a run. Its methods are called one at a time. The run continues meanwhile, except
// during Identify.
type Reporter interface {
	// Identify is called once per run, as soon as the replication id is known: before the first request to the
	// databases, or, if the id depends on the filter's code, after reading that from the source and before the first
	// request to the target. An error ends the run.
	Identify(ctx context.Context, id replicator.ID) error
	// Report is called with the run's progress: within a second of the first change, then every two seconds while
	// anything changes, at least every ReportInterval even while the endpoints are silent, and after each checkpoint
	// except the last. An error, for example that the job's lock was lost, ends the run at once.
	// The Result has what happens after the last report.
	Report(ctx context.Context, progress Progress) error
}

// Progress is the progress of a run. Its sequences must not be modified.
type Progress struct {
	// ReplicationID and Stats have the Job's values until the run has called Identify.
	ReplicationID string
	// Stats count all runs with this replication id, and RunStats count this run. The first of a run are the
	// larger of the Job's and of the last session's in the checkpoint, as in CouchDB.
	Stats, RunStats replicator.Stats

	// SourceSeq is the sequence up to which the changes feed was read, ThroughSeq the sequence up to which every
	// change was dealt with, and CheckpointedSourceSeq the sequence of the latest checkpoint. All begin with the run's start, and are nil
	// until that is known.
	SourceSeq, ThroughSeq, CheckpointedSourceSeq json.RawMessage
	// ChangesPending is the number of changes still to be dealt with, or nil if it is not known. With a filter it counts
	// also changes that the filter will leave out.
	ChangesPending *int64
	// Ends is what both ends said of themselves when the run opened them; nil until then, and if it did not need to.
	Ends *replicator.Ends
	// Lacking is what the run has learned about the target.
	Lacking replicator.Lacking
	// Security is the SecurityDigest of the `_security` object of the source that the target has. It is empty as long as that
	// is not known, and if the replication does not copy the object.
	Security string
	// Target is what the run knows of the target of a mirrored replication.
	Target replicator.MirrorTarget
	// Activity is what the run is doing; nil after its end.
	Activity *replicator.Activity
	// Progressed is Activity.LastProgress, also after the end.
	Progressed time.Time
}

// CopyTo writes the progress into a job's state and leaves its other fields alone, except for what progress ends. Until the run knows where it starts,
// the state has the sequences of the run before.
func (p Progress) CopyTo(state *replicator.JobState) {
	if !p.Progressed.IsZero() {
		state.Progressed(p.Progressed)
	}
	state.ReplicationID = p.ReplicationID
	state.Stats = p.Stats
	if p.ThroughSeq != nil {
		state.SourceSeq = p.SourceSeq
		state.ThroughSeq = p.ThroughSeq
		state.CheckpointedSourceSeq = p.CheckpointedSourceSeq
	}
	state.ChangesPending = p.ChangesPending
	if p.Ends != nil {
		state.Ends = p.Ends
	}
	state.Lacking = p.Lacking
	state.Security = p.Security
	state.Target = p.Target
	state.Activity = p.Activity
}

// Result is the state of a run at its end, successful or not. Its statistics are complete and may exceed the statistics
// of the last report.
type Result struct {
	Progress
	// History is the answer to POST /_replicate, a JSON object of at most 60,000 bytes. It is nil unless a one-shot
	// replication reached the end of the feed.
	History json.RawMessage
	// Parked says that the run ended because it was asked to park. Then there is no error.
	Parked bool
}

// settings are the settings of a Config with the options of the replication applied.
type settings struct {
	workers, batchSize, connections int
	retries                         int
	retryBase                       time.Duration
	connectionTimeout               time.Duration
	requestTimeout                  time.Duration // 0: as connectionTimeout
	checkpointInterval              time.Duration
	reportInterval, stopTimeout     time.Duration
	missingDocRetry                 time.Duration
	securityInterval                time.Duration
	maxDocumentID                   int64 // bytes
	useCheckpoints, useBulkGet      bool
}

func newSettings(cfg Config, rep *replicator.Replication) settings {
	s := settings{
		workers:            cfg.WorkerProcesses,
		batchSize:          cfg.WorkerBatchSize,
		connections:        cfg.HTTPConnections,
		retries:            cfg.RetriesPerRequest,
		retryBase:          cfg.RetryBase,
		connectionTimeout:  cfg.ConnectionTimeout,
		requestTimeout:     cfg.RequestTimeout,
		checkpointInterval: cfg.CheckpointInterval,
		reportInterval:     cfg.ReportInterval,
		stopTimeout:        cfg.StopTimeout,
		missingDocRetry:    cfg.MissingDocRetry,
		securityInterval:   cmp.Or(cfg.SecurityInterval, SecurityEvery),
		maxDocumentID:      cfg.MaxDocumentIDLength,
		useCheckpoints:     !cfg.NoCheckpoints,
		useBulkGet:         !cfg.NoBulkGet,
	}
	override(&s.workers, rep.WorkerProcesses)
	override(&s.batchSize, rep.WorkerBatchSize)
	override(&s.connections, rep.HTTPConnections)
	override(&s.retries, rep.RetriesPerRequest)
	override(&s.useCheckpoints, rep.UseCheckpoints)
	override(&s.useBulkGet, rep.UseBulkGet)
	overrideMilliseconds(&s.connectionTimeout, rep.ConnectionTimeout)
	overrideMilliseconds(&s.checkpointInterval, rep.CheckpointInterval)

	// The node's settings are not limited.
	s.workers = min(max(s.workers, 1), replicator.MaxWorkerProcesses)
	s.batchSize = min(max(s.batchSize, 1), replicator.MaxWorkerBatchSize)
	s.connections = min(max(s.connections, 1), replicator.MaxHTTPConnections)
	s.retries = min(max(s.retries, 0), replicator.MaxRetries)
	return s
}

// requestsPerBatch returns how many requests of a batch there are at a time to an endpoint that reads or writes documents
// in bulk, at most: mostPerBatch, or what the connections leave to each worker. Two connections are kept for short requests.
func (s *settings) requestsPerBatch() int {
	return min(mostPerBatch, max(1, (s.connections-2)/s.workers))
}

func override[T any](setting *T, option *T) {
	if option != nil {
		*setting = *option
	}
}

func overrideMilliseconds(setting *time.Duration, option *int) {
	if option != nil && *option > 0 {
		*setting = time.Duration(*option) * time.Millisecond
	}
}
