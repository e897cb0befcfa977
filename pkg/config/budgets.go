package config

import (
	"net"
	"regexp"
	"strconv"
	"strings"

	"settee/pkg/serverbudget"
)

const (
	wantBudget = "a list of up to three limits, such as 20 requests/s, 2 MB/s, 8 connections (at least 1, 10 kB and 4)"
	// mostRequests and mostBytes are the most requests and bytes a second of a budget. Nodes multiply them by numbers of jobs.
	mostRequests, mostBytes = 1_000_000, 1_000_000_000_000
)

// budgetHost matches the keys of [replicator.budgets] without a port. An IPv6 address has no brackets then.
var budgetHost = regexp.MustCompile(`^(\*\.)?[^*\[\]/\s@]+$`)

// budgetLimit matches a limit of a budget.
var budgetLimit = regexp.MustCompile(`^(\d{1,7}) ?(requests/s|B/s|kB/s|MB/s|GB/s|connections)$`)

// serverBudget accepts the budget of a server under the pattern of its host.
func serverBudget(pattern string) kind[serverbudget.Limit] {
	if _, ok := budgetPattern(pattern); !ok {
		return kind[serverbudget.Limit]{
			want:  "under a host, such as couch.example.com, couch.example.com:6984 or *.example.com",
			parse: func(string) (serverbudget.Limit, bool) { return serverbudget.Limit{}, false },
		}
	}
	return kind[serverbudget.Limit]{want: wantBudget, parse: parseBudget}
}

// budgetPattern returns the key of [replicator.budgets] in one spelling, and whether it is a pattern.
func budgetPattern(key string) (string, bool) {
	key = strings.ToLower(key)
	host, port, err := net.SplitHostPort(key)
	if err != nil {
		host, port = key, "1"
	}
	_, known := parsePort(port)
	return key, known && budgetHost.MatchString(host) && (err == nil || strings.Count(host, ":") != 1)
}

// budgetUnits are the bytes of the units.
var budgetUnits = map[string]int64{"B/s": 1, "kB/s": 1_000, "MB/s": 1_000_000, "GB/s": 1_000_000_000}

func parseBudget(text string) (limit serverbudget.Limit, ok bool) {
	for _, item := range items(text) {
		m := budgetLimit.FindStringSubmatch(item)
		if m == nil {
			return limit, false
		}
		n, err := strconv.ParseInt(m[1], 10, 64)
		least, most, field := int64(1), int64(mostRequests), &limit.Requests
		switch m[2] {
		case "requests/s":
		case "connections":
			least, field = serverbudget.MinConnections, &limit.Connections
		default:
			n *= budgetUnits[m[2]]
			least, most, field = 10_000, mostBytes, &limit.Bytes
		}
		if err != nil || *field != 0 || n < least || n > most {
			return limit, false
		}
		*field = n
	}
	return limit, true
}

// ServerBudgets returns the budgets of servers, by patterns in lower case.
func (c *Config) ServerBudgets() map[string]serverbudget.Limit {
	limits := map[string]serverbudget.Limit{}
	for key, limit := range Budgets.Get(c) {
		if pattern, ok := budgetPattern(key); ok {
			limits[pattern] = limit
		}
	}
	return limits
}
