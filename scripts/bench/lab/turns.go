package lab

import (
	"fmt"
	"math"
	"slices"
)

// Sample is what one turn of a system has measured, by name. Without a value, it is unknown or has no meaning for the system.
type Sample map[string]float64

// Samples are the samples of a system, by turn.
type Samples []Sample

// InTurns has each system measured in each turn. The system that begins changes with each turn.
func InTurns(turns int, systems []string, measure func(turn, system int) (Sample, error)) ([]Samples, error) {
	all := make([]Samples, len(systems))
	for turn := range turns {
		for i := range systems {
			system := (turn + i) % len(systems)
			one, err := measure(turn, system)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", systems[system], err)
			}
			all[system] = append(all[system], one)
		}
	}
	return all, nil
}

// of returns a value of all turns.
func (all Samples) of(name string) (values []float64) {
	for _, one := range all {
		values = append(values, one[name])
	}
	return values
}

// Median returns the median of a value, or NaN if there are no turns.
func (all Samples) Median(name string) float64 { return median(all.of(name)) }

// Ratios returns the ratios of a value to the same value of another system, turn by turn: their median and, in brackets, the
// smallest and the largest one, or a dash if they are unknown.
func (all Samples) Ratios(name string, to Samples) string {
	ratios := all.of(name)
	for i, other := range to.of(name) {
		ratios[i] /= other
	}
	text := Number(median(ratios), 2)
	if text == "-" {
		return text
	}
	return text + fmt.Sprintf(" (%.2f-%.2f)", slices.Min(ratios), slices.Max(ratios))
}

// median returns the median of some values, or NaN if there are none. With an even number of values it is the mean of the
// two in the middle.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
