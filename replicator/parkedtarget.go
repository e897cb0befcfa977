package replicator

// ParkedTarget is the target of a parked job, as it was when the run began that has left it with everything that the source had.
// The zero value is a target that is not compared.
type ParkedTarget struct {
	// Server and Database say who answers, and the name of the database, see [Endpoint.Route].
	Server   string `json:"server,omitempty"`
	Database string `json:"database,omitempty"`
	// Identity is couch.Server.Identity, and Instance the database's instance_start_time if that is when it was created, in
	// seconds since the Unix epoch. Either is empty if it is not known.
	Identity string `json:"identity,omitempty"`
	Instance string `json:"instance,omitempty"`
}

// TargetNow is what a server says of the database of a ParkedTarget. Members are empty if the server does not say them.
type TargetNow struct {
	Identity, Instance string
	Missing            bool // it has no such database
}

// Lost reports whether the target has lost what it had: it has no such database any more, or another one of that name, or is
// another server. What is not known counts as unchanged.
func (t ParkedTarget) Lost(now TargetNow) bool {
	differ := func(was, is string) bool { return was != "" && is != "" && was != is }
	return now.Missing || differ(t.Identity, now.Identity) || differ(t.Instance, now.Instance)
}
