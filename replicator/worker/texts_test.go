package worker

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch"
	"settee/pkg/outbound"
	"settee/pkg/sockopt"
	"settee/replicator"
)

// textsFile has the errors that a run makes, as CouchDB's "error" and "reason" show them. Clients compare them.
const textsFile = "testdata/texts.jsonl"

// told is one error of textsFile.
type told struct {
	Name   string `json:"name"`
	Error  string `json:"error"`
	Reason string `json:"reason"`
}

// peers answers the requests to both databases.
type peers func(*http.Request) (*http.Response, error)

func (p peers) RoundTrip(hr *http.Request) (*http.Response, error) {
	if hr.Body != nil {
		_, _ = io.Copy(io.Discard, hr.Body)
		_ = hr.Body.Close()
	}
	return p(hr)
}

// says returns a response.
func says(status int, body string, header ...string) peers {
	return func(hr *http.Request) (*http.Response, error) {
		answer := &http.Response{
			StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: hr,
		}
		for i := 0; i < len(header); i += 2 {
			answer.Header.Set(header[i], header[i+1])
		}
		return answer, nil
	}
}

func breaks(err error) peers { return func(*http.Request) (*http.Response, error) { return nil, err } }

func unconnected(step outbound.ConnectStep, err error) peers {
	return breaks(&outbound.ConnectError{Step: step, Host: "couch.example:5984", Err: err})
}

func refusedCall(number syscall.Errno) error {
	return &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 5984}, Err: os.NewSyscallError("connect", number)}
}

// ways are the ways in which a request fails.
var ways = []struct {
	name string
	peer peers
}{
	{"dns_not_found", unconnected(outbound.StepResolve, &net.DNSError{Err: "no such host", Name: "couch.example", IsNotFound: true})},
	{"dns_failed", unconnected(outbound.StepResolve, &net.DNSError{Err: "server misbehaving", Name: "couch.example", IsTemporary: true})},
	{"connect_refused", unconnected(outbound.StepConnect, refusedCall(syscall.ECONNREFUSED))},
	{"unreachable", unconnected(outbound.StepConnect, refusedCall(syscall.EHOSTUNREACH))},
	{"network_denied", unconnected(outbound.StepConnect, outbound.ErrDenied)},
	{"unknown authority", unconnected(outbound.StepTLS, &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}})},
	{"expired", unconnected(outbound.StepTLS, &tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.Expired, Detail: "long ago"}})},
	{"proxy 407", breaks(&outbound.ConnectError{Step: outbound.StepProxy, Proxy: "http://proxy.example:3128", Host: "couch.example:5984", Status: 407})},
	{"proxy dns", breaks(&outbound.ConnectError{
		Step: outbound.StepResolve, Proxy: "http://proxy.example:3128", Err: &net.DNSError{Err: "no such host", Name: "proxy.example", IsNotFound: true},
	})},
	{"EOF", breaks(io.EOF)},
	{"reset", breaks(&net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)})},
	{"not HTTP", breaks(errors.New(`net/http: HTTP/1.x transport connection broken: malformed HTTP response "SSH-2.0"`))},
	{"cut off", says(200, `{"db_name`)},
	{"not JSON", says(200, `<html>`)},
	{"another JSON", says(200, `{"couchdb":"Welcome"}`)},
	{"redirect", says(301, ``, "Location", "http://elsewhere.example/db")},
	{"400", says(400, `{"error":"bad_request","reason":"Referer header required"}`)},
	{"401", says(401, `{"error":"unauthorized","reason":"You are not authorized to access this db."}`)},
	{"401 of a gateway", says(401, `<html>`)},
	{"403", says(403, `{"error":"forbidden","reason":"You are not allowed to access this db."}`)},
	{"404 of the database", says(404, `{"error":"not_found","reason":"Database does not exist."}`)},
	{"404", says(404, `{"error":"not_found","reason":"missing"}`)},
	{"409", says(409, `{"error":"conflict","reason":"Document update conflict."}`)},
	{"412", says(412, `{"error":"precondition_failed","reason":"quota"}`)},
	{"413", says(413, `{"error":"too_large","reason":"the request entity is too large"}`)},
	{"429", says(429, `{"error":"too_many_requests","reason":"later"}`, "Retry-After", "120")},
	{"500", says(500, `{"error":"internal_server_error","reason":"password=\"s3cr3t\" is lost"}`)},
	{"503", says(503, ``, "Retry-After", "120")},
}

