// Package networks groups clients by the network that they come from.
//
// It does no I/O and starts nothing.
package networks
