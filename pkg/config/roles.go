package config

// Roles is what a node does (RFC 013, "Node Types").
type Roles struct {
	APIFrontend bool // accepts HTTP requests, opens no connection to the outside
	Replication bool // runs replication jobs, listens to nobody outside
}

// Roles returns the roles of this node: at least one.
func (c *Config) Roles() Roles {
	return Roles{APIFrontend: apiFrontend.Get(c), Replication: replication.Get(c)}
}

// String names the roles as the settings do: "api_frontend, replication".
func (r Roles) String() string {
	switch {
	case r.APIFrontend && r.Replication:
		return "api_frontend, replication"
	case r.APIFrontend:
		return "api_frontend"
	case r.Replication:
		return "replication"
	default:
		return "none"
	}
}
