package worker

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch"
	"settee/replicator"
)

// faultOf returns the fault of a run's error.
func faultOf(t *testing.T, err error) *replicator.Fault {
	t.Helper()
	failure, ok := errors.AsType[*Error](verdict(err))
	require.True(t, ok, "%v", err)
	require.NotNil(t, failure.Fault)
	return failure.Fault
}

// Each way in which a request fails has a code, whatever was asked for.
func TestFaultsOfWays(t *testing.T) {
	t.Parallel()
	codes := map[string]replicator.FaultCode{
		"dns_not_found": replicator.FaultDNSNotFound, "dns_failed": replicator.FaultDNSFailed,
		"connect_refused": replicator.FaultConnectRefused, "unreachable": replicator.FaultUnreachable,
		"network_denied": replicator.FaultNetworkDenied, "unknown authority": replicator.FaultTLSAuthority,
		"expired": replicator.FaultTLSExpired, "proxy 407": replicator.FaultProxyRefused, "proxy dns": replicator.FaultProxyFailed,
		"EOF": replicator.FaultClosedEarly, "reset": replicator.FaultClosedEarly, "not HTTP": replicator.FaultMalformed,
		"redirect": replicator.FaultRedirected, "401": replicator.FaultUnauthorized, "403": replicator.FaultForbidden,
		"404 of the database": replicator.FaultDatabaseMissing, "409": replicator.FaultUnexpectedStatus,
		"429": replicator.FaultRateLimited, "500": replicator.FaultServerError, "503": replicator.FaultServerError,
	}
	for _, way := range ways {
		want, ok := codes[way.name]
		if !ok {
			continue
		}
		r := runAgainst(t, withUser, way.peer)
		_, err := r.missing(t.Context(), []couch.Row{{ID: "x", Revs: []string{"1-a"}}})
		f := faultOf(t, err)
		require.Equal(t, want, f.Code, way.name)
		require.Equal(t, replicator.SideTarget, f.Side)
		require.Equal(t, replicator.RequestCompare, f.Request)
		require.Equal(t, []string{"couch.example:5984", "POST", "/copy/_revs_diff", ""}, []string{f.Host, f.Method, f.Path, f.User})
		require.NotZero(t, f.At)
		if want == replicator.FaultRateLimited {
			require.Equal(t, []any{429, "too_many_requests", "later", 120}, []any{f.Status, f.Word, f.Said, f.RetryAfter})
		}
		if want == replicator.FaultProxyFailed {
			require.Equal(t, "http://proxy.example:3128", f.Proxy)
		}
	}
}

func TestFaultsWithCodesOfTheirOwn(t *testing.T) {
	t.Parallel()
	forbidden := says(http.StatusForbidden, `{"error":"forbidden","reason":"no"}`)
	ctx := t.Context()

	f := faultOf(t, runAgainst(t, withUser, forbidden).source.record(ctx, "id", "session", record{}))
	require.Equal(t, []any{replicator.FaultNoCheckpoint, replicator.RequestCheckpoint, 403}, []any{f.Code, f.Request, f.Status})

	f = faultOf(t, runAgainst(t, withUser, forbidden).target.putSecurity(ctx, json.RawMessage(`{}`)))
	require.Equal(t, []any{replicator.FaultSecurity, replicator.RequestWriteSecurity}, []any{f.Code, f.Request})

	r := runAgainst(t, withUser, says(http.StatusNotFound, `{"error":"not_found","reason":"missing"}`))
	r.rep.Filter = "app/mine"
	_, err := r.filterCode(ctx)
	f = faultOf(t, err)
	require.Equal(t, []any{replicator.FaultFilterMissing, "_design/app"}, []any{f.Code, f.Document.ID})

	f = faultOf(t, r.missed(ctx, ref{id: "x", rev: "1-a"}, errMissing))
	require.Equal(t, &replicator.DocRef{ID: "x", Rev: "1-a"}, f.Document)

	r = runAgainst(t, withUser, says(http.StatusUnauthorized, `{"error":"unauthorized","reason":"no"}`), func(cfg *Config) { cfg.BasicAuth = false })
	_, err = r.source.getCheckpoint(ctx, "id")
	f = faultOf(t, err)
	require.Equal(t, []any{replicator.FaultLoginRefused, replicator.RequestLogin, "me"}, []any{f.Code, f.Request, f.User})

	// A refusal of one document is not one of the request.
	f = faultOf(t, r.target.failed(replicator.RequestWriteDocument, &couch.DocError{ID: "x", Rev: "1-a", Code: "unauthorized", Reason: "no"}))
	require.Equal(t, []any{replicator.FaultDocumentRefused, "unauthorized"}, []any{f.Code, f.Word})
	require.Equal(t, &replicator.DocRef{ID: "x", Rev: "1-a"}, f.Document)
}

