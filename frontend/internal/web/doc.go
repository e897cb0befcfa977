// Package web is what all requests of the frontend have in common: how a request is received, bounded, logged and
// answered.
//
//	server.go, httpserver.go       what happens to each request, and the HTTP server
//	connections.go                 bounds of connections and requests, and waits that make room
//	cors.go, host.go               what pages of other origins may do
//	url.go, query.go, accept.go, ranges.go
//	                               paths, parameters and headers
//	body.go, json.go               bodies
//	respond.go, stream.go, appender.go, answer.go
//	                               answers
//	failure.go, storefailure.go    answers to errors, in CouchDB's words
//
// An [Action] answers a request or returns an error. A [*Failure] is what the client sees. After another error the client
// sees that the request failed, and the log says why.
//
// The package reads the configuration, and knows the errors of the stores, which it translates. It knows no users, no
// databases and no replications.
package web