// deeds are the requests of a run.
var deeds = []struct {
	name string
	only string // the method that fails; "" for all
	do   func(context.Context, *run) error
}{
	{"open", "", func(ctx context.Context, r *run) error { return r.source.open(ctx) }},
	{"create", http.MethodPut, func(ctx context.Context, r *run) error {
		_, err := r.target.create(ctx, nil, nil)
		return err
	}},
	{"read changes", "", func(ctx context.Context, r *run) error {
		return (&reader{r: r, to: newIntake(r), over: func() {}}).follow(ctx, false)
	}},
	{"read checkpoint", "", func(ctx context.Context, r *run) error {
		_, err := r.source.getCheckpoint(ctx, "id")
		return err
	}},
	{"write checkpoint", "", func(ctx context.Context, r *run) error { return r.source.record(ctx, "id", "session", record{}) }},
	{"take back checkpoint", "", func(ctx context.Context, r *run) error { return r.target.retract(ctx, "id") }},
	{"commit writes", "", func(ctx context.Context, r *run) error { return r.target.commit(ctx, "id") }},
	{"read filter", "", func(ctx context.Context, r *run) error {
		r.rep.Filter = "app/mine"
		_, err := r.filterCode(ctx)
		return err
	}},
	{"compare revisions", "", func(ctx context.Context, r *run) error {
		_, err := r.missing(ctx, []couch.Row{{ID: "x", Revs: []string{"1-a"}}})
		return err
	}},
	{"read document", "", func(ctx context.Context, r *run) error {
		return r.copyLeaves(ctx, ref{id: "x", rev: "1-a"}, nil, map[string]bool{}, false)
	}},
	{"write documents", "", func(ctx context.Context, r *run) error {
		return r.write(ctx, []couch.Document{{ID: "x", Rev: "1-a", Body: []byte(`{"_id":"x","_rev":"1-a"}`)}}, nil)
	}},
	{"write a document", "", func(ctx context.Context, r *run) error {
		doc := couch.Document{ID: "x", Rev: "1-a", Body: []byte(`{"_id":"x","_rev":"1-a"}`)}
		return r.put(ctx, doc, nil, ref{id: "x", rev: "1-a"}, true)
	}},
	{"read security", "", func(ctx context.Context, r *run) error {
		_, err := r.source.security(ctx)
		return err
	}},
	{"write security", "", func(ctx context.Context, r *run) error { return r.target.putSecurity(ctx, json.RawMessage(`{}`)) }},
	{"read server", "", func(ctx context.Context, r *run) error {
		_, err := r.source.place(ctx, r.rep.Source)
		return err
	}},
	{"write mark", "", func(ctx context.Context, r *run) error { return r.target.putMark(ctx, markID, mark{}) }},
}

// withUser and withoutUser are bodies of a POST /_replicate.
const (
	withUser    = `{"source":"http://me:s3cr3t@couch.example:5984/db","target":"http://couch.example:5984/copy","create_target":true}`
	withoutUser = `{"source":"https://couch.example/db","target":"https://couch.example/copy","create_target":true}`
)

// runAgainst returns a run whose requests are answered by p and never repeated.
func runAgainst(t *testing.T, body string, p peers, edit ...func(*Config)) *run {
	t.Helper()
	request, err := replicator.ParseRequest([]byte(body), replicator.ParseOptions{})
	require.NoError(t, err)
	cfg := DefaultConfig()
	cfg.RetriesPerRequest, cfg.BasicAuth, cfg.Shared = 0, true, Impatient()
	cfg.Transport = func(replicator.Endpoint, *sockopt.Options) http.RoundTripper { return p }
	for _, e := range edit {
		e(&cfg)
	}
	r, err := newRun(&Job{Replication: request.Replication}, &cfg, nil)
	require.NoError(t, err)
	t.Cleanup(r.source.db.Close)
	t.Cleanup(r.target.db.Close)
	return r
}

// toldOf returns the text of an error as the state of a job gets it.
func toldOf(name string, err error) told {
	failure, ok := errors.AsType[*Error](verdict(err))
	if !ok {
		return told{Name: name, Reason: "not an *Error: " + err.Error()}
	}
	return told{name, failure.Code, failure.Reason}
}

// failedRequests returns the errors of all deeds, failed in all ways.
func failedRequests(t *testing.T, body string) (all []told) {
	t.Helper()
	for _, deed := range deeds {
		for _, way := range ways {
			if body == withoutUser && !strings.HasPrefix(way.name, "40") {
				continue // it does not depend on the user
			}
			missing := says(http.StatusNotFound, `{"error":"not_found","reason":"Database does not exist."}`)
			r := runAgainst(t, body, func(hr *http.Request) (*http.Response, error) {
				if deed.only != "" && deed.only != hr.Method {
					return missing(hr)
				}
				return way.peer(hr)
			})
			if err := deed.do(t.Context(), r); err != nil {
				all = append(all, toldOf(deed.name+": "+way.name, err))
			}
		}
	}
	return all
}

