package config_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/config"
	"settee/pkg/serverbudget"
)

func TestServerBudgets(t *testing.T) {
	t.Parallel()
	load := func(setting string) (map[string]serverbudget.Limit, error) {
		cfg, _, err := config.Load(config.Options{Flags: []string{"replicator.budgets/" + setting}})
		if err != nil {
			return nil, err
		}
		return cfg.ServerBudgets(), nil
	}
	for setting, want := range map[string]map[string]serverbudget.Limit{
		"DB.example=20 requests/s":                     {"db.example": {Requests: 20}},
		"db.example:6984=2 MB/s, 8 connections":        {"db.example:6984": {Bytes: 2_000_000, Connections: 8}},
		"*.example=1 requests/s,10 kB/s,4 connections": {"*.example": {Requests: 1, Bytes: 10_000, Connections: 4}},
		"db.example=1000000 requests/s":                {"db.example": {Requests: 1_000_000}},
		"2001:db8::1=1000 GB/s":                        {"2001:db8::1": {Bytes: 1_000_000_000_000}},
	} {
		got, err := load(setting)
		require.NoError(t, err, setting)
		assert.Equal(t, want, got, setting)
	}
	for _, setting := range []string{
		"db.example=", "db.example=20", "db.example=0 requests/s", "db.example=-1 requests/s", "db.example=3 connections",
		"db.example=9 kB/s", "db.example=1001 GB/s", "db.example=1000001 requests/s", "db.example=1 requests/s, 2 requests/s",
		"db.example=20 pages/s", "http://db.example/=1 requests/s", "a b=1 requests/s", "db.example:0=1 requests/s", "*=1 requests/s", "db.*=1 requests/s", "[2001:db8::1]:443=1 requests/s",
	} {
		_, err := load(setting)
		require.ErrorContains(t, err, "replicator.budgets", setting)
	}
}
