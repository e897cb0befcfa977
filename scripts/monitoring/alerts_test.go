package monitoring_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var promQL = parser.NewParser(parser.Options{})

// rulesOf returns the rules of alerts.yml.
func rulesOf(t *testing.T) (all []rulefmt.Rule) {
	t.Helper()
	groups, errs := rulefmt.ParseFile("alerts.yml", false, model.UTF8Validation, promQL, promslog.NewNopLogger())
	require.Empty(t, errs)
	for _, g := range groups.Groups {
		all = append(all, g.Rules...)
	}
	require.NotEmpty(t, all)
	return all
}

// metricsOf returns the names of the metrics in an expression.
func metricsOf(t *testing.T, expression string) (names []string) {
	t.Helper()
	parsed, err := promQL.ParseExpr(expression)
	require.NoError(t, err, expression)
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		if selector, ok := n.(*parser.VectorSelector); ok {
			names = append(names, selector.Name)
		}
		return nil
	})
	require.NotEmpty(t, names, expression)
	return names
}

var (
	camelCase = regexp.MustCompile(`^Settee([A-Z][a-z]+)+$`)
	heading   = regexp.MustCompile(`(?m)^#+ (.+)$`)
)

// Every rule has what people need, and asks only for metrics that a node has.
func TestRules(t *testing.T) {
	t.Parallel()
	known := exported(t)
	var names []string
	for _, r := range rulesOf(t) {
		assert.Regexp(t, camelCase, r.Alert)
		assert.NotContains(t, names, r.Alert)
		names = append(names, r.Alert)
		assert.Contains(t, []string{"critical", "warning", "info"}, r.Labels["severity"], r.Alert)
		assert.Positive(t, r.For, r.Alert)
		for _, metric := range metricsOf(t, r.Expr) {
			assert.True(t, known[metric], "%s: a node has no metric %s", r.Alert, metric)
		}
		assert.NotEmpty(t, r.Annotations["summary"], r.Alert)
		assert.NotEmpty(t, r.Annotations["description"], r.Alert)
		page, anchor, section := strings.Cut(r.Annotations["runbook"], "#")
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(page)))
		require.NoError(t, err, r.Alert)
		assert.True(t, !section || sections(string(text))[anchor], "%s: %s has no section %s", r.Alert, page, anchor)
	}
	for name := range cases {
		assert.Contains(t, names, name, "a test of an unknown alert")
	}
	for _, name := range names {
		assert.Contains(t, cases, name, "an alert without a test")
	}
}

// sections returns the anchors of the headings of a document.
func sections(text string) map[string]bool {
	anchors := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		anchors[strings.NewReplacer(" ", "-", "?", "").Replace(strings.ToLower(m[1]))] = true
	}
	return anchors
}

// outcome is the alerts that fire at a time.
type outcome struct {
	at     time.Duration
	firing []string // by what tells them apart: a role, a use, or a node
}

// series are some series and the times to look at. A value stands for a minute, in the notation of promtool's tests.
type series struct {
	name     string
	load     string
	outcomes []outcome
}

const (
	node1 = `job="settee-frontend", instance="a"`
	node2 = `job="settee-replication", instance="b"`
	other = `job="couchdb", instance="c"` // a CouchDB, which has some of the metrics too
)

// after is one time at which alerts fire.
func after(at time.Duration, firing ...string) outcome { return outcome{at, firing} }

// only stands for an alert without a label that tells it from others.
const only = ""

