package web

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"settee/pkg/redact"
	"settee/replicator"
)

// slowAnswer is how long after a request, without the time in which its body came, an answer that waits for nothing may
// begin before it counts as slow.
const slowAnswer = 5 * time.Second

// logAccess logs a request that was answered. took is the time until the answer began.
func logAccess(log *zerolog.Logger, out *answer, r *http.Request, began time.Time, took time.Duration) {
	level, slow := accessLevel(r, out.status, took)
	line := log.WithLevel(level).
		Str("remote", r.RemoteAddr).
		Str("method", Cut(r.Method)).
		Str("path", Cut(redact.Path(r.URL.Path))).
		Str("user", Cut(out.user)).
		Int("status", out.status).
		Int64("bytes", out.bytes).
		Dur("duration", time.Since(began))
	if slow {
		line = line.Bool("slow", true)
	}
	line.Msg("request")
}

// accessLevel returns the level at which a request is logged, and whether its answer was slow. Only failures of this node,
// slow answers, refused users and changes by users are worth a line each. Other
// requests, of which there may be thousands in a second, are for debugging.
func accessLevel(r *http.Request, status int, took time.Duration) (level zerolog.Level, slow bool) {
	slow = took >= slowAnswer && !awaits(r)
	switch {
	case status >= http.StatusInternalServerError, slow:
		return zerolog.WarnLevel, slow
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return zerolog.InfoLevel, slow
	case status >= http.StatusOK && status < http.StatusMultipleChoices && changes(r.Method, r.URL.Path):
		return zerolog.InfoLevel, slow
	}
	return zerolog.DebugLevel, slow
}

// changes reports whether a request changes a document of a replicator database, such a database, a job or a setting. Posted jobs are
// left out: there may be many.
func changes(method, path string) bool {
	if method != http.MethodPut && method != http.MethodPost && method != http.MethodDelete {
		return false
	}
	segments := strings.Split(strings.Trim(path, "/"), "/")
	switch segments[0] {
	case "_scheduler":
		last := segments[len(segments)-1]
		return last == "_run" || last == "_acknowledge"
	case "_node":
		return len(segments) > 2 && segments[2] == "_config"
	}
	at := slices.IndexFunc(segments, replicator.IsReplicatorDatabase)
	if at < 0 {
		return false
	}
	switch below := segments[at+1:]; {
	case len(below) == 0, below[0] == "_bulk_docs":
		return true
	default:
		return method != http.MethodPost && !strings.HasPrefix(below[0], "_")
	}
}

// awaits reports whether the answer to a request may wait for something: a change, the end of a replication, or a backup.
func awaits(r *http.Request) bool {
	feed := r.URL.Query().Get("feed")
	return feed != "" && feed != "normal" || strings.Contains(strings.Join(r.Header.Values("Prefer"), ","), "wait=") ||
		r.URL.Path == "/_replicate" || strings.HasSuffix(r.URL.Path, "/_backup")
}
