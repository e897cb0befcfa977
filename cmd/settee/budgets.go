package main

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"settee/cmd/settee/internal/lifecycle"
	"settee/pkg/config"
	"settee/pkg/serverbudget"
)

// budgetsPart has the budgets of servers. Only nodes that run replications divide them.
func (n *node) budgetsPart() lifecycle.Part {
	if !n.cfg.Roles().Replication {
		return lifecycle.Part{}
	}
	n.budgets = serverbudget.New()
	return lifecycle.Background(n.followBudgets)
}

// followBudgets sets the budgets of servers to the configuration's.
func (n *node) followBudgets(ctx context.Context) {
	n.follow(ctx, func(cfg *config.Config) { n.budgets.Set(cfg.ServerBudgets()) })
}

// budgetMetrics are the budgets of the servers that this node uses.
type budgetMetrics struct {
	budgets                                *serverbudget.Node
	limit, part, used, connections, queued *prometheus.Desc
}

func newBudgetMetrics(budgets *serverbudget.Node) *budgetMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("settee_budget_"+name, help, append([]string{"server"}, labels...), nil)
	}
	return &budgetMetrics{
		budgets:     budgets,
		limit:       desc("limit", "what all nodes together may ask of a server that this node uses: requests or bytes a second, or connections", "of"),
		part:        desc("part", "this node's part of the budget of a server: requests or bytes a second, or connections", "of"),
		used:        desc("used_total", "requests of this node to a server with a budget, and bytes of their bodies", "of"),
		connections: desc("connections", "requests of this node to a server with a budget that are under way"),
		queued:      desc("waiting_requests", "requests of this node that wait for the budget of a server"),
	}
}

// Describe implements prometheus.Collector.
func (b *budgetMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{b.limit, b.part, b.used, b.connections, b.queued} {
		to <- desc
	}
}

// Collect implements prometheus.Collector.
func (b *budgetMetrics) Collect(to chan<- prometheus.Metric) {
	for _, s := range b.budgets.States() {
		gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, append([]string{s.Server}, labels...)...)
		}
		for of, d := range map[string]struct{ limit, part int64 }{
			"requests": {s.Limit.Requests, s.Part.Requests}, "bytes": {s.Limit.Bytes, s.Part.Bytes},
			"connections": {s.Limit.Connections, s.Part.Connections},
		} {
			if d.limit > 0 {
				gauge(b.limit, float64(d.limit), of)
				gauge(b.part, float64(d.part), of)
			}
		}
		for of, total := range map[string]float64{"requests": s.Requests, "bytes": s.Bytes} {
			to <- prometheus.MustNewConstMetric(b.used, prometheus.CounterValue, total, s.Server, of)
		}
		gauge(b.connections, float64(s.Connections))
		gauge(b.queued, float64(s.Waiting))
	}
}
