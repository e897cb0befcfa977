// Package networks groups clients by network ([Of]), and chooses which of many waiting requests
// is ended to make room for others ([EvictionQueue]).
//
// It does no I/O and starts no goroutines.
package networks
