// Package papers tests the papers: README.md, CONTRIBUTING.md, the files of docs, and NOTICE.
//
// # Commands
//
// Every fenced block whose info string is sh or console is run, in the order of the document, by one shell and
// against one node, which belong to the document alone. A block that cannot be run has a comment directly before it:
//
//	<!-- not run: the reason -->
//
// A block that needs two CouchDBs has the comment
//
//	<!-- run with two CouchDBs -->
//
// These blocks of a document are run in order by a shell and against a node of their own. a.example and b.example are
// two CouchDBs with an administrator mirror, whose password is relax, and the file /etc/settee/mirror.netrc has it for both.
// Both are reached without TLS. The first has two databases, films and series.
//
// A block of the kind sh is a script, and must succeed. In one of the kind console a line that begins with "$ " is a
// command, lines that begin with "> " continue it, and the other lines are what it prints, which is compared: spaces
// and ends of lines do not count, and … stands for any text. A command without output is only run. A curl without
// -X and -d is repeated for up to two minutes until it prints the expected text, since jobs need a moment.
//
// The documents have fixed names for what differs in each test: the node's address is 127.0.0.1:5984, its
// administrator is admin with the password relax, and /etc/settee and /var/lib/settee are its folders. The
// program settee is built from this tree.
//
// # Other blocks
//
// A block of the kind go that shows a file is equal to it:
//
//	<!-- file: fdbjobs/example_worker_test.go -->
//
// # What is generated
//
// With -update the tests write NOTICE and docs/demo.svg anew, and the files that blocks show.
package papers
