package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"settee/pkg/couch"
	"settee/replicator"
)

const (
	defaultWorkerProcesses    = 4                // [replicator] worker_processes
	defaultWorkerBatchSize    = 500              // [replicator] worker_batch_size
	defaultHTTPConnections    = 20               // [replicator] http_connections
	defaultRetriesPerRequest  = 5                // [replicator] retries_per_request
	defaultConnectionTimeout  = 30 * time.Second // [replicator] connection_timeout
	defaultCheckpointInterval = 30 * time.Second // [replicator] checkpoint_interval
	defaultMissingDocRetry    = 2 * time.Second  // [replicator] missing_doc_retry_msec
	defaultReportInterval     = 10 * time.Second
	defaultStopTimeout        = 5 * time.Second
	defaultRetryBase          = 250 * time.Millisecond
)

// Config is what the node that runs a job decides. The options of a replication override the fields of
// the same name.
type Config struct {
	// ServerUUID is [couchdb] uuid, of which replication ids are made.
	ServerUUID string

	WorkerProcesses int // batches that are copied at a time; default: 4
	WorkerBatchSize int // changes in a batch; default: 500
	HTTPConnections int // requests at a time to each of the two databases; default: 20
	// RetriesPerRequest is how often a request is repeated, and how often in a row a changes feed that
	// breaks off before it has said anything is opened again. Default: 5; negative: never.
	RetriesPerRequest int
	// RetryBase is the wait before the first repetition. It doubles each time. Default: 250 ms.
	RetryBase time.Duration
	// ConnectionTimeout bounds each wait for the network, but no request as a whole. Default: 30 s.
	ConnectionTimeout time.Duration
	// RequestTimeout bounds the wait for an answer to a request that was sent. Default: ConnectionTimeout.
	RequestTimeout time.Duration
	// CheckpointInterval is the time between two checkpoints. Default: 30 s.
	CheckpointInterval time.Duration
	NoCheckpoints      bool // [replicator] use_checkpoints = false
	NoBulkGet          bool // [replicator] use_bulk_get = false
	NoCompression      bool // [replicator] compress_requests = false
	// MissingDocRetry is the wait before a revision is asked for again that the source announced and does
	// not have. Default: 2 s; negative: none.
	MissingDocRetry time.Duration
	// MaxDocument is the size in bytes of the largest document, without its attachments, that the run reads; it
	// fails with a larger one. Default: 64 MiB.
	MaxDocument int
	// MaxDocumentIDLength is how many bytes the id of a document may have; longer ones count as refused.
	// Default: no limit.
	MaxDocumentIDLength int64

	// ReportInterval is the longest time between two reports. Default: 10 s.
	ReportInterval time.Duration
	// StopTimeout bounds how long a run that is to stop waits for the batches in flight, and then how
	// long its last checkpoint may take. Default: 5 s.
	StopTimeout time.Duration

	// Shared is what all runs of a node share. Default: something of the run's own.
	Shared *Shared
	// BasicAuth has requests carry the endpoint's user and password. Without it they carry the cookie of a
	// session, where the endpoint has sessions.
	BasicAuth bool
	// SessionRefresh and SessionMinAge are couch.Config's: 550 s and 5 s by default.
	SessionRefresh, SessionMinAge time.Duration

	UserAgent string // default: "settee"

	// Transport, if not nil, chooses what makes the requests to an endpoint: many runs may share one. It
	// has to see to the endpoint's proxy and to socket options (nil for none), and must not follow
	// redirects: couch.Pool makes such. If it is nil, or returns nil, the run has a pool of its own, with
	// couch.Pool's defaults, which leaves socket options alone.
	Transport func(endpoint replicator.Endpoint, options *replicator.SocketOptions) http.RoundTripper

	// Sending, if not nil, is couch.Config's.
	Sending func() error

	// Refused, if not nil, is told at once of each revision that the target refused. Several goroutines
	// may call it at a time; the run waits for it.
	Refused func(Refusal)
	// ListRefused, if not nil, is for those who keep a list: it is told of the same revisions, the oldest first,
	// and of how many there were since the last call. Of more than replicator.MaxFailures it gets the latest,
	// and the count of all. It is called by the goroutine that calls the Reporter, before a report and before a
	// checkpoint: none covers a revision that is neither on the target nor was told here. An error ends the
	// run with it, as one of the Reporter's does, and nothing that was told with it counts as listed.
	ListRefused func(ctx context.Context, latest []Refusal, count int64) error
}

// Shared is what the runs of one node have in common: what they know of servers that want their requests
// to come more slowly, and logins at servers, so that a login is made once and not by each run. The zero
// value is ready; it is not to be copied.
type Shared struct {
	limiter  couch.Limiter
	sessions couch.Sessions
}

// Refusal is a revision that the target does not take. The run goes on without it.
type Refusal = replicator.Failure

