package web

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
)

func TestAccessLevel(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		method, target, prefer string
		status                 int
		took                   time.Duration
		level                  zerolog.Level
		slow                   bool
	}{
		{http.MethodGet, "/db/doc", "", 200, time.Second, zerolog.DebugLevel, false},
		{http.MethodGet, "/db/doc", "", 404, time.Second, zerolog.DebugLevel, false},
		{http.MethodGet, "/db/doc", "", 0, time.Second, zerolog.DebugLevel, false},
		{http.MethodGet, "/db/doc", "", 401, time.Second, zerolog.InfoLevel, false},
		{http.MethodPut, "/db/doc", "", 403, time.Second, zerolog.InfoLevel, false},
		{http.MethodPut, "/db/doc", "", 500, time.Second, zerolog.WarnLevel, false},
		{http.MethodPut, "/db/doc", "", 503, time.Second, zerolog.WarnLevel, false},
		{http.MethodGet, "/db/doc", "", 200, slowAnswer, zerolog.WarnLevel, true},
		{http.MethodGet, "/db/_changes?feed=normal", "", 200, slowAnswer, zerolog.WarnLevel, true},
		{http.MethodGet, "/db/_changes?feed=longpoll", "", 200, time.Hour, zerolog.DebugLevel, false},
		{http.MethodGet, "/_scheduler/jobs", "respond-async, wait=60", 200, time.Hour, zerolog.DebugLevel, false},
		{http.MethodPost, "/_replicate", "", 200, time.Hour, zerolog.DebugLevel, false},
		{http.MethodPost, "/_node/_local/_backup", "", 200, time.Hour, zerolog.DebugLevel, false},
		{http.MethodPost, "/_replicate", "", 500, time.Hour, zerolog.WarnLevel, false},
		{http.MethodPut, "/_replicator/d", "", 201, 0, zerolog.InfoLevel, false},
		{http.MethodPut, "/team/_replicator/d", "", 201, 0, zerolog.InfoLevel, false},
		{http.MethodDelete, "/team%2F_replicator", "", 200, 0, zerolog.InfoLevel, false},
		{http.MethodPost, "/_replicator/_bulk_docs", "", 201, 0, zerolog.InfoLevel, false},
		{http.MethodPut, "/_replicator/d", "", 409, 0, zerolog.DebugLevel, false},
		{http.MethodPut, "/_replicator/_local/checkpoint", "", 201, 0, zerolog.DebugLevel, false},
		{http.MethodPost, "/_replicator/_revs_diff", "", 200, 0, zerolog.DebugLevel, false},
		{http.MethodPost, "/_scheduler/jobs/1/_run", "", 202, 0, zerolog.InfoLevel, false},
		{http.MethodPost, "/_scheduler/check", "", 200, 0, zerolog.DebugLevel, false},
		{http.MethodPut, "/_node/_local/_config/replicator.shares/_replicator", "", 200, 0, zerolog.InfoLevel, false},
		{http.MethodGet, "/_node/_local/_config", "", 200, 0, zerolog.DebugLevel, false},
	} {
		r := httptest.NewRequest(test.method, test.target, http.NoBody)
		if test.prefer != "" {
			r.Header.Set("Prefer", test.prefer)
		}
		level, slow := accessLevel(r, test.status, test.took)
		assert.Equal(t, test.level, level, "%+v", test)
		assert.Equal(t, test.slow, slow, "%+v", test)
	}
}
