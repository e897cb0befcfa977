package watch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Which watches make room at a turn.
func TestMakesRoom(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000, 0)
	for name, c := range map[string]struct {
		most     int
		ages     []time.Duration // of the watches, the oldest first
		full     bool
		waited   time.Duration
		yielding int // the oldest ones
		excess   int // the youngest ones
	}{
		"nothing runs":                     {most: 2},
		"no room, and none is due":         {most: 2, ages: []time.Duration{time.Hour, time.Hour}, full: true},
		"one is due":                       {most: 2, ages: []time.Duration{time.Minute, time.Minute - 1}, full: true, waited: 1, yielding: 1},
		"one has waited for half a minute": {most: 2, ages: []time.Duration{time.Minute, shortTurn}, full: true, waited: turnPatience, yielding: 1},
		"one has waited for longer":        {most: 3, ages: []time.Duration{time.Minute, shortTurn, shortTurn - 1}, full: true, waited: turnPatience + 1, yielding: 2},
		"there is room again":              {most: 3, ages: []time.Duration{time.Hour, time.Hour}, waited: 1},
		"too many":                         {most: 1, ages: []time.Duration{time.Hour, time.Minute, 0}, full: true, waited: time.Hour, excess: 2},
		"none may run":                     {most: 0, ages: []time.Duration{time.Hour}, full: true, excess: 1},
	} {
		var list []*watch
		for _, age := range c.ages {
			one := new(watch)
			one.Began = now.Add(-age)
			list = append(list, one)
		}
		turn := makesRoom(c.most, list, c.full, c.waited, now)
		require.Len(t, turn.Yielding, c.yielding, name)
		require.Equal(t, c.yielding, turn.Most, name)
		for i, one := range turn.Yielding {
			require.Equal(t, now.Add(-c.ages[i]), one.Began, name)
		}
		require.Equal(t, c.excess, turn.Excess, name)
		if c.excess > 0 {
			for i, one := range turn.Stop[0] {
				require.Equal(t, now.Add(-c.ages[len(c.ages)-1-i]), one.Began, name)
			}
		}
	}
}