var cases = map[string][]series{
	"SetteeNotScraped": {
		{"there are no nodes", `couchdb_uptime_seconds{` + other + `} 0+60x20`,
			[]outcome{after(4 * time.Minute), after(6*time.Minute, only)}},
		{"there is one", `settee_build_info{` + node1 + `} 1x20`, []outcome{after(15 * time.Minute)}},
	},
	"SetteeNodeDown": {{"one is down for a while", `
		up{` + node1 + `} 1x5 0x5 1x10
		up{` + node2 + `} 1x20
		up{` + other + `} 0x20`, []outcome{after(7 * time.Minute), after(9*time.Minute, "a"), after(12 * time.Minute)}}},
	"SetteeNoLiveNode": {
		{"no node sees one", `
			settee_nodes_live{role="replication", ` + node1 + `} 2x5 0x10
			settee_nodes_live{role="api_frontend", ` + node1 + `} 1x20`, []outcome{after(5 * time.Minute), after(8*time.Minute, "replication")}},
		{"one node sees none, because it cannot read", `
			settee_nodes_live{role="replication", ` + node1 + `} 0x20
			settee_nodes_live{role="replication", ` + node2 + `} 1x20`, []outcome{after(15 * time.Minute)}},
		{"two clusters", `
			settee_nodes_live{role="replication", cluster="x", ` + node1 + `} 0x20
			settee_nodes_live{role="replication", cluster="y", ` + node2 + `} 1x20`, []outcome{after(5*time.Minute, "replication")}},
	},
	"SetteeNodeRestarts": {{"one is upgraded, one restarts again and again", `
		couchdb_uptime_seconds{` + node1 + `} 900+60x10 0+60x60
		couchdb_uptime_seconds{` + node2 + `} 900+60x10 0 30 10 60 20 60+60x60
		couchdb_uptime_seconds{` + other + `} 60 0 60 0 60 0 60 0 60 0 60 0 60 0 60 0`,
		[]outcome{after(10 * time.Minute), after(20*time.Minute, "b"), after(60 * time.Minute)}}},
	"SetteeSchedulerLate": {{"it is late for a minute, and hangs", `
		settee_scheduler_overdue_seconds{` + node1 + `} 0x5 65 0x20
		settee_scheduler_overdue_seconds{` + node2 + `} 0x5 0+60x20`, []outcome{after(8 * time.Minute), after(11*time.Minute, "b")}}},
	"SetteeClocksDiffer": {
		{"one is wrong", `
			settee_nodes_clock_difference_seconds{` + node1 + `} 0x5 17x20
			settee_nodes_clock_difference_seconds{` + node2 + `} 0x25`, []outcome{after(9 * time.Minute), after(12*time.Minute, only)}},
		{"they differ by what is normal", `settee_nodes_clock_difference_seconds{` + node1 + `} 9x30`, []outcome{after(25 * time.Minute)}},
	},
	"SetteeStoreRefusesWrites": {
		{"a write has failed", `
			settee_store_writable{` + node1 + `} 1x5 0x10
			settee_store_writable{` + node2 + `} 1x15`, []outcome{after(5 * time.Minute), after(8*time.Minute, "a")}},
		{"writes hang", `
			settee_store_writable{` + node2 + `} 1x20
			settee_store_last_write_seconds{` + node2 + `} 4x5 60+60x20`, []outcome{after(6 * time.Minute), after(9*time.Minute, "b")}},
	},
	"SetteeStoreUnreadable": {{"it does not answer", `
		settee_store_readable{` + node1 + `} 1 0 1x10 0x10
		settee_store_readable{` + node2 + `} 1x30`, []outcome{after(2 * time.Minute), after(4 * time.Minute), after(15*time.Minute, "a")}}},
	"SetteeSlowTransactions": {{"there is one, and they go on", `
		settee_slow_transactions_total{` + node1 + `} 0x5 1x60
		settee_slow_transactions_total{` + node2 + `} 0x5 1+1x60`, []outcome{after(30 * time.Minute), after(50*time.Minute, "b")}}},
	"SetteeJobsCrashing": {
		{"many crash", `
			couchdb_couch_replicator_jobs_crashed{` + node1 + `} 1x5 20x30
			couchdb_couch_replicator_jobs_crashed{` + node2 + `} 1x5 20x30
			couchdb_couch_replicator_jobs_total{` + node1 + `} 100x35
			couchdb_couch_replicator_jobs_total{` + node2 + `} 100x35`, []outcome{after(15 * time.Minute), after(25*time.Minute, only)}},
		{"few crash, but a CouchDB has many", `
			couchdb_couch_replicator_jobs_crashed{` + node1 + `} 9x35
			couchdb_couch_replicator_jobs_total{` + node1 + `} 100x35
			couchdb_couch_replicator_jobs_crashed{` + other + `} 100x35
			couchdb_couch_replicator_jobs_total{` + other + `} 100x35`, []outcome{after(30 * time.Minute)}},
	},
	"SetteeMoreJobsCrash": {
		{"a server fails", `couchdb_couch_replicator_jobs_crashed{` + node1 + `} 3x60 30x60`,
			[]outcome{after(65 * time.Minute), after(75*time.Minute, only), after(110 * time.Minute)}},
		{"some always crash", `couchdb_couch_replicator_jobs_crashed{` + node1 + `} 50+1x6 55x100`, []outcome{after(90 * time.Minute)}},
	},
	"SetteeJobCrashesForLong": {{"one of many", `
		settee_replicator_long_crashing_jobs{` + node1 + `} 0x10 1x20 0x20
		settee_replicator_long_crashing_jobs{` + node2 + `} 0x10 1x20 0x20`,
		[]outcome{after(10 * time.Minute), after(20*time.Minute, only), after(35 * time.Minute)}}},
	"SetteeJobStuck": {
		{"one for an hour", `settee_replicator_longest_stuck_job_seconds{` + node1 + `} 0x10 120+60x60 0x20`,
			[]outcome{after(17 * time.Minute), after(23*time.Minute, only), after(80 * time.Minute)}},
		{"a server never answers", `settee_replicator_longest_stuck_job_seconds{` + node1 + `} 0 0 120+60x20`,
			[]outcome{after(10 * time.Minute), after(14*time.Minute, only)}},
	},
	"SetteeJobLate": {
		{"one is behind, and catches up", `settee_replicator_lag_seconds{` + node1 + `} 0x10 130+60x90 0x20`,
			[]outcome{after(60 * time.Minute), after(95*time.Minute, only), after(110 * time.Minute)}},
		{"many are behind for a while", `settee_replicator_lag_seconds{` + node1 + `} 0+60x30 0+60x30 0+60x30`,
			[]outcome{after(80 * time.Minute)}},
	},
	"SetteeDocumentsRefused": {{"some are refused", `
		settee_replicator_doc_write_failures_total{` + node1 + `} 4x60
		settee_replicator_doc_write_failures_total{` + node2 + `} 0x20 3x40`,
		[]outcome{after(20 * time.Minute), after(30*time.Minute, only), after(50 * time.Minute)}}},
	"SetteeJobsWait": {{"no node takes jobs", `settee_replicator_oldest_due_job_seconds{` + node1 + `} 100x10 0+60x60`,
		[]outcome{after(30 * time.Minute), after(40*time.Minute, only)}}},
	"SetteeQueueGrows": {
		{"there are too few slots", `
			couchdb_couch_replicator_jobs_pending{` + node1 + `} 10x60 10+10x120
			settee_replicator_oldest_due_job_seconds{` + node1 + `} 0x60 0+10x120`, []outcome{after(90 * time.Minute), after(110*time.Minute, only)}},
		{"jobs for next year are added", `
			couchdb_couch_replicator_jobs_pending{` + node1 + `} 10x60 10+10x120
			settee_replicator_oldest_due_job_seconds{` + node1 + `} 0x180`, []outcome{after(110 * time.Minute)}},
	},
	"SetteeMirrorFails": {{"one database fails, and others for a while", `
		settee_mirror_failing_databases{mirror="_replicator/a", ` + node1 + `} 0x5 1x40
		settee_mirror_failing_databases{mirror="_replicator/b", ` + node1 + `} 0x5 7x10 0x30`,
		[]outcome{after(18 * time.Minute), after(25*time.Minute, "_replicator/a")}}},
	"SetteeMirrorLate": {{"one mirror is late", `
		settee_mirror_lag_seconds{mirror="_replicator/a", ` + node1 + `} 0x5 60+60x60
		settee_mirror_lag_seconds{mirror="_replicator/b", ` + node1 + `} 30x60`,
		[]outcome{after(25 * time.Minute), after(40*time.Minute, "_replicator/a")}}},
	"SetteeMirrorDifferent": {{"one mirror differs, until it is verified again", `
		settee_mirror_unproved_databases{mirror="_replicator/a", ` + node1 + `} 0x5 2x10 0x40
		settee_mirror_unproved_databases{mirror="_replicator/b", ` + node1 + `} 0x60`,
		[]outcome{after(4 * time.Minute), after(10*time.Minute, "_replicator/a"), after(30 * time.Minute)}}},
	"SetteeMirrorNotVerified": {{"one mirror is not verified", `
		settee_mirror_verify_overdue_seconds{mirror="_replicator/a", ` + node1 + `} 21000+60x60
		settee_mirror_verify_overdue_seconds{mirror="_replicator/b", ` + node1 + `} 0x60`,
		[]outcome{after(15 * time.Minute), after(25*time.Minute, "_replicator/a")}}},
	"SetteeWatchLate": {{"a server does not answer, and one is slow for a while", `
		settee_watch_lag_seconds{` + node1 + `} 0x5 60+60x30
		settee_watch_lag_seconds{` + node2 + `} 0x5 400x8 20x30`, []outcome{after(18 * time.Minute), after(21*time.Minute, "a")}}},
	"SetteeRequestsFail": {{"some answers are 503", `
		couchdb_httpd_status_codes{code="503", ` + node1 + `} 0x10 0+10x30
		couchdb_httpd_requests_total{` + node1 + `} 0+100x40
		couchdb_httpd_status_codes{code="404", ` + node2 + `} 0+100x40
		couchdb_httpd_status_codes{code="503", ` + node2 + `} 0+1x40
		couchdb_httpd_requests_total{` + node2 + `} 0+100x40`, []outcome{after(15 * time.Minute), after(30*time.Minute, "a")}}},
	"SetteeCertificateEnds": {{"one ends in 14 days and an hour", `
		settee_certificate_expiry_timestamp_seconds{use="server", ` + node1 + `} 1213200x200
		settee_certificate_expiry_timestamp_seconds{use="client", ` + node1 + `} 9999999x200
		settee_certificate_expiry_timestamp_seconds{use="server", ` + node2 + `} 0x200`,
		[]outcome{after(115 * time.Minute), after(125*time.Minute, "server")}}},
	"SetteeCertificateEnded": {{"one ends after an hour", `
		settee_certificate_expiry_timestamp_seconds{use="server", ` + node1 + `} 3600x100
		settee_certificate_expiry_timestamp_seconds{use="client", ` + node1 + `} 9999999x100`,
		[]outcome{after(59 * time.Minute), after(62*time.Minute, "server")}}},
}

