package nodes

// Renew renews the row once.
func (r *Registry) Renew() error { return r.renew() }

// Instance returns what was drawn for this process.
func (r *Registry) Instance() string { return r.self.Instance }
