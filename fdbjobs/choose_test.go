package fdbjobs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestChoose: whose rows a claim takes, and which jobs make room for them.
func TestChoose(t *testing.T) {
	t.Parallel()
	keys := func(text string) (keys [][]byte) {
		for _, key := range strings.Fields(text) {
			keys = append(keys, []byte(key))
		}
		return keys
	}
	owner := func(name string, used, weight float64, rows string, evictable ...string) *contender {
		return &contender{owner: name, used: used, weight: weight, rows: keys(rows), evictable: evictable}
	}
	unread := func(name string, used float64) *contender {
		return &contender{owner: name, used: used, weight: 1, unread: true}
	}
	dithered := func(p *contender, dither float64) *contender { p.dither = dither; return p }

	for name, c := range map[string]struct {
		candidates []*contender
		jobCost    float64
		full       bool
		n          int
		chosen     string // keys, with the job that makes room behind a colon
		unread     string // owners
		settled    bool
	}{
		"nobody waits":             {candidates: nil, n: 3},
		"the longest waiting":      {candidates: []*contender{owner("a", 5, 1, "a1 a2 a3")}, n: 2, chosen: "a1 a2"},
		"the lowest usage":         {candidates: []*contender{owner("a", 5, 1, "a1"), owner("b", 4, 1, "b1 b2")}, n: 2, chosen: "b1 b2"},
		"equal owners take turns":  {candidates: []*contender{owner("a", 1, 1, "a1 a2 a3"), owner("b", 1, 1, "b1")}, n: 4, chosen: "a1 b1 a2 a3"},
		"running jobs count":       {candidates: []*contender{owner("a", 0, 1, "a1 a2"), owner("b", 5, 1, "b1")}, jobCost: 10, n: 2, chosen: "a1 b1"},
		"a running job of a heavy": {candidates: []*contender{owner("a", 0, 4, "a1 a2"), owner("b", 5, 1, "b1")}, jobCost: 10, n: 2, chosen: "a1 a2"},
		"a dither": {
			candidates: []*contender{dithered(owner("a", 0, 1, "a1"), 0.9), owner("b", 5, 1, "b1")}, jobCost: 10, n: 1, chosen: "b1",
		},
		"rows that are not read come first": {
			candidates: []*contender{owner("a", 2, 1, "a1 a2"), unread("b", 3), unread("c", 1), unread("d", 2)}, n: 2, unread: "c d",
		},
		"until then, earlier ones": {
			candidates: []*contender{owner("a", 0, 1, "a1 a2"), unread("b", 5)}, jobCost: 10, n: 2, chosen: "a1", unread: "b",
		},

		"the highest usage makes room": {
			candidates: []*contender{owner("y", 90, 1, "", "y1", "y2"), owner("z", 95, 1, "", "z1"), owner("a", 0, 1, "a1 a2 a3")}, jobCost: 10,
			full: true, n: 2, chosen: "a1:z1 a2:y1",
		},
		"it must stay above": {
			candidates: []*contender{owner("y", 19, 1, "", "y1"), owner("a", 10, 1, "a1")}, jobCost: 10, full: true, n: 1, settled: true,
		},
		"a swap counts at once": {
			candidates: []*contender{owner("y", 30, 1, "", "y1", "y2", "y3"), owner("a", 0, 1, "a1 a2 a3")}, jobCost: 10,
			full: true, n: 3, chosen: "a1:y1 a2:y2", settled: true,
		},
		"jobs of one owner take turns": {
			candidates: []*contender{owner("y", 15, 1, "y9", "y1"), owner("a", 14, 1, "a1")}, jobCost: 10, full: true, n: 2,
			chosen: "y9:y1", settled: true,
		},
		"nothing to offer": {candidates: []*contender{owner("a", 0, 1, "a1")}, full: true, n: 1, settled: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 2 { // it changes nothing
				d := choose(c.candidates, c.jobCost, c.full, c.n)
				var chosen, unread []string
				for _, pick := range d.picks {
					text := string(pick.key)
					if pick.evicts != "" {
						text += ":" + pick.evicts
					}
					chosen = append(chosen, text)
					assert.True(t, strings.HasPrefix(text, pick.of.owner))
				}
				for _, p := range d.unread {
					unread = append(unread, p.owner)
				}
				assert.Equal(t, c.chosen, strings.Join(chosen, " "))
				assert.Equal(t, c.unread, strings.Join(unread, " "))
				assert.Equal(t, c.settled, d.settled)
			}
		})
	}
}