// Job is what is to run.
type Job struct {
	Replication *replicator.Replication

	// ReplicationID and Stats are what earlier runs left. If the id is still that of the replication, its
	// statistics go on from there; else they start at zero.
	ReplicationID string
	Stats         replicator.Stats

	// Stop, when it is closed, asks the run to end soon: it reads no more changes, gives the batches in
	// flight a moment, and writes a checkpoint for what is done. nil: never.
	Stop <-chan struct{}
}

// Reporter is who a run answers to. Its methods are called by one goroutine, one at a time. The run goes
// on meanwhile, but for Identify.
type Reporter interface {
	// Identify is called once per run, as soon as the replication id is known: before anything is asked of the
	// databases, or, if the id needs the filter's code, as soon as that was read from the source, before anything
	// is asked of the target. An error ends the run with it.
	Identify(ctx context.Context, id replicator.ID) error
	// Report is told how far the run is: at least every ReportInterval from its beginning to its end, also
	// while the endpoints are silent, and after each checkpoint but the last. An error, such as that the
	// job's lock was taken, ends the run at once with that error. What comes after the last report is in
	// the Result.
	Report(ctx context.Context, progress Progress) error
}

// Progress is how far a run is. Its sequences must not be changed.
type Progress struct {
	// ReplicationID and Stats are those of the Job until the run has called Identify.
	ReplicationID string
	Stats         replicator.Stats // over all runs of this replication id

	// SourceSeq is how far the changes feed was read, ThroughSeq up to where all of it was dealt with,
	// CheckpointedSourceSeq what of that a checkpoint recorded, or where the run began; nil if not known yet.
	SourceSeq, ThroughSeq, CheckpointedSourceSeq json.RawMessage
	// ChangesPending is how many changes are left to be dealt with, or nil if the source does not say.
	ChangesPending *int64
	// Activity is what the run is doing; nil when it has ended.
	Activity *replicator.Activity
}

// CopyTo writes the progress into a job's state and leaves its other fields alone.
func (p Progress) CopyTo(state *replicator.JobState) {
	state.ReplicationID = p.ReplicationID
	state.Stats = p.Stats
	state.SourceSeq = p.SourceSeq
	state.ThroughSeq = p.ThroughSeq
	state.CheckpointedSourceSeq = p.CheckpointedSourceSeq
	state.ChangesPending = p.ChangesPending
	state.Activity = p.Activity
}

// Result is what a run leaves, however it ended. Its statistics have all that was counted, which may be
// more than the last report had.
type Result struct {
	Progress
	// History is the JSON object that POST /_replicate answers with, of at most 60,000 bytes. It is nil
	// unless a one-shot replication has come to its end.
	History json.RawMessage
}

// settings are a Config with its defaults and the options of a replication filled in.
type settings struct {
	workers, batchSize, connections int
	retries                         int // 0: none
	retryBase                       time.Duration
	connectionTimeout               time.Duration
	requestTimeout                  time.Duration // 0: as connectionTimeout
	checkpointInterval              time.Duration
	reportInterval, stopTimeout     time.Duration
	missingDocRetry                 time.Duration
	maxDocumentID                   int64 // bytes; 0: any number
	useCheckpoints, useBulkGet      bool
}

func newSettings(cfg Config, rep *replicator.Replication) settings {
	s := settings{
		workers:            cmp.Or(cfg.WorkerProcesses, defaultWorkerProcesses),
		batchSize:          cmp.Or(cfg.WorkerBatchSize, defaultWorkerBatchSize),
		connections:        cmp.Or(cfg.HTTPConnections, defaultHTTPConnections),
		retries:            cmp.Or(cfg.RetriesPerRequest, defaultRetriesPerRequest),
		retryBase:          cmp.Or(cfg.RetryBase, defaultRetryBase),
		connectionTimeout:  cmp.Or(cfg.ConnectionTimeout, defaultConnectionTimeout),
		requestTimeout:     cfg.RequestTimeout,
		checkpointInterval: cmp.Or(cfg.CheckpointInterval, defaultCheckpointInterval),
		reportInterval:     cmp.Or(cfg.ReportInterval, defaultReportInterval),
		stopTimeout:        cmp.Or(cfg.StopTimeout, defaultStopTimeout),
		missingDocRetry:    max(cmp.Or(cfg.MissingDocRetry, defaultMissingDocRetry), 0),
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

	// The node's own settings may be larger, and so may what was accepted once.
	s.workers = min(max(s.workers, 1), replicator.MaxWorkerProcesses)
	s.batchSize = min(max(s.batchSize, 1), replicator.MaxWorkerBatchSize)
	s.connections = min(max(s.connections, 1), replicator.MaxHTTPConnections)
	s.retries = min(max(s.retries, 0), replicator.MaxRetries)
	return s
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
