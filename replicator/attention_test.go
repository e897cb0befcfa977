package replicator_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/replicator"
)

// withFault sets the fault of the latest run.
func withFault(code replicator.FaultCode, side replicator.Side) func(*replicator.Facts) {
	return func(f *replicator.Facts) {
		end := map[replicator.Side]replicator.Endpoint{
			replicator.SideSource: f.Args.Replication.Source, replicator.SideTarget: f.Args.Replication.Target,
		}[side]
		f.State.SetFault(replicator.FaultAt(code, side, end, replicator.RequestOpen, "no"))
	}
}

// The first kind that applies is what a job needs a person for.
func TestAttention(t *testing.T) {
	t.Parallel()
	type change = func(*replicator.Facts)
	stuck := func(f *replicator.Facts) { f.State.StuckSince = minute(39) }
	refused := func(f *replicator.Facts) { f.State.Stats.DocWriteFailures, f.State.RefusedAt = 31, minute(33) }
	proxied := func(f *replicator.Facts) { f.State.Fault.Proxy = "http://proxy.example:3128" }
	lost := func(f *replicator.Facts) {
		f.State.Mirror.Target.Lost = &replicator.MirrorLoss{Databases: 2, At: minute(34)}
	}
	hung := replicator.Wait{Fault: &replicator.Fault{Code: replicator.FaultNoAnswer, Side: replicator.SideTarget, Host: "b.example"}}
	for name, c := range map[string]struct {
		facts []change
		want  string // kind, code, side, host
		since int
	}{
		"a job that waits":               {nil, "", -1},
		"a failed one":                   {[]change{finished("failed"), withFault("unauthorized", "target"), refused}, "failed unauthorized target b.example", 45},
		"one that failed elsewhere":      {[]change{finished("failed"), func(f *replicator.Facts) { f.State.StartTime = time.Time{} }}, "", -1},
		"one that crashes, and is stuck": {[]change{crashed, withFault("no_answer", "source"), stuck, refused}, "failing no_answer source a.example:5984", 30},
		"one that runs after a crash":    {[]change{crashed, withFault("no_answer", "source"), running, doing("copying")}, "failing no_answer source a.example:5984", 30},
		"one whose proxy fails":          {[]change{crashed, withFault("proxy_refused", "target"), proxied}, "failing proxy_refused  proxy.example:3128", 30},
		"one that collided":              {[]change{crashed, failed("conflict", "x exists")}, "failing collision  ", 30},
		"one with words":                 {[]change{crashed}, "failing unknown  ", 30},
		"stuck":                          {[]change{running, stuck, refused}, "stuck unknown  ", 39},
		"stuck, with a request":          {[]change{running, stuck, withFault("stalled", "source"), doing("retrying", hung)}, "stuck no_answer target b.example", 39},
		"stuck, after a run":             {[]change{running, stuck, withFault("stalled", "source"), doing("copying")}, "stuck stalled source a.example:5984", 39},
		"refused":                        {[]change{refused}, "documents_refused document_refused target b.example", 33},
		"completed, with refusals":       {[]change{finished("completed"), refused}, "documents_refused document_refused target b.example", 33},
		"parked, with refusals":          {[]change{parked, refused}, "documents_refused document_refused target b.example", 33},
		"parked":                         {[]change{parked}, "", -1},
		"a mirror":                       {[]change{mirror(nil), running}, "", -1},
		"a mirror that cannot list":      {[]change{mirror(nil), running, unlistable, lost}, "source_unlistable source_unlistable source a.example:5984", 43},
		"a mirror with a lost target":    {[]change{mirror(nil), running, lost}, "target_changed target_changed target b.example", 34},
		"a mirror that has ended":        {[]change{mirror(nil), finished("completed"), lost}, "", -1},
	} {
		f := facts(c.facts...)
		r := f.Args.Replication
		got := f.State.Attention().At(r.Source.Host(), r.Target.Host())
		told := replicator.Explain(f)
		assert.Equal(t, c.want != "", told.Attention, name)
		if c.want == "" {
			assert.Zero(t, got, name)
			continue
		}
		assert.Equal(t, c.want, string(got.Kind)+" "+string(got.Code)+" "+string(got.Side)+" "+got.Host, name)
		assert.Equal(t, minute(c.since), got.Since, name)
		for why, quiet := range map[string]change{
			"its document is paused": documentPaused, "its database is paused": databasePaused,
		} {
			quiet(f)
			if f.Status != replicator.JobFinished {
				assert.False(t, replicator.Explain(f).Attention, "%s, and %s", name, why)
				assert.Nil(t, replicator.Explain(f).Advice, "%s, and %s", name, why)
			}
			f.Args.Paused, f.Pause = nil, nil
		}
	}

	// Refusals are old after a week. Databases of a mirror that fail are the mirror's matter, too.
	old := facts(refused)
	old.Now = minute(33).Add(replicator.RefusedFor)
	assert.False(t, replicator.Explain(old).Attention)
	assert.True(t, replicator.Explain(facts(mirror(map[replicator.MirroredState]int64{"elsewhere": 1}), running)).Attention)
}

