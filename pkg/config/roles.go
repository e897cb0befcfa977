package config

// Roles are the roles of a node (RFC 013, "Node Types").
type Roles struct {
	APIFrontend bool // accepts HTTP requests, opens no outbound connections
	Replication bool // runs replication jobs, does not listen except for metrics
}

// Roles returns the roles of this node, at least one.
func (c *Config) Roles() Roles {
	return Roles{APIFrontend: apiFrontend.Get(c), Replication: replication.Get(c)}
}

// String returns the roles as the settings name them: "api_frontend, replication".
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
