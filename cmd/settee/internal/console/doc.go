// Package console shows the jobs of a node, and acts on them, for the commands settee jobs and settee top. It uses the
// node's public HTTP interface alone: what it shows, scripts can ask for, too.
//
//	answers.go    what a node answers
//	node.go       lists, single jobs, and where each filter of a command goes in a request
//	actions.go    run now, pause, resume, delete
//	document.go   the document of a job, which actions write
//	watch.go      what has changed in a list, or in a job
//	output.go     where a command writes what a node has answered, as text or as JSON
//	words.go      how numbers, times, endpoints and states are written
//	why.go        why a job is in its state, in one line
//	table.go      tables that fit into a terminal
//	show.go       the page of one job
//	problems.go   what needs attention, grouped by what is wrong at which end
//	overview.go   the screen of settee top, as lines
//	screen.go     a terminal that these lines are drawn on
//
// Texts of a node may come from the servers that it copies from and to, so all control characters in them are replaced
// before they reach a terminal.
package console
