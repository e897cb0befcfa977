package racetest

// Part returns how many of n rounds a test runs: all, or a fifth under the race detector, which sees in a few rounds
// what all would show it. It is for tests where n counts random cases, not goroutines.
func Part(n int) int {
	if Enabled {
		return n / 5
	}
	return n
}