// Each alert fires when it should, and not before or otherwise.
func TestAlerts(t *testing.T) {
	t.Parallel()
	for alert, all := range cases {
		for _, s := range all {
			t.Run(alert+"/"+s.name, func(t *testing.T) {
				t.Parallel()
				evaluate(t, alert, s)
			})
		}
	}
}

// evaluate evaluates the group of an alert once a minute, as promtool test rules does.
func evaluate(t *testing.T, alert string, s series) {
	t.Helper()
	loader, err := promqltest.NewLazyLoader("load 1m\n"+strings.TrimSpace(s.load), promqltest.LazyLoaderOpts{
		EnableAtModifier: true, EnableNegativeOffset: true,
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, loader.Close()) }()
	manager := rules.NewManager(&rules.ManagerOptions{
		QueryFunc: rules.EngineQueryFunc(loader.QueryEngine(), loader.Storage()), Appendable: loader.Storage(), Context: t.Context(),
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {}, Logger: promslog.NewNopLogger(), Parser: promQL,
	})
	groups, errs := manager.LoadGroups(time.Minute, labels.EmptyLabels(), "", nil, false, "alerts.yml")
	require.Empty(t, errs)
	var rule *rules.AlertingRule
	var group *rules.Group
	for _, g := range groups {
		for _, r := range g.AlertingRules() {
			r.SetRestored(true)
			if r.Name() == alert {
				rule, group = r, g
			}
		}
	}
	require.NotNil(t, rule)
	start := time.Unix(0, 0).UTC()
	last := s.outcomes[len(s.outcomes)-1].at
	for at := time.Duration(0); at <= last; at += time.Minute {
		loader.WithSamplesTill(start.Add(at), func(err error) { require.NoError(t, err) })
		group.Eval(loader.Context(), start.Add(at))
		require.NoError(t, rule.LastError())
		for _, want := range s.outcomes {
			if want.at == at {
				assert.Equal(t, want.firing, firing(t, rule), "after %s", at)
			}
		}
	}
}

// firing returns the alerts of a rule that fire.
func firing(t *testing.T, rule *rules.AlertingRule) (names []string) {
	t.Helper()
	for _, a := range rule.ActiveAlerts() {
		if a.State != rules.StateFiring {
			continue
		}
		name := a.Labels.Get("instance")
		for _, label := range []string{"role", "use", "mirror"} {
			if value := a.Labels.Get(label); value != "" {
				name = value
			}
		}
		names = append(names, name)
		summary := a.Annotations.Get("summary")
		assert.NotContains(t, summary, "<no value>")
		assert.NotContains(t, summary, "error expanding", fmt.Sprint(a.Labels))
	}
	slices.Sort(names)
	return names
}
