// Package access decides who may do what.
//
//	guard.go           what happens to each request: its user, the rules, the user's rights
//	authenticate.go    who the user is: cookie, password or token
//	rules.go           which requests are open to which users
//	jobs.go            who may see, change and cancel which jobs
//	rights.go          what a user may read and write of a document
//	users.go           and of a document of _users
//	session.go         /_session
//	security.go        /{db}/_security
//
// A request passes [Guard.Admit] before any other code sees it. From then on [UserOf] and [RightsOf] say who its user
// is, and what the user may do in the database of the request.
//
// The package knows accounts, and which databases have users and replications. It knows no endpoint outside its own.
package access