// The codes of faults are the classes of errors, except one.
func TestCodesOfClasses(t *testing.T) {
	t.Parallel()
	for class, code := range map[couch.Class]replicator.FaultCode{
		couch.ClassDNSNotFound: replicator.FaultDNSNotFound, couch.ClassDNSFailed: replicator.FaultDNSFailed,
		couch.ClassConnectRefused: replicator.FaultConnectRefused, couch.ClassUnreachable: replicator.FaultUnreachable,
		couch.ClassConnectTimeout: replicator.FaultConnectTimeout, couch.ClassNetworkDenied: replicator.FaultNetworkDenied,
		couch.ClassTLSAuthority: replicator.FaultTLSAuthority, couch.ClassTLSExpired: replicator.FaultTLSExpired,
		couch.ClassTLSName: replicator.FaultTLSName, couch.ClassTLSClient: replicator.FaultTLSClient,
		couch.ClassTLSNoAnswer: replicator.FaultTLSNoAnswer,
		couch.ClassTLSFailed:   replicator.FaultTLSFailed, couch.ClassProxyRefused: replicator.FaultProxyRefused,
		couch.ClassProxyFailed: replicator.FaultProxyFailed, couch.ClassNoAnswer: replicator.FaultNoAnswer,
		couch.ClassStalled: replicator.FaultStalled, couch.ClassClosedEarly: replicator.FaultClosedEarly,
		couch.ClassUnknown: replicator.FaultUnknown, couch.ClassRedirected: replicator.FaultRedirected,
		couch.ClassMalformed: replicator.FaultMalformed, couch.ClassNotDatabase: replicator.FaultNotDatabase,
		couch.ClassTooLarge: replicator.FaultDocumentTooLarge, couch.ClassDigest: replicator.FaultDigest,
		couch.ClassUnauthorized: replicator.FaultUnauthorized, couch.ClassLoginRefused: replicator.FaultLoginRefused,
		couch.ClassTokenRefused: replicator.FaultTokenRefused, couch.ClassTokenFailed: replicator.FaultTokenFailed,
		couch.ClassForbidden: replicator.FaultForbidden, couch.ClassDatabaseMissing: replicator.FaultDatabaseMissing,
		couch.ClassRateLimited: replicator.FaultRateLimited, couch.ClassServerError: replicator.FaultServerError,
		couch.ClassUnexpectedStatus: replicator.FaultUnexpectedStatus,
	} {
		require.Equal(t, code, codeOfClass(class))
	}
}

