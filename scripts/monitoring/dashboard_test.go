package monitoring_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type dashboard struct {
	UID           string `json:"uid"`
	Title         string `json:"title"`
	SchemaVersion int    `json:"schemaVersion"`
	Templating    struct {
		List []struct {
			Name, Type, Definition string
		}
	}
	Panels []panel
}

type panel struct {
	ID                       int
	Type, Title, Description string
	Datasource               struct{ UID string }
	GridPos                  struct{ X, Y, W, H int }
	FieldConfig              struct{ Defaults struct{ Unit string } }
	Targets                  []struct {
		Expr, RefID string
		Datasource  struct{ UID string }
	}
}

// columns is the width of Grafana's grid.
const columns = 24

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	text, err := os.ReadFile("dashboard.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &d))
	return d
}

func TestDashboard(t *testing.T) {
	t.Parallel()
	d := readDashboard(t)
	assert.NotEmpty(t, d.UID)
	assert.NotEmpty(t, d.Title)
	assert.GreaterOrEqual(t, d.SchemaVersion, 39)
	require.Equal(t, "datasource", d.Templating.List[0].Name)
	assert.Equal(t, "datasource", d.Templating.List[0].Type)

	ids, cells := map[int]bool{}, map[[2]int]string{}
	require.Equal(t, "row", d.Panels[0].Type)
	for _, p := range d.Panels {
		assert.Positive(t, p.ID)
		assert.False(t, ids[p.ID], "two panels have the id %d", p.ID)
		ids[p.ID] = true
		require.NotEmpty(t, p.Title, p.ID)
		assert.LessOrEqual(t, p.GridPos.X+p.GridPos.W, columns, p.Title)
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				cell := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				assert.Empty(t, cells[cell], "%s overlaps", p.Title)
				cells[cell] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		assert.NotEmpty(t, p.Description, p.Title)
		assert.NotEmpty(t, p.FieldConfig.Defaults.Unit, p.Title)
		assert.Equal(t, "${datasource}", p.Datasource.UID, p.Title)
		require.NotEmpty(t, p.Targets, p.Title)
		refs := map[string]bool{}
		for _, target := range p.Targets {
			assert.Equal(t, "${datasource}", target.Datasource.UID, p.Title)
			assert.False(t, refs[target.RefID], p.Title)
			refs[target.RefID] = true
		}
	}
}

var (
	variable     = regexp.MustCompile(`\$(\w+)`)
	labelsQuery  = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)
	scrapesEvery = 15 * time.Second
)

// Each query of the dashboard has a result for the metrics of a node.
func TestQueries(t *testing.T) {
	t.Parallel()
	known, d := exported(t), readDashboard(t)
	var load strings.Builder
	fmt.Fprintf(&load, "load %s\n", scrapesEvery)
	for _, s := range scraped(t, node.answer, "text/plain; version=0.0.4") {
		all := labels.NewBuilder(s.Labels).Set("job", "settee-frontend").Set("instance", "127.0.0.1:5984").Labels()
		fmt.Fprintf(&load, "\t%s %gx40\n", all, s.value)
	}
	storage := promqltest.LoadedStorage(t, load.String())
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	results := func(query string) int {
		t.Helper()
		for _, metric := range metricsOf(t, query) {
			assert.True(t, known[metric], "a node has no metric %s", metric)
		}
		q, err := engine.NewInstantQuery(t.Context(), storage, nil, query, time.Unix(0, 0).Add(40*scrapesEvery))
		require.NoError(t, err)
		defer q.Close()
		vector, err := q.Exec(t.Context()).Vector()
		require.NoError(t, err)
		return len(vector)
	}
	variables := map[string]string{"__rate_interval": "1m"}
	for _, v := range d.Templating.List {
		variables[v.Name] = ".+"
		if v.Name == "cluster" {
			variables[v.Name] = ".*" // the label may be missing
		}
	}
	replace := func(query string) string {
		return variable.ReplaceAllStringFunc(query, func(name string) string {
			value, ok := variables[name[1:]]
			assert.True(t, ok, "%s: there is no variable %s", query, name)
			return value
		})
	}
	for _, v := range d.Templating.List[1:] {
		m := labelsQuery.FindStringSubmatch(v.Definition)
		require.Len(t, m, 3, v.Definition)
		assert.Positive(t, results(replace(m[1])), v.Name)
	}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			assert.Positive(t, results(replace(target.Expr)), "%s: %s has no result", p.Title, target.Expr)
		}
	}
}
