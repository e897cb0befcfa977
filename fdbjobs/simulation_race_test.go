//go:build race

package fdbjobs_test

const raceEnabled = true
