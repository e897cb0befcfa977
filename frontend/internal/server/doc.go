// Package server answers the requests about the server, this node, and the list of databases.
//
//	root.go             / and /_up
//	membership.go       /_membership and /_scheduler/nodes
//	cordon.go           /_scheduler/nodes/{node}/_cordon and _drain
//	setup.go            /_cluster_setup
//	node.go             /_node/{node}: its name, metrics, statistics, memory and versions
//	nodeconfig.go       /_node/{node}/_config
//	listdatabases.go    /_all_dbs and /_dbs_info
//	uuids.go            /_uuids
//
// It reads databases only for their names and what they say about themselves.
package server
