package servers

// RunUntilKilled is run, for a test of what happens to a server whose owner is killed.
var RunUntilKilled = run