// The manual has each kind of advice and of fault.
func TestAdviceIsDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/http.md")
	require.NoError(t, err)
	for code := range replicator.AdviceTexts {
		assert.Contains(t, string(text), "`"+string(code)+"`")
	}
	for code := range replicator.FaultTexts {
		assert.Contains(t, string(text), "`"+string(code)+"`")
	}
}

// The dashboard knows each kind of advice, and no other.
func TestDashboardKnowsAdvice(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../frontend/internal/dashboard/src/problems.tsx")
	require.NoError(t, err)
	_, helps, found := strings.Cut(string(text), "const helps: Record<string, Helper> = {\n")
	require.True(t, found)
	helps, _, _ = strings.Cut(helps, "\n};")
	var known, all []string
	for _, m := range regexp.MustCompile(`(?m)^  ([a-z_]+): `).FindAllStringSubmatch(helps, -1) {
		known = append(known, m[1])
	}
	for code := range replicator.AdviceTexts {
		all = append(all, string(code))
	}
	assert.ElementsMatch(t, all, known)
}

// What helps against each fault. Each has a text, nothing is left open in one, and what is not known to help is not advised.
func TestAdvice(t *testing.T) {
	t.Parallel()
	for code := range replicator.FaultTexts {
		for _, side := range []replicator.Side{"", replicator.SideSource, replicator.SideTarget} {
			assert.NotEmpty(t, code.At(side, "h"), code)
			for _, to := range []replicator.Advised{{Side: side}, {Side: side, Host: "h", User: "u", Proxy: "p", Mirror: true, Posted: true}} {
				if advice := code.Advice(to); advice != nil {
					assert.NotEmpty(t, advice.Code, code)
					assert.Contains(t, replicator.AdviceTexts, advice.Code, code)
					assert.NotRegexp(t, "SIDE|HOST|USER|PROXY|AGAIN", advice.Text, code)
				}
			}
		}
	}
	type change = func(*replicator.Facts)
	creates := func(f *replicator.Facts) { f.Args.Replication.CreateTarget = true }
	name := "db"
	documented := func(f *replicator.Facts) { f.Args.Database = &name }
	asks := func(f *replicator.Facts) { f.State.Fault.RetryAfter = 4 }
	limited := replicator.Wait{RateLimited: true, Fault: &replicator.Fault{Code: replicator.FaultRateLimited, Side: replicator.SideTarget, Host: "b"}}
	for what, c := range map[string]struct {
		facts []change
		want  replicator.AdviceCode
		text  string
	}{
		"nothing is wrong":                  {nil, "", ""},
		"an expired certificate":            {[]change{crashed, withFault("tls_expired", "source")}, "renew_certificate", "Renew the certificate of a.example:5984, or correct the clocks."},
		"a certificate for another name":    {[]change{crashed, withFault("tls_wrong_name", "source")}, "correct_host", "The certificate of a.example:5984 is for another name: correct the host, or the certificate."},
		"a server that wants ours":          {[]change{crashed, withFault("tls_client_certificate", "source")}, "client_certificate", ""},
		"a database of the source":          {[]change{crashed, withFault("database_missing", "source")}, "create_database", "Create the database, or correct its name."},
		"a database of the target":          {[]change{crashed, withFault("database_missing", "target")}, "create_target", ""},
		"a target that is created":          {[]change{crashed, withFault("database_missing", "target"), creates}, "create_database", ""},
		"a mirror's target":                 {[]change{crashed, withFault("database_missing", "target"), mirror(nil)}, "create_database", ""},
		"no rights":                         {[]change{crashed, withFault("forbidden", "target")}, "rights", "Give its user access to the target."},
		"an invalid definition, posted":     {[]change{finished("failed"), failed("bad_request", "no")}, "edit", "Post it again with a definition that the settings allow."},
		"an invalid definition":             {[]change{finished("failed"), failed("bad_request", "no"), documented}, "edit", "Edit its document with a definition that the settings allow."},
		"words with password in them":       {[]change{crashed, failed("", "the document password-reset is missing")}, "", ""},
		"a server that hangs":               {[]change{running, func(f *replicator.Facts) { f.State.StuckSince = minute(39) }, withFault("no_answer", "target"), doing("copying")}, "server_hangs", "b.example accepts connections and does not answer: look at its load, its log, and proxies before it."},
		"a server without TLS":              {[]change{crashed, withFault("tls_no_answer", "source")}, "check_tls", "Does a.example:5984 speak TLS at this port? If it speaks plain HTTP there, correct the port, or write http:// instead of https://."},
		"asked to wait":                     {[]change{running, doing("rate_limited", limited)}, "", ""},
		"asked to wait for an hour":         {[]change{running, doing("rate_limited", limited), func(f *replicator.Facts) { f.Now = minute(52 + 60) }}, "slower", ""},
		"it gave up because of that":        {[]change{crashed, withFault("rate_limited", "target")}, "slower", ""},
		"a server error":                    {[]change{crashed, withFault("server_error", "target")}, "server_log", "Look at the log of b.example."},
		"a server error, asked to wait":     {[]change{crashed, withFault("server_error", "target"), asks}, "slower", "b.example asks to wait: run fewer jobs with it, or ask its owner why."},
		"refused documents":                 {[]change{finished("completed"), func(f *replicator.Facts) { f.State.Stats.DocWriteFailures, f.State.RefusedAt = 1, minute(33) }}, "refused_documents", "The job lists them, with the reasons."},
		"all nodes cordoned":                {[]change{func(f *replicator.Facts) { f.Cluster.Cordoned = true }}, "uncordon", ""},
		"no node":                           {[]change{func(f *replicator.Facts) { f.Cluster.Live = nil }}, "add_node", ""},
		"a slot, soon":                      {[]change{func(f *replicator.Facts) { f.Now = minute(64) }}, "", ""},
		"a slot, for long":                  {[]change{func(f *replicator.Facts) { f.Now = minute(65) }}, "more_slots", ""},
		"a slot, for long, and one free":    {[]change{func(f *replicator.Facts) { f.Now, f.Cluster.Used = minute(65), 4 }}, "", ""},
		"a mirror's databases are not ours": {[]change{mirror(nil), running, unlistable}, "list_rights", ""},
	} {
		got := replicator.Explain(facts(c.facts...)).Advice
		if c.want == "" {
			assert.Nil(t, got, what)
			continue
		}
		if assert.NotNil(t, got, what) {
			assert.Equal(t, c.want, got.Code, what)
			if c.text != "" {
				assert.Equal(t, c.text, got.Text, what)
			}
		}
	}
}

