// Package replication answers the requests about replications.
//
//	replicate.go      POST /_replicate: adds, joins, awaits and cancels replications
//	jobs.go           /_scheduler/jobs, and what targets refused
//	docs.go           /_scheduler/docs: the replications of documents
//	condition.go      what people are told about the jobs of an answer
//	summary.go        /_scheduler/summary: how many jobs there are in each state
//	problems.go       /_scheduler/problems: what needs attention, grouped by what is wrong at which end
//	rates.go          /_scheduler/rates: what all nodes did in the last hours
//	shares.go         /_scheduler/shares: who had how much of the running time
//	audit.go          /_scheduler/audit: who has changed jobs and settings
//	activetasks.go    /_active_tasks
//
// The package reads and writes jobs in the store (package replicator/jobs). It runs no replication.
package replication
