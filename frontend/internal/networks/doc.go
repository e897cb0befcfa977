// Package networks groups clients by the network that they come from ([Of]), and chooses which of
// those that wait makes room for others ([Crowd]).
//
// It does no I/O and starts nothing.
package networks