// All of a fault is told except what the job has elsewhere.
func TestFaultOfACondition(t *testing.T) {
	t.Parallel()
	f := facts(crashed, func(f *replicator.Facts) {
		fault := replicator.FaultAt("unauthorized", "target", replicator.Endpoint{URL: "http://b:6984/db", Username: "ann"}, "open_database", "GET http://ann:s3cret@b:6984/db: 401")
		fault.Method, fault.Path, fault.Status, fault.Word, fault.Said, fault.At = "GET", "/db", 401, "unauthorized", "Name or password is incorrect.", minute(55)
		f.State.SetFault(fault)
	})
	c := replicator.Explain(f)
	text, err := json.Marshal(c.Fault)
	require.NoError(t, err)
	assert.JSONEq(t, `{"code":"unauthorized","side":"target","request":"open_database","method":"GET","path":"/db","host":"b:6984","http_status":401,
		"couchdb_error":"unauthorized","couchdb_reason":"Name or password is incorrect.","user":"ann","detail":"GET http://ann:*****@b:6984/db: 401",
		"at":"2026-01-02T00:55:00Z","message":"target b:6984: the user or the password is wrong, or missing: Name or password is incorrect.",
		"text":"unauthorized: unauthorized to access or create database http://b:6984/db as \"ann\": Name or password is incorrect."}`, string(text))
	assert.Equal(t, "has failed, and waits for its next try: "+c.Fault.Message, c.Message)
	assert.Equal(t, "source a: answers with a server error, 503: full",
		replicator.Explain(facts(crashed, func(f *replicator.Facts) {
			f.State.SetFault(&replicator.Fault{Code: "server_error", Side: "source", Host: "a", Status: 503, Said: "full"})
		})).Fault.Message)
}