// specialErrors returns the errors with words of their own.
func specialErrors(t *testing.T) (all []told) {
	t.Helper()
	ctx := t.Context()
	ok := says(http.StatusOK, `{"db_name":"db","update_seq":"9","instance_start_time":"1700000000","doc_count":1,"filters":{"other":1}}`)
	add := func(name string, err error) {
		t.Helper()
		require.Error(t, err, name)
		all = append(all, toldOf(name, err))
	}

	r := runAgainst(t, withUser, ok)
	add("recreated", r.source.recreated())
	add("not an error of a request", errors.New("out of luck"))
	r.rep.Filter = "app/mine"
	_, err := r.filterCode(ctx)
	add("no filter function", err)
	r.rep.Filter = "nothing"
	_, err = r.filterCode(ctx)
	add("no name of a filter", err)
	r.rep.Filter, r.rep.QueryParams = "app/mine", json.RawMessage(`1`)
	_, err = r.feedOptions()
	add("query_params", err)
	r.rep.CreateTargetParams = json.RawMessage(`1`)
	add("create_target_params", r.openTarget(ctx))
	add("a feed without an end", (&feedLength{r: r, rows: 10 * manyRows}).count(ctx, 1))
	r.rep.Mirrored = &replicator.Mirrored{}
	add("a refused mirror", r.openMirrored(ctx, nil, nil))
	_, err = r.source.place(ctx, replicator.Endpoint{URL: "http://couch.example:5984/"})
	add("no place", err)

	refused := &couch.DocError{ID: "x", Rev: "1-a", Code: "unknown_error", Reason: "badmatch"}
	add("a document", r.judged(ctx, couch.Document{ID: "x", Rev: "1-a"}, refused, &reply{code: refused.Code}, r.target.login()))
	_, err = newRun(&Job{Replication: &replicator.Replication{Source: replicator.Endpoint{URL: "ftp://couch.example/db"}}}, &Config{}, nil)
	add("no URL", err)
	_, err = OpenServer(replicator.Endpoint{}, "ftp://couch.example/", Config{})
	add("no URL of a server", err)

	r = runAgainst(t, withUser, says(http.StatusNotFound, `{"error":"not_found","reason":"missing"}`))
	add("missing revision", r.missed(ctx, ref{id: strings.Repeat("long", 100), rev: "1-a"}, errMissing))

	conflicts := says(http.StatusConflict, `{"error":"conflict","reason":"Document update conflict."}`)
	r = runAgainst(t, withUser, func(hr *http.Request) (*http.Response, error) {
		if hr.Method == http.MethodPut {
			return conflicts(hr)
		}
		return says(http.StatusOK, `{"_id":"_local/id","_rev":"0-1","session_id":"another"}`)(hr)
	})
	add("conflict of checkpoints", r.target.record(ctx, "id", "session", record{}))

	for _, way := range ways {
		if strings.HasPrefix(way.name, "40") {
			r = runAgainst(t, withUser, way.peer, func(cfg *Config) { cfg.BasicAuth = false })
			add("log in: "+way.name, r.source.open(ctx))
		}
	}
	return all
}

// silentFilter returns the error of a filtered feed that is silent for too long.
func silentFilter(t *testing.T) (silent told) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := runAgainst(t, withUser, says(http.StatusOK, `{"db_name":"db","doc_count":7,"results":[],"last_seq":"9","pending":70}`))
		waits := &silence{}
		waits.begin()
		silent = toldOf("a silent filter", r.outlast(t.Context(), waits))
	})
	return silent
}

func TestErrorsHaveTheRecordedTexts(t *testing.T) {
	t.Parallel()
	recorded, err := os.ReadFile(textsFile)
	require.NoError(t, err)
	var got bytes.Buffer
	texts := append(failedRequests(t, withUser), failedRequests(t, withoutUser)...)
	for _, text := range append(append(texts, specialErrors(t)...), silentFilter(t)) {
		line := json.NewEncoder(&got)
		line.SetEscapeHTML(false)
		require.NoError(t, line.Encode(text))
	}
	require.Equal(t, string(recorded), got.String())
	require.NotContains(t, got.String(), "s3cr3t")
}