// A request that is repeated says what it asks for by its method and path.
func TestRequestsOfWaits(t *testing.T) {
	t.Parallel()
	p := runAgainst(t, withUser, says(http.StatusOK, `{}`)).source
	const db = "http://couch.example:5984/db"
	for request, want := range map[string]replicator.RequestCode{
		"GET " + db: replicator.RequestOpen, "PUT " + db: replicator.RequestCreate,
		"POST http://couch.example:5984/_session": replicator.RequestLogin,
		"GET http://couch.example:5984/":          replicator.RequestReadServer,
		"GET " + db + "/_changes":                 replicator.RequestReadChanges,
		"POST " + db + "/_changes":                replicator.RequestReadChanges,
		"POST " + db + "/_revs_diff":              replicator.RequestCompare,
		"POST " + db + "/_bulk_docs":              replicator.RequestWriteDocuments,
		"POST " + db + "/_bulk_get":               replicator.RequestReadDocuments,
		"POST " + db + "/_ensure_full_commit":     replicator.RequestFlush,
		"GET " + db + "/_security":                replicator.RequestReadSecurity,
		"PUT " + db + "/_security":                replicator.RequestWriteSecurity,
		"GET " + db + "/_local/abc":               replicator.RequestReadCheckpoint,
		"PUT " + db + "/_local/abc":               replicator.RequestCheckpoint,
		"GET " + db + "/_local/settee-mirror":     replicator.RequestReadMark,
		"GET " + db + "/x/y.png":                  replicator.RequestReadDocument,
		"PUT " + db + "/_design/x":                replicator.RequestWriteDocument,
	} {
		method, url, _ := strings.Cut(request, " ")
		require.Equal(t, want, p.requestOf(&couch.Error{Method: method, URL: url}), request)
	}
}

// A server may quote what it was sent. No part of a fault has a password, a token or a cookie.
func TestFaultsHaveNoSecrets(t *testing.T) {
	t.Parallel()
	secrets := []string{"s3cr3t-pass", "t0ken-value", "c00kie-value", "bWU6czNjcjN0LXBhc3M="}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/_session") {
			http.SetCookie(w, &http.Cookie{Name: "AuthSession", Value: "c00kie-value"})
			_, _ = io.WriteString(w, `{"ok":true}`)
			return
		}
		w.WriteHeader(http.StatusTeapot)
		quoted := secrets[0] + " " + secrets[1] + " " + r.Header.Get("Authorization") + " " + r.Header.Get("Cookie") + " " + r.URL.RawQuery
		said, _ := json.Marshal(map[string]string{"error": "for " + secrets[0], "reason": quoted})
		_, _ = w.Write(said)
	}))
	t.Cleanup(server.Close)
	url := strings.Replace(server.URL, "://", "://me:s3cr3t-pass@", 1) + "/db"
	body := `{"source":{"url":"` + url + `","headers":{"X-Token":"t0ken-value"}},"target":"` + url + `","filter":"a/b","query_params":{"key":"t0ken-value"}}`
	request, err := replicator.ParseRequest([]byte(body), replicator.ParseOptions{})
	require.NoError(t, err)
	for _, basic := range []bool{true, false} {
		cfg := DefaultConfig()
		cfg.RetriesPerRequest, cfg.BasicAuth, cfg.Shared = 0, basic, Impatient()
		r, err := newRun(&Job{Replication: request.Replication}, &cfg, nil)
		require.NoError(t, err)
		for _, deed := range deeds {
			err := deed.do(t.Context(), r)
			if err == nil || !errors.As(err, new(*Error)) {
				continue
			}
			f := faultOf(t, err)
			require.NotContains(t, f.Said, secrets[0], "the client has masked it")
			stored, err := json.Marshal(f.Redacted(request.Replication.Secrets()))
			require.NoError(t, err)
			for _, secret := range secrets {
				require.NotContains(t, string(stored), secret, deed.name)
			}
		}
		r.source.db.Close()
		r.target.db.Close()
	}
}

// A run that has made progress ends the fault of the run before.
func TestProgressEndsAFault(t *testing.T) {
	t.Parallel()
	state := replicator.JobState{Fault: replicator.TextFault("error", "no")}
	Progress{Activity: &replicator.Activity{Doing: replicator.DoingStarting}}.CopyTo(&state)
	require.NotNil(t, state.Fault)
	Progress{Progressed: time.Now()}.CopyTo(&state)
	require.Nil(t, state.Fault)
}
