//go:build !nextlevel

package main

// testLevels are levels that tests add.
var testLevels []storeLevel
